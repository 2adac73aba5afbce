//! `resource-server` among hostile clients: a good one is answered within a second,
//! and the memory comes back.
//!
//! Three kinds of rounds take turns, in an order that the seed gives:
//!
//! | round | hostile clients meanwhile |
//! |---|---|
//! | mixed | send garbage, say nothing, stop in the middle, take no answer, send huge bodies, and hold as many connections at work as they get |
//! | watches | open thousands of watches over a few connections, and leave |
//! | descriptors | say nothing, in a crowd, while the process may open few files |
//!
//! The good client comes from another address. It asks over a new connection each
//! time and over a lasting one, and each step counts by itself. By default a few
//! rounds are run; `scripts/soak hostile` runs ten minutes of them with 40,000
//! watches, in release mode. `SEED` sets another seed than 23, and `WATCHES` another
//! number of watches. They are of the type that the good client writes, and of other
//! names.

mod attackers;
mod good;
mod target;

use std::time::Duration;

use attackers::Attack;
use good::GoodClient;
use target::Target;
use tokio::time::Instant;

/// How long any step of the good client may take.
const LIMIT: Duration = Duration::from_secs(1);
/// How much more memory than before may be in use afterwards, in percent.
const MORE: u64 = 20;
/// How long the server may take to give memory back.
const GIVE_BACK: Duration = Duration::from_mins(1);

/// How much there is to do.
struct Form {
    rounds_for: Duration,
    round: Duration,
    watches: usize,
}

impl Form {
    fn of_environment() -> Self {
        let watches = std::env::var("WATCHES").ok().map(|watches| watches.parse().unwrap());
        if std::env::var_os("SOAK").is_some_and(|value| value == "1") {
            let (rounds_for, round) = (Duration::from_mins(10), Duration::from_secs(20));
            Self { rounds_for, round, watches: watches.unwrap_or(40_000) }
        } else {
            let (rounds_for, round) = (Duration::from_secs(12), Duration::from_secs(4));
            Self { rounds_for, round, watches: watches.unwrap_or(2_000) }
        }
    }
}

fn seed() -> u64 {
    std::env::var("SEED").map_or(23, |seed| seed.parse().unwrap())
}

/// Waits until the server has no more memory than this; gives what it has.
async fn shrinks_to(target: &Target, most: u64) -> Result<u64, String> {
    let begun = Instant::now();
    loop {
        let memory = target.memory();
        if memory <= most {
            return Ok(memory);
        }
        if begun.elapsed() > GIVE_BACK {
            return Err(format!("{memory} KiB are in use, at most {most} KiB are allowed"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures of a long run")]
async fn a_good_client_is_served_among_hostile_ones() {
    let form = Form::of_environment();
    let target = Target::start(&[]).await;
    let before = target.settled_memory().await;
    let good = GoodClient::start(&target, LIMIT);
    let mut random = fastrand::Rng::with_seed(seed());
    let (begun, mut rounds, mut most) = (Instant::now(), 0, before);
    while begun.elapsed() < form.rounds_for || rounds % 3 != 0 {
        let mut kinds = ["mixed", "watches", "descriptors"];
        random.shuffle(&mut kinds);
        for kind in kinds {
            let attack = match kind {
                "mixed" => Attack::mixed(&target, random.fork()),
                "watches" => Attack::watches(&target, form.watches),
                _ => Attack::descriptors(&target, random.fork()),
            };
            let reached = attack.run(form.round).await;
            most = most.max(target.memory());
            reached
                .unwrap_or_else(|what| panic!("round {rounds}, {kind}, seed {}: {what}", seed()));
            attack.leave(&target).await;
            good.check().unwrap_or_else(|slow| {
                panic!("round {rounds}, {kind}, seed {}: {slow}\n{}", seed(), target.log())
            });
            rounds += 1;
        }
    }
    let (steps, slowest, p99) = good.stop().await.unwrap();
    let after = shrinks_to(&target, before + before * MORE / 100).await.unwrap_or_else(|why| {
        panic!("seed {}, before {before} KiB, most {most} KiB: {why}", seed())
    });
    println!(
        "seed {}: {rounds} rounds in {:?}; {steps} steps of the good client, the 99th percentile \
         {p99:?}, the slowest {slowest:?}; memory before {before} KiB, most {most} KiB, after {after} \
         KiB; {} lines in the log",
        seed(),
        begun.elapsed(),
        target.log().lines().count(),
    );
    let log = target.log();
    assert!(!log.contains("panicked"), "{log}");
    // One line for each cause in ten seconds, not one for each connection.
    let complaints = log.lines().filter(|line| line.contains("WARN")).count();
    let tens = usize::try_from(begun.elapsed().as_secs() / 10).unwrap();
    assert!(complaints < 20 + 4 * tens, "{log}");
}

/// Without a limit for each address, one takes every place, and this is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_limits_is_noticed() {
    let target = Target::start(&["--max-connections-per-address", "1000000"]).await;
    let good = GoodClient::start(&target, LIMIT);
    let attack = Attack::work(&target);
    let noticed = async {
        while good.check().is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), noticed).await.unwrap();
    attack.leave(&target).await;
}

/// Memory that is still in use is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_that_stays_is_noticed() {
    let target = Target::start(&[]).await;
    let before = target.settled_memory().await;
    let attack = Attack::watches(&target, 4_000);
    attack.run(Duration::from_secs(2)).await.unwrap();
    let held = target.memory();
    assert!(held > before + before * MORE / 100, "{before} KiB, then {held} KiB");
    attack.leave(&target).await;
}
