//! Tests of the plan, with answers and failures in every order.

use proptest::prelude::*;

use super::*;

fn settings() -> Settings {
    Settings {
        rate_limit: RateLimit::default(),
        backoff: Backoff::default(),
        poll_interval: Duration::from_secs(15),
        seed: 7,
    }
}

fn plan(mode: Mode) -> Plan {
    Plan::new(mode, &settings())
}

fn index(index: u64) -> QueryMeta {
    QueryMeta { index: Some(index), ..QueryMeta::default() }
}

/// Consul held the request for a minute.
const BLOCKED: Timing =
    Timing { started: Duration::ZERO, ended: Duration::from_mins(1), wait: Duration::from_mins(1) };

fn status(code: u16) -> Error {
    Error::Status {
        operation: "x",
        status: StatusCode::from_u16(code).unwrap(),
        message: String::new(),
        retry_after: None,
    }
}

fn delay(step: Step) -> Duration {
    match step.next {
        Next::After(delay) => delay,
        Next::End => panic!("the watch ended"),
    }
}

#[test]
fn the_first_answer_is_published_and_its_index_blocks_the_next_read() {
    let mut plan = plan(Mode::Index);
    assert_eq!(plan.position(), &Position::Start);
    let step = plan.answered(&index(5), BLOCKED, || false);
    assert_eq!(step, Step { publish: Publish::Data, next: Next::After(Duration::ZERO) });
    assert_eq!(plan.position(), &Position::Index(5));
}

#[test]
fn the_same_index_with_other_data_is_a_new_history() {
    for (same, publish) in [(true, Publish::Nothing), (false, Publish::Data)] {
        let mut plan = plan(Mode::Index);
        plan.answered(&index(5), BLOCKED, || false);
        assert_eq!(plan.answered(&index(5), BLOCKED, || same).publish, publish);
        assert_eq!(plan.position(), &Position::Index(5));
    }
}

#[test]
fn a_larger_index_with_equal_data_only_moves_the_position() {
    let mut plan = plan(Mode::Index);
    plan.answered(&index(5), BLOCKED, || false);
    assert_eq!(plan.answered(&index(9), BLOCKED, || true).publish, Publish::Nothing);
    assert_eq!(plan.position(), &Position::Index(9));
}

#[test]
fn an_index_that_goes_backwards_starts_again_and_publishes_only_a_difference() {
    for (same, publish) in [(true, Publish::Nothing), (false, Publish::Data)] {
        let mut plan = plan(Mode::Index);
        plan.answered(&index(50), BLOCKED, || false);
        assert_eq!(plan.answered(&index(7), BLOCKED, || false).publish, Publish::Nothing);
        assert_eq!(plan.position(), &Position::Start);
        assert_eq!(plan.answered(&index(7), BLOCKED, || same).publish, publish);
        assert_eq!(plan.position(), &Position::Index(7));
    }
}

/// Spec: CW37
#[test]
fn an_error_starts_again_and_a_request_fault_ends_the_watch() {
    let mut plan = plan(Mode::Index);
    plan.answered(&index(5), BLOCKED, || false);
    let step = plan.failed(&status(500));
    assert_eq!(step.publish, Publish::Error);
    assert!(delay(step) <= Duration::from_millis(500));
    assert_eq!(plan.position(), &Position::Start);
    // The same index after an error is compared: the server may be another one.
    assert_eq!(plan.answered(&index(5), BLOCKED, || false).publish, Publish::Data);
    for code in [400, 404, 405, 301] {
        assert_eq!(plan.failed(&status(code)), Step { publish: Publish::Error, next: Next::End });
    }
}

/// Spec: CW22
#[test]
fn delays_grow_until_any_answer_comes_even_without_a_change() {
    let mut settings = settings();
    settings.backoff = Backoff::default().with_jitter(Jitter::None);
    let mut plan = Plan::new(Mode::Index, &settings);
    plan.answered(&index(5), BLOCKED, || false);
    let delays: Vec<u128> = (0..9).map(|_| delay(plan.failed(&status(503))).as_millis()).collect();
    assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
    assert_eq!(plan.answered(&index(5), BLOCKED, || true).publish, Publish::Nothing);
    assert_eq!(delay(plan.failed(&status(503))), Duration::from_millis(500));
}

