//! Three processes elect a leader while they, their clocks, the network and
//! Consul fail at random; a checker judges what they believed and wrote.

mod checker;
mod child;
mod proxy;

use std::{
    collections::BTreeMap,
    fmt,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use consul_watch::{Clock as _, QueryOptions, SystemClock, WriteOptions, testing::real::Consul};
use fastrand::Rng;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::place::{SUITE, eventually, quick};
use checker::{History, Line, What};
use child::{ROLE, Role};
use proxy::{Network, Proxy};

const TTL: Duration = Duration::from_millis(1_500);
const LOCK_DELAY: Duration = Duration::from_secs(1);
const IDS: [&str; 3] = ["one", "two", "three"];

/// How long nobody may lead.
fn bound() -> Duration {
    TTL * 2 + LOCK_DELAY + Duration::from_secs(5)
}

/// The other side of this module's tests; does nothing in a run of the suite.
#[tokio::test]
async fn a_process_of_the_run() {
    if let Ok(role) = std::env::var(ROLE) {
        let role: Role = serde_json::from_str(&role).unwrap();
        child::play(role).await;
    }
}

/// What is done to the run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Kill,
    Terminate,
    Pause(Duration),
    Network(Network, Duration),
    RestartConsul { crash: bool },
    DestroySession,
    SlowClock(f64, Duration),
    Suspended(Duration),
}

impl Fault {
    fn random(random: &mut Rng) -> Self {
        let mut time = |most: u64| Duration::from_millis(random.u64(100..most));
        let (pause, cut, slow, jump) = (time(5_000), time(5_000), time(3_000), time(3_000));
        match random.u8(0..100) {
            0..18 => Self::Kill,
            18..30 => Self::Terminate,
            30..48 => Self::Pause(pause),
            48..58 => Self::Network(Network::Cut, cut),
            58..68 => Self::Network(Network::Lost, cut),
            68..76 => Self::RestartConsul { crash: random.bool() },
            76..84 => Self::DestroySession,
            84..92 => Self::SlowClock(0.5 + random.f64() / 2.0, slow),
            _ => Self::Suspended(jump),
        }
    }
}

/// A process that is gone when the test is.
struct Process {
    child: Child,
}

