//! The daemon among faults: a Consul that restarts, networks that are slow or cut, clients that
//! never end their requests, a full disk, no descriptors left, clocks that jump, stops in each
//! phase of a run, and kills. After each of them the infrastructure is what Consul asks for,
//! without a further change: nothing was given up, and no lock is left behind.
//!
//! In its short form each kind of fault comes once, but for those of `SLOW`, which takes about 35 s.
//! `SOAK=1` draws from all of them for thirty minutes, or `SOAK_MINUTES`. `SOAK_SEED` sets the seed:
//! with others the short form takes up to 50 s, and 35 s more where a restart of Consul meets a
//! command that holds a lock there, which then has to expire.

mod disk;
mod site;

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use crate::network::Network;
use site::{Site, Wrapper};

/// In the short form, no restart of Consul meets a command that holds a lock.
const SEED: u64 = 5;
const LONG: Duration = Duration::from_mins(30);
/// How long it may take until all is well again, on a busy machine. A connection that is lost
/// without a word is noticed when its read of Consul is over, which takes a minute.
const SETTLE: Duration = Duration::from_mins(3);

/// What is done to the daemon, while services change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    RestartConsul,
    CrashConsul,
    SlowNetwork,
    CutNetwork,
    LoseConnections,
    ManyClients,
    FullDisk,
    NoDescriptors,
    ClockJump,
    TerminateAtStart,
    TerminateInRun,
    TerminateInApply,
    TerminateTwice,
    Kill,
    KillWithTool,
}

/// Faults whose aftermath takes long, for the long form: the time to live of a lock's session,
/// or the longest read of Consul.
const SLOW: [Fault; 3] = [Fault::LoseConnections, Fault::TerminateTwice, Fault::KillWithTool];

const ALL: [Fault; 15] = [
    Fault::RestartConsul,
    Fault::CrashConsul,
    Fault::SlowNetwork,
    Fault::CutNetwork,
    Fault::LoseConnections,
    Fault::ManyClients,
    Fault::FullDisk,
    Fault::NoDescriptors,
    Fault::ClockJump,
    Fault::TerminateAtStart,
    Fault::TerminateInRun,
    Fault::TerminateInApply,
    Fault::TerminateTwice,
    Fault::Kill,
    Fault::KillWithTool,
];

/// How long a run among faults goes on, and which faults there are.
struct Form {
    seed: u64,
    /// `None` ends when each fault has come once.
    duration: Option<Duration>,
    faults: Vec<Fault>,
}

impl Form {
    fn of_environment() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let seed = number("SOAK_SEED").unwrap_or(SEED);
        if std::env::var("SOAK").is_ok_and(|soak| soak == "1") {
            let duration = number("SOAK_MINUTES").map_or(LONG, Duration::from_mins);
            return Self { seed, duration: Some(duration), faults: ALL.to_vec() };
        }
        let faults = ALL.into_iter().filter(|fault| !SLOW.contains(fault)).collect();
        Self { seed, duration: None, faults }
    }
}

struct Run {
    site: Site,
    random: Rng,
    counts: BTreeMap<Fault, usize>,
    slowest: (Duration, Option<Fault>),
}

impl Run {
    /// One fault among changes, and the wait until all is well.
    ///
    /// # Errors
    ///
    /// What is not well in the end.
    async fn round(&mut self, fault: Fault) -> Result<(), String> {
        *self.counts.entry(fault).or_default() += 1;
        self.changes().await;
        // What is held up meanwhile must not keep anything from its end.
        let held = self.cause(fault).await;
        let took =
            self.site.settles(SETTLE).await.map_err(|found| format!("{fault:?}: {found}"))?;
        drop(held);
        if took > self.slowest.0 {
            self.slowest = (took, Some(fault));
        }
        Ok(())
    }

