//! What goes wrong between a program and its Consul: after each fault all
//! watches show the truth again within a stated time, having asked a bounded
//! number of times, and none has said anything twice.
//!
//! The same faults come over the double, in time that is paused, and over a
//! real Consul behind a proxy. There they are short by default; `SOAK=1` makes
//! them as long as an outage is, for each of several seeds.

mod proxy;
mod stages;

use std::{ops::RangeInclusive, time::Duration};

use async_trait::async_trait;
use consul_watch::{
    Backoff, Client, QueryOptions, Watcher,
    client::PutOptions,
    query::{HealthService, KvGet, KvList},
    testing::parts::Part,
    types::{CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service},
};
use futures::future::join_all;
use tokio::time::{Instant, sleep, timeout};

use crate::follower::{Follower, follow};
use stages::{Doubled, RealConsul};

/// A way to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The server is killed and, after the outage, started again on its data.
    Killed,
    /// A backup is restored: older data with lower indexes.
    Restored,
    /// Every request is answered with 500 during the outage.
    Errors,
    /// Connections and requests vanish without a word during the outage.
    HalfOpen,
    /// The token is not accepted during the outage.
    Revoked,
}

const FAULTS: [Fault; 5] =
    [Fault::Killed, Fault::Restored, Fault::Errors, Fault::HalfOpen, Fault::Revoked];

/// A Consul that can fail, and what is to be expected of watches then.
#[async_trait]
trait Stage: Send + Sync {
    /// What watches read with. The fault hits it.
    fn reader(&self) -> Client;
    /// What changes the data, and knows the truth. No fault hits it but a dead server.
    fn writer(&self) -> Client;
    /// Requests of the reader so far.
    fn requests(&self) -> u64;
    async fn begin(&mut self, fault: Fault);
    async fn end(&mut self, fault: Fault);
}

/// How long things take on a stage.
#[derive(Debug, Clone, Copy)]
struct Times {
    outage: Duration,
    /// How long Consul may hold a request.
    wait: Duration,
    /// The reader's limit to an answer beyond the wait.
    slack: Duration,
    /// The longest delay between attempts.
    cap: Duration,
    /// What reading everything again may take.
    work: Duration,
}

impl Times {
    /// The stated bound: until when all watches are right again after the fault has passed.
    fn bound(self, fault: Fault) -> Duration {
        let lost = self.wait + self.wait / 16 + self.slack;
        self.work
            + match fault {
                Fault::Killed | Fault::Errors => self.cap,
                // Consul answers what blocks at once, with the old index. One that would
                // have been answered then anyway is not known to be such, and blocks again.
                Fault::Restored => self.wait + self.wait / 16,
                // A request that was lost at the end of the outage, and a delay after it.
                Fault::HalfOpen => lost + self.cap,
                // Slow on purpose: from 5 s, doubled at each attempt, up to a half on top.
                Fault::Revoked => {
                    (self.outage.max(Duration::from_secs(5)) * 3).min(Duration::from_secs(90))
                }
            }
    }

    /// The most requests of one watch during the outage, without a busy loop.
    fn requests(self, fault: Fault) -> f64 {
        let seconds = self.outage.as_secs_f64();
        match fault {
            // Full jitter halves the delays: 0.25 s, 0.5 s, … up to half of the cap.
            Fault::Killed | Fault::Errors => 8.0 + 4.0 * seconds / self.cap.as_secs_f64(),
            Fault::HalfOpen => 3.0 + 2.0 * seconds / self.slack.as_secs_f64(),
            Fault::Restored => 6.0,
            // At once, then after 5 s, 10 s, 20 s and 40 s, and up to a half more.
            Fault::Revoked => 5.0,
        }
    }
}

const KEYS: u32 = 8;
const SERVICES: u32 = 16;
const OPAQUE: u32 = 3;

fn follow_all(watcher: &Watcher) -> Vec<Box<dyn Follower>> {
    let mut all: Vec<Box<dyn Follower>> = vec![follow(watcher, KvList::new("f/"))];
    all.extend((0..KEYS).map(|number| follow(watcher, KvGet::new(format!("f/{number}")))));
    for number in 0..SERVICES {
        all.push(follow(watcher, HealthService::new(format!("s{number}"))));
    }
    for number in 0..OPAQUE {
        all.push(follow(watcher, HealthService::new(format!("s{number}")).connect()));
    }
    all
}