impl Process {
    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    fn tell(&mut self, line: &str) {
        let mut stdin = self.child.stdin.as_ref().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

struct Run {
    consul: Consul,
    folder: TempDir,
    proxies: BTreeMap<&'static str, Proxy>,
    processes: BTreeMap<&'static str, Process>,
    history: History,
    /// How long it took until another led, by what ended the leader.
    delays: BTreeMap<&'static str, Vec<Duration>>,
    stubborn: bool,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn now() -> Duration {
    SystemClock.monotonic()
}

impl Run {
    async fn start(consul: Consul, stubborn: bool) -> Self {
        let mut run = Self {
            proxies: BTreeMap::new(),
            consul,
            folder: tempfile::tempdir().unwrap(),
            processes: BTreeMap::new(),
            history: History::default(),
            delays: BTreeMap::new(),
            stubborn,
        };
        for id in IDS {
            run.proxies.insert(id, Proxy::start(run.consul.address()).await);
            run.launch(id);
        }
        run.wait_for_leader().await;
        run
    }

    fn log(&self, id: &str) -> PathBuf {
        self.folder.path().join(id)
    }

    fn launch(&mut self, id: &'static str) {
        let role = Role {
            id: id.to_owned(),
            consul: self.proxies[id].address.to_string(),
            key: "faults/leader".to_owned(),
            writes: "faults/writes".to_owned(),
            log: self.log(id),
            ttl: TTL,
            lock_delay: LOCK_DELAY,
            stubborn: self.stubborn,
        };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "faults::a_process_of_the_run", "--nocapture"])
            .env(ROLE, serde_json::to_string(&role).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.processes.insert(id, Process { child });
    }

    /// Who says that it leads, right now.
    fn leader(&self) -> Option<&'static str> {
        IDS.into_iter().find(|id| {
            let Some(line) = self.last_line(id) else { return false };
            let fresh = now().saturating_sub(line.at) < Duration::from_millis(200);
            fresh && matches!(line.what, What::Leads { .. })
        })
    }

    fn last_line(&self, id: &str) -> Option<Line> {
        let mut file = std::fs::File::open(self.log(id)).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(400))).ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        // What a write in between has not ended does not count.
        let whole = text.rsplit_once('\n')?.0;
        whole
            .lines()
            .rev()
            .filter_map(Line::parse)
            .find(|line| !matches!(line.what, What::Wrote(_)))
    }

    async fn wait_for_leader(&self) -> &'static str {
        eventually("somebody leads", Duration::from_mins(1), async || self.leader().is_some())
            .await;
        self.leader().unwrap_or("one")
    }

    /// Notes how long it takes until another leads.
    async fn time(&mut self, what: &'static str, old: &'static str, since: Duration) {
        eventually("another leads", Duration::from_mins(1), async || {
            self.leader().is_some_and(|leader| leader != old)
        })
        .await;
        self.delays.entry(what).or_default().push(now().saturating_sub(since));
    }

    async fn suffer(&mut self, fault: Fault, random: &mut Rng) {
        let leader = self.wait_for_leader().await;
        let victim = if random.u8(0..10) < 8 { leader } else { IDS[random.usize(0..3)] };
        let leads = victim == leader;
        match fault {
            Fault::Kill => {
                self.processes[victim].signal(Signal::SIGKILL);
                let killed = now();
                self.processes.remove(victim);
                self.history.deaths.push((victim.to_owned(), killed));
                if leads {
                    self.time("kill", victim, killed).await;
                }
                self.launch(victim);
            }
            Fault::Terminate => {
                self.processes[victim].signal(Signal::SIGTERM);
                let told = now();
                if leads {
                    self.time("graceful stop", victim, told).await;
                }
                // Closing its input ends it, if the signal has not.
                let mut process = self.processes.remove(victim).unwrap();
                drop(process.child.stdin.take());
                tokio::task::spawn_blocking(move || process.child.wait()).await.unwrap().unwrap();
                self.launch(victim);
            }
            Fault::Pause(time) => {
                self.processes[victim].signal(Signal::SIGSTOP);
                sleep(time).await;
                self.processes[victim].signal(Signal::SIGCONT);
            }
            Fault::Network(network, time) => {
                self.proxies[victim].set(network);
                sleep(time).await;
                self.proxies[victim].set(Network::Up);
            }
            Fault::RestartConsul { crash } => {
                let from = now();
                if crash {
                    self.consul.kill();
                }
                self.consul.restart().await.unwrap();
                self.history.outages.push((from, now()));
            }
            Fault::DestroySession => {
                let client = self.consul.client();
                let read = client.kv_get("faults/leader", &QueryOptions::default()).await.unwrap();
                if let Some(session) = read.value.and_then(|pair| pair.session) {
                    client.session_destroy(&session, &WriteOptions::default()).await.unwrap();
                }
            }
            Fault::SlowClock(rate, time) => {
                self.tell(victim, &format!("rate {rate}"));
                sleep(time).await;
                self.tell(victim, "rate 1");
            }
            Fault::Suspended(time) => self.tell(victim, &format!("jump {}", time.as_millis())),
        }
        self.wait_for_leader().await;
        // Leadership is settled now and then, and now and then it is not.
        sleep(Duration::from_millis(random.u64(0..800))).await;
    }

    fn tell(&mut self, id: &str, line: &str) {
        self.processes.get_mut(id).unwrap().tell(line);
    }

    /// Ends all processes and gathers what they did.
    async fn end(mut self) -> (History, BTreeMap<&'static str, Vec<Duration>>) {
        let ended = now();
        for id in IDS {
            self.processes.remove(id);
            self.history.deaths.push((id.to_owned(), ended));
            let text = std::fs::read_to_string(self.log(id)).unwrap();
            let lines = text.lines().filter_map(Line::parse).collect();
            self.history.logs.insert(id.to_owned(), lines);
        }
        let client = self.consul.client();
        let pairs = client.kv_list("faults/writes/", &QueryOptions::default()).await.unwrap().value;
        for pair in pairs {
            let mut parts = pair.key.split('/').skip(2).map(|part| part.parse::<u64>().unwrap());
            let (term, number) = (parts.next().unwrap(), parts.next().unwrap());
            assert_eq!(pair.create_index, pair.modify_index, "each write is a key of its own");
            self.history.writes.push((term, number, pair.create_index));
        }
        (self.history, self.delays)
    }
}