#[test]
fn a_denial_is_told_once_and_retried_slowly() {
    let mut plan = plan(Mode::Index);
    let step = plan.failed(&status(403));
    assert_eq!(step.publish, Publish::Error);
    assert!(delay(step) >= Duration::from_secs(5));
    for _ in 0..20 {
        let step = plan.failed(&status(403));
        assert_eq!(step.publish, Publish::Nothing);
        assert!(delay(step) >= Duration::from_secs(10) && delay(step) <= Duration::from_secs(90));
    }
    plan.answered(&index(5), BLOCKED, || false);
    assert_eq!(plan.failed(&status(403)).publish, Publish::Error);
}

#[test]
fn an_unreadable_answer_is_retried_after_half_a_minute() {
    let mut plan = plan(Mode::Index);
    let error = Error::Decode { operation: "x", source: "not JSON".into() };
    let step = plan.failed(&error);
    assert_eq!(step.publish, Publish::Error);
    assert!(delay(step) >= Duration::from_secs(30));
}

#[test]
fn a_proxys_retry_after_is_honoured() {
    let mut plan = plan(Mode::Index);
    let error = Error::Status {
        operation: "x",
        status: StatusCode::TOO_MANY_REQUESTS,
        message: String::new(),
        retry_after: Some(Duration::from_secs(20)),
    };
    assert_eq!(delay(plan.failed(&error)), Duration::from_secs(20));
}

#[test]
fn without_an_index_the_read_is_polled() {
    let mut plan = plan(Mode::Index);
    let step = plan.answered(&QueryMeta::default(), BLOCKED, || false);
    assert_eq!(step.publish, Publish::Data);
    assert!(
        delay(step) >= Duration::from_millis(13_500)
            && delay(step) <= Duration::from_millis(16_500)
    );
    assert_eq!(plan.position(), &Position::Start);
}

#[test]
fn hashes_and_event_indexes_have_no_order() {
    let hash = |text: &str| QueryMeta { content_hash: Some(text.into()), ..QueryMeta::default() };
    let mut hashed = plan(Mode::Hash);
    hashed.answered(&hash("b"), BLOCKED, || false);
    assert_eq!(hashed.answered(&hash("b"), BLOCKED, || false).publish, Publish::Nothing);
    assert_eq!(hashed.answered(&hash("a"), BLOCKED, || false).publish, Publish::Data);
    assert_eq!(hashed.position(), &Position::Hash("a".into()));

    let mut events = plan(Mode::Event);
    events.answered(&index(50), BLOCKED, || false);
    assert_eq!(events.answered(&index(7), BLOCKED, || false).publish, Publish::Data);
    assert_eq!(events.position(), &Position::Index(7));
}

#[test]
fn a_polled_read_never_blocks() {
    let mut plan = plan(Mode::Polled(Duration::from_secs(2)));
    for _ in 0..5 {
        let step = plan.answered(&index(9), BLOCKED, || true);
        assert_eq!(step.publish, Publish::Nothing);
        assert!(
            delay(step) >= Duration::from_millis(1800)
                && delay(step) <= Duration::from_millis(2200)
        );
        assert_eq!(plan.position(), &Position::Start);
    }
}

/// As Consul 1.8 answers all that block when a backup is restored.
#[test]
fn the_same_index_before_its_time_is_not_blocked_on_again() {
    let early = Timing { ended: Duration::from_secs(5), ..BLOCKED };
    for (mode, start) in [(Mode::Index, true), (Mode::Event, false)] {
        let mut plan = plan(mode);
        plan.answered(&index(5), BLOCKED, || false);
        plan.answered(&index(5), BLOCKED, || false);
        assert_eq!(plan.position(), &Position::Index(5));
        let step = plan.answered(&index(5), early, || panic!("compared"));
        assert_eq!(step.publish, Publish::Nothing);
        assert_eq!(*plan.position() == Position::Start, start, "{mode:?}");
    }
}

