//! Tests of how connections are dealt out.

use proptest::prelude::*;

use super::*;

fn claimed(slots: &Arc<Slots>, number: u64, coverable: bool) -> Claim {
    slots.claim(number, coverable, Activity::default())
}

fn places(claims: &[Claim]) -> [usize; 3] {
    let count = |place| {
        claims.iter().filter(move |claim| claim.place() == place && !claim.revoked().is_cancelled())
    };
    [Place::Own, Place::Covered, Place::RoundRobin].map(|place| count(place).count())
}

#[test]
fn shares_never_exceed_the_budget() {
    for total in 0..1000 {
        let shares = Shares::of(total);
        let used = CATALOG + shares.own + shares.reads + shares.turns + shares.prefixes;
        assert_eq!(used, total.max(FEWEST), "{shares:?}");
        assert_eq!(shares.total + shares.reads, shares.budget);
        assert!(shares.own > 0 && shares.reads > 0 && shares.turns > 0 && shares.prefixes > 0);
    }
    let of_64 = Shares { budget: 64, total: 60, own: 44, reads: 4, turns: 8, prefixes: 4 };
    assert_eq!(Shares::of(64), of_64);
}

#[test]
fn up_to_the_budget_each_watch_has_its_own_connection() {
    let slots = Arc::new(Slots::new(64));
    let claims: Vec<Claim> = (0..60).map(|number| claimed(&slots, number, true)).collect();
    assert_eq!(places(&claims), [60, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn young_watches_hold_no_connection_for_long_that_they_may_have_to_give_back() {
    let slots = Arc::new(Slots::new(64));
    let wait = Duration::from_mins(1);
    let first = claimed(&slots, 0, true);
    assert_eq!(first.longest_block(wait), wait, "alone");
    let claims: Vec<Claim> = (1..30).map(|number| claimed(&slots, number, number > 1)).collect();
    assert_eq!(claims[0].longest_block(wait), wait, "nothing can stand in for it");
    assert_eq!(claims[5].longest_block(wait), SHORT_BLOCK);
    assert_eq!(claims[5].longest_block(SHORT_BLOCK / 2), SHORT_BLOCK / 2);
    tokio::time::sleep(YOUNG).await;
    assert_eq!(claims[5].longest_block(wait), wait);
}

#[test]
fn the_first_past_the_budget_makes_the_others_give_way() {
    let slots = Arc::new(Slots::new(64));
    let mut claims: Vec<Claim> =
        (0..60).map(|number| claimed(&slots, number, number >= 56)).collect();
    claims.push(claimed(&slots, 64, true));
    assert_eq!(places(&claims), [44, 1, 0]);
    assert!(claims[56..60].iter().all(|claim| claim.revoked().is_cancelled()));
    // One that nothing can stand in for waits its turn, unless a coverable one can give way.
    claims.push(claimed(&slots, 65, false));
    assert_eq!(claims[61].place(), Place::RoundRobin);
    let slots = Arc::new(Slots::new(64));
    let claims: Vec<Claim> = (0..61).map(|number| claimed(&slots, number, true)).collect();
    assert_eq!(claimed(&slots, 65, false).place(), Place::Own);
    assert_eq!(places(&claims), [43, 1, 0]);
}

#[test]
fn a_crowd_lasts_until_its_shares_are_not_needed() {
    let slots = Arc::new(Slots::new(64));
    let mut claims: Vec<Claim> = (0..61).map(|number| claimed(&slots, number, true)).collect();
    // What the watches do whose connection was taken back.
    for claim in &mut claims {
        if claim.revoked().is_cancelled() {
            let number = claim.number;
            *claim = claimed(&slots, number, true);
        }
    }
    assert_eq!(slots.figures(), (44, 17, 0));
    let upgrade = |claims: &mut Vec<Claim>| {
        claims.iter_mut().filter(|it| it.place() == Place::Covered).any(Claim::upgrade)
    };
    // Back below the whole budget, but the broad queries still have their share of it.
    claims.retain(|claim| claim.place() == Place::Own || claim.number < 44 + 16);
    while claims.len() > 45 {
        let covered = claims.iter().rposition(|it| it.place() == Place::Covered).unwrap();
        claims.remove(covered);
        assert!(!upgrade(&mut claims));
    }
    assert_eq!(slots.figures(), (44, 1, 0));
    let own = claims.iter().position(|it| it.place() == Place::Own).unwrap();
    claims.remove(own);
    assert!(upgrade(&mut claims));
    assert_eq!(slots.figures(), (44, 0, 0));
    claims.extend((100..116).map(|number| claimed(&slots, number, true)));
    assert_eq!(slots.figures(), (60, 0, 0), "as in a new pool");
}

#[test]
fn over_http2_there_is_a_stream_for_each_of_200() {
    let slots = Arc::new(Slots::new(64));
    let mut claims: Vec<Claim> = (0..61).map(|number| claimed(&slots, number, true)).collect();
    let reclaim = |claims: &mut Vec<Claim>| {
        for claim in claims.iter_mut().filter(|claim| claim.revoked().is_cancelled()) {
            *claim = claimed(&slots, claim.number, true);
        }
    };
    reclaim(&mut claims);
    assert_eq!(slots.figures(), (44, 17, 0));
    slots.multiplex(true);
    for claim in &mut claims {
        claim.upgrade();
    }
    claims.extend((61..200).map(|number| claimed(&slots, number, true)));
    assert_eq!(slots.figures(), (200, 0, 0));
    claims.push(claimed(&slots, 200, true));
    reclaim(&mut claims);
    assert_eq!(slots.figures(), (184, 17, 0), "the shares of the others are as they were");
    slots.multiplex(false);
    reclaim(&mut claims);
    assert_eq!(slots.figures(), (44, 157, 0));
}

#[test]
fn when_http2_ends_nodes_and_refused_connections_keep_their_part() {
    let slots = Arc::new(Slots::new(64));
    slots.multiplex(true);
    let mut claims: Vec<Claim> = (0..201).map(|number| claimed(&slots, number, true)).collect();
    assert!(slots.reserve_nodes(CATALOG - 1 + 10));
    slots.make_do(5);
    slots.multiplex(false);
    for claim in claims.iter_mut().filter(|claim| claim.revoked().is_cancelled()) {
        *claim = claimed(&slots, claim.number, true);
    }
    assert_eq!(slots.figures(), (44 - 10 - 5, 201 - 29, 0));
}

#[test]
fn free_connections_go_to_those_in_turn_first() {
    let slots = Arc::new(Slots::new(12));
    let opaque: Vec<Claim> = (0..12).map(|number| claimed(&slots, number, false)).collect();
    let held = slots.figures().0;
    let mut turn = claimed(&slots, 20, false);
    let mut covered = claimed(&slots, 21, true);
    assert_eq!((turn.place(), covered.place()), (Place::RoundRobin, Place::Covered));
    assert_eq!(held, slots.shares.own);
    drop(opaque);
    assert!(!covered.upgrade());
    assert!(turn.upgrade());
    drop(turn);
    assert!(covered.upgrade());
    assert_eq!(slots.figures(), (1, 0, 0));
}

#[test]
fn turns_are_long_for_few_and_short_for_many() {
    let shares = Shares::of(64);
    let got: Vec<u64> =
        [0, 1, 8, 16, 80, 10_000].into_iter().map(|count| shares.turn(count).as_secs()).collect();
    assert_eq!(got, [10, 10, 10, 5, 1, 1]);
}

proptest! {
    /// However watches come and go, no more than the budget's connections are
    /// held, none is forgotten, and an empty pool is as good as new.
    #[test]
    fn claims_are_always_accounted_for(
        steps in proptest::collection::vec((any::<bool>(), any::<bool>(), 0usize..40), 1..300)
    ) {
        let slots = Arc::new(Slots::new(16));
        let mut claims: Vec<Claim> = Vec::new();
        for (number, (come, coverable, at)) in (0u64..).zip(steps) {
            if come {
                claims.push(claimed(&slots, number, coverable));
            } else if !claims.is_empty() {
                let at = at % claims.len();
                claims.swap_remove(at);
                if let Some(claim) = claims.get_mut(at) {
                    claim.upgrade();
                }
            }
            // What a revoked watch does.
            while let Some(at) = claims.iter().position(|claim| claim.revoked().is_cancelled()) {
                let old = claims.swap_remove(at);
                let (number, coverable) = (old.number, old.coverable);
                drop(old);
                claims.push(claimed(&slots, number, coverable));
            }
            let [own, covered, turning] = places(&claims);
            prop_assert_eq!(slots.figures(), (own, covered, turning));
            let limit = if covered + turning > 0 { slots.shares.own } else { slots.shares.total };
            prop_assert!(own <= limit);
        }
        claims.clear();
        prop_assert_eq!(slots.figures(), (0, 0, 0));
        prop_assert_eq!(claimed(&slots, 9999, false).place(), Place::Own);
    }
}

/// Step of a walk through places, by one watch or for all of them.
#[derive(Debug, Clone, Copy)]
enum Step {
    Come { coverable: bool },
    Go,
    Change,
    HandOver,
    TakeUp,
    Upgrade,
    Refused(usize),
    Nodes(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<bool>().prop_map(|coverable| Step::Come { coverable }),
        2 => Just(Step::Go),
        6 => Just(Step::Change),
        4 => Just(Step::HandOver),
        4 => Just(Step::TakeUp),
        4 => Just(Step::Upgrade),
        1 => (0usize..8).prop_map(Step::Refused),
        1 => (0usize..12).prop_map(Step::Nodes),
    ]
}

fn place_of(claim: &Claim) -> Option<Place> {
    (!claim.is_lost()).then(|| claim.place())
}

proptest! {
    /// Whatever happens, a watch changes its place only as a row of the table says, and only by
    /// the step of that row.
    #[test]
    fn every_change_of_place_is_a_row_of_the_table(
        steps in proptest::collection::vec((step(), any::<prop::sample::Index>()), 1..300)
    ) {
        let slots = Arc::new(Slots::new(16));
        let mut claims: Vec<Claim> = Vec::new();
        for (number, (step, index)) in (0u64..).zip(steps) {
            let before: HashMap<u64, Option<Place>> =
                claims.iter().map(|claim| (claim.number, place_of(claim))).collect();
            let at = if claims.is_empty() { 0 } else { index.index(claims.len()) };
            let actor = claims.get(at).map_or(number, |claim| claim.number);
            match (step, claims.get_mut(at)) {
                (Step::Come { coverable }, _) => claims.push(claimed(&slots, number, coverable)),
                (Step::Refused(less), _) => slots.make_do(less),
                (Step::Nodes(count), _) => drop(slots.reserve_nodes(count)),
                (Step::Go, Some(_)) => drop(claims.swap_remove(at)),
                (Step::Change, Some(claim)) => (0..4).for_each(|_| claim.changed()),
                (Step::HandOver, Some(claim)) => drop(claim.hand_over()),
                (Step::TakeUp, Some(claim)) => drop(claim.take_up()),
                (Step::Upgrade, Some(claim)) => drop(claim.upgrade()),
                (_, None) => {}
            }
            for claim in &claims {
                let Some(old) = before.get(&claim.number) else { continue };
                let acts = claim.number == actor;
                let allowed = match (*old, place_of(claim)) {
                    (old, new) if old == new => true,
                    // Revoked: by another's coming, a refusal, or room that nodes need. What was
                    // handed to a watch may be gone again when it takes it up.
                    (Some(Place::Own), None) => true,
                    (Some(Place::Covered), None) => acts && matches!(step, Step::TakeUp),
                    (Some(Place::Own), Some(Place::Covered)) => {
                        acts && matches!(step, Step::HandOver)
                    }
                    (Some(Place::Covered), Some(Place::Own)) => {
                        acts && matches!(step, Step::TakeUp | Step::Upgrade)
                    }
                    (Some(Place::RoundRobin), Some(Place::Own)) => {
                        acts && matches!(step, Step::Upgrade)
                    }
                    _ => false,
                };
                prop_assert!(allowed, "{step:?}: {old:?} became {:?}", place_of(claim));
            }
            // What a revoked watch does: it asks again.
            while let Some(at) = claims.iter().position(Claim::is_lost) {
                let old = claims.swap_remove(at);
                let (number, coverable) = (old.number, old.coverable);
                drop(old);
                claims.push(claimed(&slots, number, coverable));
            }
        }
        claims.clear();
        prop_assert_eq!(slots.figures(), (0, 0, 0));
    }
}

/// Claims of coverable watches in a crowd, as they are when all have found their places.
fn crowd(slots: &Arc<Slots>, count: u64) -> Vec<Claim> {
    let mut claims: Vec<Claim> = (0..count).map(|number| claimed(slots, number, true)).collect();
    for one in &mut claims {
        if one.revoked().is_cancelled() {
            let number = one.number;
            *one = claimed(slots, number, true);
        }
    }
    claims
}

fn first(claims: &[Claim], place: Place) -> usize {
    claims.iter().position(|claim| claim.place() == place).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_hands_its_connection_to_a_busy_one() {
    let slots = Arc::new(Slots::new(12));
    let mut claims = crowd(&slots, 20);
    let before = slots.figures();
    let (quiet, busy) = (first(&claims, Place::Own), first(&claims, Place::Covered));
    assert!(!claims[quiet].hand_over(), "nobody is busy");
    claims[busy].changed();
    claims[busy].changed();
    assert!(!claims[quiet].hand_over(), "two changes are not often");
    claims[busy].changed();
    assert!(claims[quiet].hand_over());
    assert_eq!(claims[quiet].place(), Place::Covered);
    claims[busy].called().await;
    assert!(claims[busy].take_up() && !claims[busy].take_up());
    assert_eq!((claims[busy].place(), slots.figures()), (Place::Own, before));

    // One that is not much busier does not push it out.
    let other = first(&claims, Place::Covered);
    for _ in 0..4 {
        claims[other].changed();
    }
    assert!(!claims[busy].hand_over());
    // Nor one that was busy a while ago, once this one is quiet too.
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert!(!claims[busy].hand_over());
    assert_eq!(slots.figures(), before);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_was_handed_on_is_given_back_by_who_goes() {
    let slots = Arc::new(Slots::new(12));
    let mut claims = crowd(&slots, 20);
    let (own, covered, _) = slots.figures();
    let (quiet, busy) = (first(&claims, Place::Own), first(&claims, Place::Covered));
    for _ in 0..3 {
        claims[busy].changed();
    }
    assert!(claims[quiet].hand_over());
    drop(claims.remove(busy));
    assert_eq!(slots.figures(), (own - 1, covered, 0));
    let next = first(&claims, Place::Covered);
    assert!(claims[next].upgrade());
    assert_eq!(slots.figures(), (own, covered - 1, 0));
}

#[tokio::test(start_paused = true)]
async fn those_that_changed_least_give_way_first() {
    let slots = Arc::new(Slots::new(64));
    let mut claims: Vec<Claim> = (0..60).map(|number| claimed(&slots, number, true)).collect();
    // The youngest, which would be the first to go.
    for one in &mut claims[50..] {
        one.changed();
    }
    claims.push(claimed(&slots, 60, true));
    assert_eq!(places(&claims), [44, 1, 0]);
    assert!(claims[50..60].iter().all(|claim| !claim.revoked().is_cancelled()));
}