fn summary(delays: &BTreeMap<&'static str, Vec<Duration>>) -> String {
    let lines = delays.iter().map(|(what, delays)| {
        let mut sorted = delays.clone();
        sorted.sort();
        let (median, most) = (sorted[sorted.len() / 2], sorted[sorted.len() - 1]);
        format!("failover after {what}: median {median:?}, at most {most:?}, of {}", sorted.len())
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// How many faults, and the seed: `SOAK=1` makes it long, `HA_SEED` repeats one.
fn extent() -> (usize, u64) {
    let seed = std::env::var("HA_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("HA_FAULTS").ok().and_then(|count| count.parse().ok());
    let long = std::env::var("SOAK").is_ok_and(|soak| soak == "1");
    let usual = if long { 100 } else { 10 };
    (count.unwrap_or(usual), seed.unwrap_or_else(|| Rng::new().u64(0..1_000_000)))
}

/// Spec: HA36, HA39
#[tokio::test]
#[expect(clippy::print_stdout, reason = "the seed and the figures are for who runs it")]
async fn never_two_leaders_whatever_fails() {
    let case = "faults::never_two_leaders_whatever_fails";
    let (count, seed) = extent();
    for part in SUITE.parts("consul", case) {
        println!("Consul {}: {count} faults, HA_SEED={seed}", part.version);
        let mut random = Rng::with_seed(seed);
        let consul = Consul::start_with(&part.path, quick()).await.unwrap();
        let mut run = Run::start(consul, false).await;
        for number in 0..count {
            let fault = Fault::random(&mut random);
            println!("{number}: {fault:?}");
            run.suffer(fault, &mut random).await;
        }
        let (history, delays) = run.end().await;
        println!(
            "{} leaderships, {} writes\n{}",
            history.beliefs().len(),
            history.writes.len(),
            summary(&delays)
        );
        let violations = history.violations(bound());
        assert!(
            violations.is_empty(),
            "Consul {}, HA_SEED={seed}\n{}",
            part.version,
            violations.join("\n")
        );
        assert!(history.writes.len() > count, "the leaders have written");
    }
}

/// The checker finds a second leader and its writes in a real run.
#[tokio::test]
async fn a_planted_second_leader_is_found() {
    let case = "faults::a_planted_second_leader_is_found";
    let Some(part) = SUITE.part("consul", case) else { return };
    let consul = Consul::start_with(&part.path, quick()).await.unwrap();
    let mut run = Run::start(consul, true).await;
    let old = run.wait_for_leader().await;
    run.proxies[old].set(Network::Lost);
    eventually("another leads as well", Duration::from_secs(30), async || {
        IDS.into_iter().any(|id| {
            id != old
                && run.last_line(id).is_some_and(|line| matches!(line.what, What::Leads { .. }))
        })
    })
    .await;
    // Back on the network it writes without asking.
    run.proxies[old].set(Network::Up);
    sleep(Duration::from_secs(1)).await;
    run.stubborn = false;
    let (history, _) = run.end().await;
    let violations = history.violations(bound()).join("\n");
    assert!(violations.contains("two leaders"), "{violations}");
    assert!(violations.contains("after term"), "{violations}");
}

/// Spec: HA37
#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures are for who runs it")]
async fn a_leader_that_is_stopped_is_followed_within_a_second() {
    let case = "faults::a_leader_that_is_stopped_is_followed_within_a_second";
    let Some(part) = SUITE.part("consul", case) else { return };
    let consul = Consul::start_with(&part.path, quick()).await.unwrap();
    let mut run = Run::start(consul, false).await;
    // So that the others wait for the lock.
    sleep(TTL).await;
    let mut random = Rng::with_seed(1);
    for _round in 0..3 {
        while run.leader().is_none() {
            sleep(Duration::from_millis(20)).await;
        }
        run.suffer(Fault::Terminate, &mut random).await;
        sleep(TTL).await;
    }
    let (history, delays) = run.end().await;
    println!("{}", summary(&delays));
    assert_eq!(history.violations(bound()), Vec::<String>::new());
    let stops = delays.get("graceful stop").cloned().unwrap_or_default();
    assert!(!stops.is_empty());
    assert!(stops.iter().all(|delay| *delay < Duration::from_secs(1)), "{stops:?}");
}