/// Makes a change, if there is a server to make it.
async fn change(client: &Client, random: &mut fastrand::Rng) {
    let number = random.u32(..SERVICES);
    let (name, node) = (format!("s{number}"), format!("n{}", number % 3));
    match random.u32(..4) {
        0 => {
            let (key, value) = (format!("f/{}", random.u32(..KEYS)), random.u32(..).to_string());
            drop(client.kv_put(&key, value, &PutOptions::default()).await);
        }
        1 => {
            let gone = CatalogDeregistration::service(&node, &name);
            drop(client.catalog_deregister(&gone).await);
        }
        kind => {
            let mut service = Service::new(&name, &name);
            service.port = random.i64(1..5);
            let status = if kind == 2 { HealthStatus::Passing } else { HealthStatus::Critical };
            let registration = CatalogRegistration::new(&node, "10.0.0.1")
                .with_service(service)
                .with_check(HealthCheck::of_service(&name, format!("{name}-check"), status));
            drop(client.catalog_register(&registration).await);
        }
    }
}

/// Lets a fault come and pass while the data changes.
#[expect(clippy::print_stdout, reason = "says what a soak measured")]
async fn survive(stage: &mut dyn Stage, fault: Fault, times: Times, budget: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let writer = stage.writer();
    for _ in 0..SERVICES {
        change(&writer, &mut random).await;
    }
    let watcher = Watcher::builder(stage.reader())
        .connections(budget)
        .wait(times.wait)
        .backoff(Backoff::default().with_cap(times.cap))
        .seed(seed)
        .build();
    let mut all = follow_all(&watcher);
    for follower in &mut all {
        follower.settle(&writer, times.work).await;
    }
    let before = stage.requests();
    stage.begin(fault).await;
    let begun = Instant::now();
    while begun.elapsed() < times.outage {
        if fault != Fault::Killed {
            change(&writer, &mut random).await;
        }
        sleep(times.outage / 8).await;
    }
    let requests = stage.requests() - before;
    // Its own request, and its part of the broad ones.
    let most = times.requests(fault) * f64::from(u32::try_from(all.len()).unwrap());
    let asked = f64::from(u32::try_from(requests).unwrap());
    assert!(asked <= most, "{fault:?}: {requests} requests, at most {most} are due");
    stage.end(fault).await;
    let healed = Instant::now();
    for _ in 0..4 {
        change(&writer, &mut random).await;
    }
    let bound = times.bound(fault);
    for follower in &mut all {
        follower.settle(&writer, bound.saturating_sub(healed.elapsed())).await;
    }
    let took = healed.elapsed();
    println!(
        "{fault:?}, {budget} connections, seed {seed}: {requests} requests by {} watches in {:?}, \
         right after {:.1} s of {:.1} s",
        all.len(),
        times.outage,
        took.as_secs_f64(),
        bound.as_secs_f64()
    );
    watcher.shutdown().await;
    for follower in all {
        follower.finish().await;
    }
}

/// A watch each, and many over few connections.
const BUDGETS: [usize; 2] = [64, 12];

const OUTAGE: Duration = Duration::from_mins(1);

/// The crate's defaults, with an outage of a minute.
const DEFAULTS: Times = Times {
    outage: OUTAGE,
    wait: Duration::from_mins(1),
    slack: Duration::from_secs(10),
    cap: Duration::from_mins(1),
    work: Duration::from_secs(5),
};