    async fn changes(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            self.site.change(&mut self.random).await;
        }
    }

    /// Lasts for a while, with changes in it.
    async fn while_it_lasts(&mut self) {
        for _ in 0..self.random.usize(1..4) {
            self.site.change(&mut self.random).await;
            sleep(Duration::from_millis(self.random.u64(200..1500))).await;
        }
    }

    async fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.u64(0..most))).await;
    }

    async fn cause(&mut self, fault: Fault) -> Vec<TcpStream> {
        match fault {
            Fault::RestartConsul => {
                self.pause(500).await;
                self.site.consul.restart().await.unwrap();
            }
            Fault::CrashConsul => {
                self.pause(500).await;
                self.site.consul.kill();
                self.pause(5000).await;
                self.site.consul.restart().await.unwrap();
                self.changes().await;
            }
            Fault::SlowNetwork => {
                let end = Instant::now() + Duration::from_millis(self.random.u64(1000..6000));
                while Instant::now() < end {
                    self.site.network.set(Network::Cut);
                    self.pause(600).await;
                    self.site.network.set(Network::Up);
                    self.pause(60).await;
                    self.site.change(&mut self.random).await;
                }
            }
            Fault::CutNetwork | Fault::LoseConnections => {
                let lost = fault == Fault::LoseConnections;
                self.pause(500).await;
                self.site.network.set(if lost { Network::Lost } else { Network::Cut });
                self.while_it_lasts().await;
                self.site.network.set(Network::Up);
            }
            Fault::ManyClients => {
                let held = self.site.flood(1100).await;
                self.changes().await;
                return held;
            }
            Fault::FullDisk => {
                self.site.disk.fill();
                self.while_it_lasts().await;
                self.site.disk.free();
            }
            Fault::NoDescriptors => {
                let spare = self.random.usize(0..4);
                let limit = self.site.limit_descriptors(spare).await;
                self.while_it_lasts().await;
                self.site.restore_descriptors(limit).await;
            }
            Fault::ClockJump => {
                let seconds = self.random.i64(-200_000..200_000);
                self.site.clocks.set(0, seconds);
                self.changes().await;
            }
            _ => self.end_it(fault).await,
        }
        Vec::new()
    }

    /// Ends the daemon in one of the ways in which it may end, and starts it again.
    async fn end_it(&mut self, fault: Fault) {
        match fault {
            Fault::TerminateAtStart => {
                self.site.end("-TERM").await;
                self.site.start();
                self.pause(1500).await;
                self.site.terminate().await;
            }
            Fault::TerminateInRun => {
                self.pause(2500).await;
                self.site.terminate().await;
            }
            Fault::TerminateInApply => {
                self.site.begin_slow_apply().await;
                self.pause(2000).await;
                self.site.terminate().await;
            }
            Fault::TerminateTwice => {
                self.site.begin_slow_apply().await;
                self.site.signal("-TERM").await;
                self.pause(1500).await;
                self.site.end("-TERM").await;
                self.site.start();
            }
            Fault::Kill => {
                self.pause(3000).await;
                self.site.end("-KILL").await;
                self.changes().await;
                self.site.start();
            }
            _ => {
                self.pause(3000).await;
                self.site.end("-KILL").await;
                self.site.kill_tools();
                self.site.start();
                // A tool that dies between creating a resource and running its provisioner
                // takes the resource for complete, so each is asked for anew.
                self.site.change_everything(&mut self.random).await;
            }
        }
    }
}

#[expect(clippy::print_stdout, reason = "says how much was done, and whoever looks needs the seed")]
fn print(summary: &str) {
    println!("{summary}");
}

/// Runs the daemon among faults for a while, and says what is wrong in the end.
async fn faults(site: Site, form: Form) -> Result<(), String> {
    let seed = form.seed;
    let random = Rng::with_seed(seed);
    let mut run = Run { site, random, counts: BTreeMap::new(), slowest: (Duration::ZERO, None) };
    run.site.fill_catalog(&mut run.random).await;
    run.site.start();
    let at_seed = |found| format!("seed {seed}: {found}");
    run.site.settles(SETTLE).await.map_err(|found| at_seed(format!("at the start: {found}")))?;
    let end = form.duration.map(|duration| Instant::now() + duration);
    'run: loop {
        // All of them, and then all once more in another order.
        let mut next = form.faults.clone();
        run.random.shuffle(&mut next);
        while let Some(fault) = next.pop() {
            run.round(fault).await.map_err(at_seed)?;
            if end.is_some_and(|end| Instant::now() >= end) {
                break 'run;
            }
        }
        if end.is_none() {
            break;
        }
    }
    print(&format!(
        "daemon: seed {seed}, {} changes, {} starts, {} of them by itself, slowest to settle {:?}, {:?}",
        run.site.changes, run.site.starts, run.site.ends_by_itself, run.slowest, run.counts
    ));
    run.site.terminate().await;
    run.site.settles(SETTLE).await.map_err(at_seed).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn infrastructure_is_what_consul_asks_for_after_every_fault() {
    let case = "infrastructure_is_what_consul_asks_for_after_every_fault";
    let Some(site) = Site::new(case, Wrapper::None).await else { return };
    faults(site, Form::of_environment()).await.unwrap();
}

/// The checker is worth something: a tool that applies its first inputs again and again, and
/// says that all is well, is found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_lost_is_found() {
    let case = "a_change_that_is_lost_is_found";
    let Some(mut site) = Site::new(case, Wrapper::Lossy).await else { return };
    let mut random = Rng::with_seed(1);
    site.fill_catalog(&mut random).await;
    site.start();
    site.settles(SETTLE).await.unwrap();
    site.change_everything(&mut random).await;
    let found = site.settles(Duration::from_secs(8)).await.unwrap_err();
    assert!(found.contains("and Consul asks for"), "{found}");
    site.end("-KILL").await;
}
