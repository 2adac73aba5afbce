//! How long a failover takes with several settings, and which part of it is ours.

use std::time::Duration;

use consul_watch::{Client, QueryOptions, testing::real::Consul};
use cts_ha::Timing;
use futures::future::join_all;

use super::{Run, Signal, now};
use crate::place::{SUITE, quick};

/// The most that our own part of a failover may take, and that a leader's orderly end may
/// add: the pace of tries, and round trips.
const OURS: Duration = Duration::from_millis(500);

/// What became of one leader that was killed.
#[derive(Debug, Clone, Copy)]
struct Failover {
    /// From the kill until another leads.
    whole: Duration,
    /// From the kill until Consul has ended the session.
    session: Duration,
}

impl Failover {
    /// The part that neither the session's end nor the lock-delay explains.
    fn ours(self, lock_delay: Duration) -> Duration {
        self.whole.saturating_sub(self.session + lock_delay)
    }
}

/// Waits until nobody holds the lock, by blocking queries.
async fn freed(client: Client, key: String) -> Duration {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_mins(1));
    loop {
        let answer = client.kv_get(&key, &options).await.unwrap();
        if answer.value.is_none_or(|pair| pair.session.is_none()) {
            return now();
        }
        options.index = answer.meta.index;
    }
}

/// Kills the leader `rounds` times.
async fn failovers(mut run: Run, rounds: usize) -> Vec<Failover> {
    run.launch_all().await;
    let mut found = Vec::new();
    for _round in 0..rounds {
        let old = run.wait_for_leader().await;
        let freed = tokio::spawn(freed(run.client.clone(), run.lock()));
        run.processes[old].signal(Signal::SIGKILL);
        let killed = now();
        run.processes.remove(old);
        run.time("kill", old, killed).await;
        let whole = *run.delays["kill"].last().unwrap();
        let session = freed.await.unwrap().saturating_sub(killed);
        found.push(Failover { whole, session });
        run.launch(old);
    }
    found
}

/// One line of the table in the README.
fn row(version: &str, times: (Duration, Duration), found: &[Failover]) -> String {
    let timing = Timing::new(times.0, times.1).unwrap();
    let seconds = |of: &dyn Fn(&Failover) -> Duration| {
        let mut sorted: Vec<f64> = found.iter().map(|one| of(one).as_secs_f64()).collect();
        sorted.sort_by(f64::total_cmp);
        format!("{:.2} to {:.2} s", sorted[0], sorted[sorted.len() - 1])
    };
    let (whole, session) = (seconds(&|one| one.whole), seconds(&|one| one.session));
    let ours = seconds(&|one| one.ours(times.1));
    format!(
        "| {version} | {:?} | {:?} | {whole} | {session} | {ours} | {:?} | {:?} |",
        times.0,
        times.1,
        timing.lease,
        timing.margin(),
    )
}

/// Prints the table of TTL, lock-delay and failover: the long form has the default
/// settings, the shortest that a server takes by default, and fast ones.
///
/// Case HA36: after a crash of the leader a follower leads within 2 x TTL + lock-delay + 5 s, and
/// runs all tasks once.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "the table is for who runs it")]
async fn a_failover_takes_what_consul_takes_and_little_more() {
    let case = "faults::failover::a_failover_takes_what_consul_takes_and_little_more";
    let long = std::env::var("SOAK").is_ok_and(|soak| soak == "1");
    let (settings, rounds): (&[(u64, u64)], usize) = if long {
        (&[(15_000, 15_000), (10_000, 5_000), (1_500, 1_000)], 5)
    } else {
        (&[(1_500, 1_000)], 1)
    };
    let parts = SUITE.parts("consul", case);
    println!("| Consul | TTL | lock-delay | failover | of which session | ours | lease | margin |");
    println!("|---|---|---|---|---|---|---|---|");
    let measure = async |version: String, path| {
        let consul = Consul::start_with(path, quick()).await.unwrap();
        let runs = settings.iter().map(async |(ttl, delay)| {
            let times = (Duration::from_millis(*ttl), Duration::from_millis(*delay));
            let keys = format!("failover-{ttl}");
            let run = Run::shared(consul.client(), consul.address(), None, times, &keys);
            let found = failovers(run, rounds).await;
            println!("{}", row(&version, times, &found));
            (times, found)
        });
        join_all(runs).await
    };
    for part in &parts {
        for (times, found) in measure(part.version.clone(), &part.path).await {
            for one in found {
                let bound = times.0 * 2 + times.1 + OURS;
                assert!(one.ours(times.1) < OURS, "Consul {}, {times:?}: {one:?}", part.version);
                assert!(one.whole < bound, "Consul {}, {times:?}: {one:?}", part.version);
            }
        }
    }
}