async fn on_the_double(fault: Fault) {
    for seed in 1..=3 {
        for budget in BUDGETS {
            let mut stage = Doubled::new(seed);
            survive(&mut stage, fault, DEFAULTS, budget, seed).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_killed_server_is_followed_again() {
    on_the_double(Fault::Killed).await;
}

#[tokio::test(start_paused = true)]
async fn an_index_that_is_reset_loses_nothing() {
    on_the_double(Fault::Restored).await;
}

#[tokio::test(start_paused = true)]
async fn a_minute_of_500s_is_survived() {
    on_the_double(Fault::Errors).await;
}

#[tokio::test(start_paused = true)]
async fn half_open_connections_are_given_up() {
    on_the_double(Fault::HalfOpen).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_and_restored_is_used_again() {
    on_the_double(Fault::Revoked).await;
}

/// All faults over a real Consul.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_of_a_real_consul() {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    let short = Times {
        outage: Duration::from_secs(2),
        wait: Duration::from_secs(2),
        slack: Duration::from_secs(1),
        cap: Duration::from_secs(2),
        work: Duration::from_secs(10),
    };
    let long = Times {
        outage: OUTAGE,
        wait: Duration::from_secs(20),
        slack: Duration::from_secs(5),
        ..short
    };
    let (times, seeds) = if soak { (long, 1..=3) } else { (short, 1..=1) };
    let parts = RealConsul::parts("faults_of_a_real_consul");
    join_all(parts.iter().map(|part| faults_of(part, times, seeds.clone(), soak))).await;
}

async fn faults_of(part: &Part, times: Times, seeds: RangeInclusive<u64>, soak: bool) {
    let mut stage = RealConsul::start(part, times.slack).await;
    for seed in seeds {
        for (at, fault) in FAULTS.into_iter().enumerate() {
            for budget in BUDGETS {
                if soak || budget == BUDGETS[at % 2] {
                    survive(&mut stage, fault, times, budget, seed).await;
                }
            }
        }
    }
}

/// One subscriber reads nothing while the others follow: it holds nobody up, and
/// sees the newest when it looks.
async fn outrun_a_slow_consumer(stage: &dyn Stage, limit: Duration) {
    const CHANGES: u64 = 60;
    let (writer, reader) = (stage.writer(), stage.reader());
    let watcher = Watcher::new(reader);
    let mut slow = watcher.watch(KvGet::new("slow"));
    let mut quick = slow.clone();
    timeout(limit, quick.ready()).await.unwrap().unwrap();
    let before = stage.requests();
    for number in 0..CHANGES {
        writer.kv_put("slow", number.to_string(), &PutOptions::default()).await.unwrap();
        let wanted = number.to_string();
        let seen = async {
            loop {
                let item = quick.changed().await.unwrap().data;
                if item.as_ref().as_ref().and_then(|pair| pair.text()) == Some(&*wanted) {
                    return;
                }
            }
        };
        timeout(limit, seen).await.unwrap();
    }
    assert!(stage.requests() - before <= CHANGES + 2, "one request for each change");
    let newest = timeout(limit, slow.changed()).await.unwrap().unwrap();
    let last = (CHANGES - 1).to_string();
    assert_eq!(newest.data.as_ref().as_ref().and_then(|pair| pair.text()), Some(&*last));
    assert!(newest.seq > CHANGES, "the gap tells what was missed: {}", newest.seq);
    watcher.shutdown().await;
    let end = timeout(limit, slow.changed()).await.unwrap();
    assert!(end.unwrap_err().is_fatal(), "nothing old is left");
}

/// Spec: CW33
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_holds_nobody_up() {
    outrun_a_slow_consumer(&Doubled::new(1), DEFAULTS.work).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_consumer_holds_nobody_up_with_a_real_consul() {
    let case = "a_slow_consumer_holds_nobody_up_with_a_real_consul";
    for part in RealConsul::parts(case) {
        let stage = RealConsul::start(&part, Duration::from_secs(10)).await;
        outrun_a_slow_consumer(&stage, Duration::from_secs(20)).await;
    }
}

/// A crowd of answers at once opens no second crowd of connections, which would
/// bring the sum past what Consul allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_at_once_reuse_their_connections() {
    for part in RealConsul::parts("answers_that_come_at_once_reuse_their_connections") {
        let stage = RealConsul::start(&part, Duration::from_secs(10)).await;
        a_crowd_of_answers(&stage).await;
    }
}

async fn a_crowd_of_answers(stage: &RealConsul) {
    const VIEWS: u32 = 100;
    const BUDGET: usize = 104;
    let writer = stage.writer();
    let watcher = Watcher::builder(stage.reader()).connections(BUDGET).build();
    // All wait for the same key, each in its own way.
    let mut all: Vec<_> =
        (0..VIEWS).map(|number| watcher.watch(KvGet::new("f").options(near(number)))).collect();
    for round in 0..5 {
        let value = round.to_string();
        writer.kv_put("f", value.clone(), &PutOptions::default()).await.unwrap();
        for watch in &mut all {
            let seen = async {
                loop {
                    let item = watch.changed().await.unwrap().data;
                    if item.as_ref().as_ref().and_then(|pair| pair.text()) == Some(&*value) {
                        return;
                    }
                }
            };
            timeout(DEFAULTS.wait, seen).await.unwrap();
        }
    }
    assert!(stage.most_connections() <= BUDGET, "{} connections", stage.most_connections());
    watcher.shutdown().await;
}

/// Options that make one query another one, and change nothing for KV.
fn near(number: u32) -> QueryOptions {
    let mut options = QueryOptions::default();
    options.near = Some(format!("n{number}"));
    options
}