#[test]
fn an_index_that_goes_backwards_begins_another_history_but_not_one_of_events() {
    let lower = |mode, fails| {
        let mut plan = plan(mode);
        plan.answered(&index(50), BLOCKED, || false);
        if fails {
            plan.failed(&status(500));
        }
        let before = plan.history();
        while plan.answered(&index(20), BLOCKED, || false).publish != Publish::Data {}
        let after = plan.history();
        plan.answered(&index(30), BLOCKED, || false);
        assert_eq!(plan.history(), after);
        (before, after)
    };
    assert_eq!(lower(Mode::Index, false), (1, 2));
    assert_eq!(lower(Mode::Index, true), (1, 2), "also when a failure came in between");
    assert_eq!(lower(Mode::Event, false), (1, 1));
}

fn streamed(at: u64) -> QueryMeta {
    QueryMeta { query_backend: Some("streaming".into()), ..index(at) }
}

/// Consul's two backends count differently for a service that does not exist.
#[test]
fn a_lower_index_of_the_other_backend_is_no_new_history() {
    let mut plan = plan(Mode::Index);
    plan.answered(&index(99), BLOCKED, || false);
    // Once it is looked into: this could be a restored server.
    assert_eq!(plan.answered(&streamed(36), BLOCKED, || true).publish, Publish::Nothing);
    assert_eq!(plan.position(), &Position::Start);
    assert_eq!(plan.answered(&index(99), BLOCKED, || true).publish, Publish::Nothing);
    for _ in 0..3 {
        assert_eq!(plan.answered(&streamed(36), BLOCKED, || true).publish, Publish::Nothing);
        assert_eq!(plan.position(), &Position::Index(36));
        assert!(!plan.is_doubtful());
    }
    assert_eq!(plan.history(), 1);
    // After a failure the first backend answers, at an index that has grown.
    plan.failed(&status(500));
    plan.answered(&index(120), BLOCKED, || true);
    assert_eq!(plan.answered(&streamed(36), BLOCKED, || true).publish, Publish::Nothing);
    assert_eq!((plan.position(), plan.history()), (&Position::Index(36), 1));
    // The data say that something happened: that is looked into.
    plan.failed(&status(500));
    plan.answered(&index(130), BLOCKED, || true);
    plan.answered(&streamed(36), BLOCKED, || false);
    assert_eq!(plan.position(), &Position::Start);
}

#[test]
fn a_lower_index_of_the_same_backend_is_one_new_history() {
    let mut plan = plan(Mode::Index);
    plan.answered(&index(50), BLOCKED, || false);
    plan.answered(&streamed(60), BLOCKED, || false);
    plan.answered(&streamed(40), BLOCKED, || true);
    assert_eq!((plan.position(), plan.history()), (&Position::Start, 2));
    // The other one is lower, too: it is the same event.
    plan.answered(&index(40), BLOCKED, || true);
    assert_eq!(plan.history(), 2);
    plan.failed(&status(500));
    plan.answered(&index(30), BLOCKED, || true);
    assert_eq!(plan.history(), 3);
}

#[test]
fn the_first_read_must_be_confirmed() {
    let mut plan = plan(Mode::Index);
    assert!(plan.is_doubtful());
    plan.answered(&index(50), BLOCKED, || false);
    assert!(!plan.is_doubtful());
}

proptest! {
    /// Whatever a server answers, an index of zero is never sent and time is
    /// always taken between requests that do not block.
    #[test]
    fn no_sequence_of_answers_makes_a_watch_run_hot(
        answers in proptest::collection::vec((0u64..20, 0u8..6, any::<bool>()), 1..200)
    ) {
        let mut plan = plan(Mode::Index);
        let (mut now, mut requests) = (Duration::ZERO, 0u32);
        for (at, kind, same) in answers {
            let timing = Timing { started: now, ended: now + Duration::from_millis(1), wait: Duration::from_mins(1) };
            let step = match kind {
                0 => plan.failed(&status(500)),
                1 => plan.failed(&status(403)),
                2 => plan.answered(&QueryMeta::default(), timing, || same),
                _ => plan.answered(&index(at.max(1)), timing, || same),
            };
            prop_assert_ne!(plan.position(), &Position::Index(0));
            now = timing.ended + delay(step);
            if kind > 2 {
                requests += 1;
            }
        }
        prop_assert!(now + Duration::from_millis(250) >= Duration::from_millis(100) * requests.saturating_sub(2), "{requests} in {now:?}");
    }
}
