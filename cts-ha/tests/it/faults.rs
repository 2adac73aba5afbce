//! Three processes elect a leader while they, their clocks, the network and
//! Consul fail at random; a checker judges what they believed, did and wrote.

mod checker;
mod child;
mod failover;
mod proxy;
mod wire;

use std::{
    collections::BTreeMap,
    fmt,
    io::{Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use consul_watch::{
    Client, Clock as _, QueryOptions, SystemClock, WriteOptions,
    testing::{parts::Part, real::Consul},
};
use fastrand::Rng;
use futures::future::join_all;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::place::{SUITE, eventually, quick};
use checker::{History, Line, What};
use child::{Plant, ROLE, Role};
use proxy::{Network, Proxy};
use wire::Mishap;

const TTL: Duration = Duration::from_millis(1_500);
const LOCK_DELAY: Duration = Duration::from_secs(1);
const IDS: [&str; 3] = ["one", "two", "three"];

/// The delay of late answers: longer than leases and sessions last.
const LATE: Duration = Duration::from_secs(4);

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
    RestartConsul {
        crash: bool,
    },
    DestroySession,
    SlowClock(f64, Duration),
    Suspended(Duration),
    /// A loss or, in an orderly way, an end, and the work goes on for so long.
    SlowStop {
        orderly: bool,
        work: Duration,
    },
    /// The process stands still between the check of its leadership and a write.
    PauseBeforeWrite(Duration),
    /// Consul has carried out a write, and the answer does not come.
    LostAnswer,
    /// Consul answers after [`LATE`], for so long.
    LateAnswers(Duration),
}

impl Fault {
    fn random(random: &mut Rng) -> Self {
        let mut time = |most: u64| Duration::from_millis(random.u64(100..most));
        let (pause, cut, slow, jump) = (time(5_000), time(5_000), time(3_000), time(3_000));
        let (work, late) = (time(2_000), time(4_000));
        match random.u8(0..100) {
            0..12 => Self::Kill,
            12..20 => Self::Terminate,
            20..32 => Self::Pause(pause),
            32..39 => Self::Network(Network::Cut, cut),
            39..46 => Self::Network(Network::Lost, cut),
            46..52 => Self::RestartConsul { crash: random.bool() },
            52..58 => Self::DestroySession,
            58..64 => Self::SlowClock(0.5 + random.f64() / 2.0, slow),
            64..70 => Self::Suspended(jump),
            70..78 => Self::SlowStop { orderly: random.bool(), work },
            // Of the longest pauses another leads by the end.
            78..86 => Self::PauseBeforeWrite(pause + Duration::from_secs(1)),
            86..93 => Self::LostAnswer,
            _ => Self::LateAnswers(late + Duration::from_secs(1)),
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
    /// The server, unless others use it as well.
    consul: Option<Consul>,
    client: Client,
    address: String,
    folder: TempDir,
    proxies: BTreeMap<&'static str, Proxy>,
    processes: BTreeMap<&'static str, Process>,
    history: History,
    /// How long it took until another led, by what ended the leader.
    delays: BTreeMap<&'static str, Vec<Duration>>,
    plant: Option<Plant>,
    /// TTL and lock-delay.
    times: (Duration, Duration),
    /// Folder of the keys of this run.
    keys: String,
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
    async fn start(consul: Consul, plant: Option<Plant>) -> Self {
        let client = consul.client();
        let mut run = Self::shared(client, consul.address(), plant, (TTL, LOCK_DELAY), "faults");
        run.consul = Some(consul);
        run.launch_all().await;
        run
    }

    /// A run on a Consul that others use as well; nothing is started yet.
    fn shared(
        client: Client,
        address: String,
        plant: Option<Plant>,
        times: (Duration, Duration),
        keys: &str,
    ) -> Self {
        Self {
            proxies: BTreeMap::new(),
            consul: None,
            client,
            address,
            folder: tempfile::tempdir().unwrap(),
            processes: BTreeMap::new(),
            history: History::default(),
            delays: BTreeMap::new(),
            plant,
            times,
            keys: keys.to_owned(),
        }
    }

    async fn launch_all(&mut self) {
        for id in IDS {
            self.proxies.insert(id, Proxy::start(self.address.clone()).await);
            self.launch(id);
        }
        self.wait_for_leader().await;
    }

    fn lock(&self) -> String {
        format!("{}/leader", self.keys)
    }

    fn log(&self, id: &str) -> PathBuf {
        self.folder.path().join(id)
    }

    fn launch(&mut self, id: &'static str) {
        let role = Role {
            id: id.to_owned(),
            consul: self.proxies[id].address.to_string(),
            key: self.lock(),
            writes: format!("{}/writes", self.keys),
            log: self.log(id),
            ttl: self.times.0,
            lock_delay: self.times.1,
            plant: self.plant,
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
            .find(|line| matches!(line.what, What::Leads { .. } | What::Ended))
    }

    /// The time after which a run in which nobody leads has failed; the checker judges
    /// gaps.
    fn patience(&self) -> Duration {
        (self.times.0 * 2 + self.times.1) * 2 + Duration::from_mins(1)
    }

    async fn wait_for_leader(&self) -> &'static str {
        eventually("somebody leads", self.patience(), async || self.leader().is_some()).await;
        self.leader().unwrap_or("one")
    }

    /// Notes how long it takes until another leads.
    async fn time(&mut self, what: &'static str, old: &'static str, since: Duration) {
        eventually("another leads", self.patience(), async || {
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
            Fault::Terminate => self.terminate(victim, leads, "graceful stop").await,
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
                let consul = self.consul.as_mut().unwrap();
                if crash {
                    consul.kill();
                }
                consul.restart().await.unwrap();
                self.history.outages.push((from, now()));
            }
            Fault::DestroySession => self.destroy_session().await,
            Fault::SlowClock(rate, time) => {
                self.tell(victim, &format!("rate {rate}"));
                sleep(time).await;
                self.tell(victim, "rate 1");
            }
            Fault::Suspended(time) => self.tell(victim, &format!("jump {}", time.as_millis())),
            Fault::SlowStop { orderly, work } => {
                self.tell(victim, &format!("slow {}", work.as_millis()));
                if orderly {
                    self.terminate(victim, leads, "slow stop").await;
                } else {
                    self.destroy_session().await;
                }
            }
            Fault::PauseBeforeWrite(time) => {
                self.tell(victim, &format!("pause {}", time.as_millis()));
                sleep(time).await;
            }
            Fault::LostAnswer => self.tell(victim, "lose 1"),
            Fault::LateAnswers(time) => {
                self.proxies[victim].set(Network::SlowAnswers(LATE));
                sleep(time).await;
                self.proxies[victim].set(Network::Up);
            }
        }
        self.wait_for_leader().await;
        // Leadership is settled now and then, and now and then it is not.
        sleep(Duration::from_millis(random.u64(0..800))).await;
    }

    /// Asks a process to end, and starts it again once it has.
    async fn terminate(&mut self, victim: &'static str, leads: bool, what: &'static str) {
        self.processes[victim].signal(Signal::SIGTERM);
        let told = now();
        if leads {
            self.time(what, victim, told).await;
        }
        // Closing its input ends it, if the signal has not.
        let mut process = self.processes.remove(victim).unwrap();
        drop(process.child.stdin.take());
        tokio::task::spawn_blocking(move || process.child.wait()).await.unwrap().unwrap();
        self.launch(victim);
    }

    /// Ends the leader's session, as an operator does.
    async fn destroy_session(&self) {
        let read = self.client.kv_get(&self.lock(), &QueryOptions::default()).await.unwrap();
        if let Some(session) = read.value.and_then(|pair| pair.session) {
            self.client.session_destroy(&session, &WriteOptions::default()).await.unwrap();
        }
    }

    /// Waits until another than `old` leads, whatever `old` says.
    async fn wait_for_another(&self, old: &str) {
        eventually("another leads as well", Duration::from_secs(30), async || {
            IDS.into_iter().any(|id| {
                id != old
                    && self
                        .last_line(id)
                        .is_some_and(|line| matches!(line.what, What::Leads { .. }))
            })
        })
        .await;
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
        let folder = format!("{}/writes/", self.keys);
        let pairs = self.client.kv_list(&folder, &QueryOptions::default()).await.unwrap().value;
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
    let usual = if long { 300 } else { 10 };
    (count.unwrap_or(usual), seed.unwrap_or_else(|| Rng::new().u64(0..1_000_000)))
}

/// Case HA36: after a crash of the leader a follower leads within 2 x TTL + lock-delay + 5 s, and
/// runs all tasks once.
/// Case HA39: a leader that was stopped for three TTLs writes nothing and applies nothing
/// afterwards.
#[tokio::test]
async fn never_two_leaders_whatever_fails() {
    let case = "faults::never_two_leaders_whatever_fails";
    let (count, seed) = extent();
    // At the same time, as each mostly waits.
    let runs = SUITE.parts("consul", case).into_iter().map(|part| one_run(part, count, seed));
    join_all(runs).await;
}

/// Faults drawn from a seed, on one version of Consul.
#[expect(clippy::print_stdout, reason = "the seed and the figures are for who runs it")]
async fn one_run(part: Part, count: usize, seed: u64) {
    let version = &part.version;
    println!("Consul {version}: {count} faults, HA_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let consul = Consul::start_with(&part.path, quick()).await.unwrap();
    let mut run = Run::start(consul, None).await;
    for number in 0..count {
        let fault = Fault::random(&mut random);
        println!("Consul {version}: {number}: {fault:?}");
        run.suffer(fault, &mut random).await;
    }
    let (history, delays) = run.end().await;
    let paused = history.struck(|mishap| matches!(mishap, Mishap::Pause(_)));
    let unanswered = history.struck(|mishap| mishap == Mishap::LostAnswer);
    println!(
        "Consul {version}: {} leaderships, {} writes, {paused} stood still before a write, \
         {unanswered} answers to writes lost\n{}",
        history.beliefs().len(),
        history.writes.len(),
        summary(&delays)
    );
    let violations = history.violations(bound());
    assert!(violations.is_empty(), "Consul {version}, HA_SEED={seed}\n{}", violations.join("\n"));
    assert!(history.writes.len() > count, "the leaders have written");
    // Each has one chance in fifteen or more.
    assert!(count < 100 || (paused > 0 && unanswered > 0), "the mishaps have struck");
}

/// A run on a real Consul in which every process makes this mistake.
async fn planted(case: &str, plant: Plant) -> Option<Run> {
    let part = SUITE.part_in_turn("consul", case)?;
    let consul = Consul::start_with(&part.path, quick()).await.unwrap();
    Some(Run::start(consul, Some(plant)).await)
}

/// Ends a run, and returns what the checker finds.
async fn verdict(mut run: Run) -> String {
    run.plant = None;
    let (history, _) = run.end().await;
    history.violations(bound()).join("\n")
}

/// The checker finds a second leader and its writes in a real run.
#[tokio::test]
async fn a_planted_second_leader_is_found() {
    let case = "faults::a_planted_second_leader_is_found";
    let Some(run) = planted(case, Plant::Stubborn).await else { return };
    let old = run.wait_for_leader().await;
    run.proxies[old].set(Network::Lost);
    run.wait_for_another(old).await;
    // Back on the network it writes without asking.
    run.proxies[old].set(Network::Up);
    sleep(Duration::from_secs(1)).await;
    let violations = verdict(run).await;
    assert!(violations.contains("two leaders"), "{violations}");
    assert!(violations.contains("after term"), "{violations}");
}

/// The checker finds work that a slow stop lets go on for too long.
#[tokio::test]
async fn planted_work_without_an_end_is_found() {
    let case = "faults::planted_work_without_an_end_is_found";
    let Some(mut run) = planted(case, Plant::EndlessWork).await else { return };
    let old = run.wait_for_leader().await;
    run.tell(old, "slow 10000");
    // Until it has read that.
    sleep(TTL).await;
    run.destroy_session().await;
    run.wait_for_another(old).await;
    sleep(Duration::from_millis(500)).await;
    let violations = verdict(run).await;
    assert!(violations.contains(&format!("{old} acted in term")), "{violations}");
}

/// The checker finds a write that comes out of a pause when another leads, and that Consul
/// was not asked to refuse.
#[tokio::test]
async fn a_planted_write_without_a_fence_is_found() {
    let case = "faults::a_planted_write_without_a_fence_is_found";
    let Some(mut run) = planted(case, Plant::UnfencedWrites).await else { return };
    let old = run.wait_for_leader().await;
    let pause = TTL * 2 + LOCK_DELAY + Duration::from_secs(2);
    run.tell(old, &format!("pause {}", pause.as_millis()));
    run.wait_for_another(old).await;
    eventually("it goes on", pause * 2, async || {
        run.last_line(old).is_some_and(|line| line.what == What::Ended)
    })
    .await;
    sleep(Duration::from_millis(200)).await;
    let violations = verdict(run).await;
    assert!(violations.contains("after term"), "{violations}");
}

/// The checker finds who counts a lease from an answer that comes after four seconds.
#[tokio::test]
async fn planted_trust_in_late_answers_is_found() {
    let case = "faults::planted_trust_in_late_answers_is_found";
    let Some(run) = planted(case, Plant::LateAnswers).await else { return };
    let old = run.wait_for_leader().await;
    run.proxies[old].set(Network::SlowAnswers(LATE));
    run.wait_for_another(old).await;
    eventually("it believes again", LATE * 2, async || {
        run.last_line(old).is_some_and(|line| matches!(line.what, What::Leads { .. }))
    })
    .await;
    let violations = verdict(run).await;
    assert!(violations.contains("two leaders"), "{violations}");
}

/// The checker finds who sends a write again whose answer was lost, and calls it refused.
#[tokio::test]
async fn a_planted_second_sending_is_found() {
    let case = "faults::a_planted_second_sending_is_found";
    let Some(mut run) = planted(case, Plant::ResentWrites).await else { return };
    let old = run.wait_for_leader().await;
    run.tell(old, "lose 1");
    eventually("a write was called refused", Duration::from_secs(10), async || {
        std::fs::read_to_string(run.log(old)).is_ok_and(|log| log.contains(" refused "))
    })
    .await;
    let violations = verdict(run).await;
    assert!(violations.contains("was called refused and has taken effect"), "{violations}");
}

/// Case HA39: a leader that was stopped for three TTLs writes nothing and applies nothing
/// afterwards.
#[tokio::test]
async fn ha39_a_leader_that_stood_still_comes_back_as_a_follower() {
    let case = "faults::ha39_a_leader_that_stood_still_comes_back_as_a_follower";
    for part in SUITE.parts("consul", case) {
        let consul = Consul::start_with(&part.path, quick()).await.unwrap();
        let mut run = Run::start(consul, None).await;
        let old = run.wait_for_leader().await;
        let term = run.last_line(old).unwrap().term;
        run.processes[old].signal(Signal::SIGSTOP);
        sleep(TTL * 3).await;
        run.wait_for_another(old).await;
        run.processes[old].signal(Signal::SIGCONT);
        let has_ended = || run.last_line(old).is_some_and(|line| line.what == What::Ended);
        eventually("it knows that it leads no more", TTL, async || has_ended()).await;
        // It stands again by itself: it leads where nobody else is left.
        for other in IDS.into_iter().filter(|id| *id != old) {
            run.processes.remove(other);
            run.history.deaths.push((other.to_owned(), now()));
        }
        eventually("it leads again", run.patience(), async || run.leader() == Some(old)).await;
        assert!(run.last_line(old).unwrap().term > term);
        // No write and no step of its first term came after the other's.
        let violations = verdict(run).await;
        assert_eq!(violations, "", "Consul {}", part.version);
    }
}

/// Case HA37: after a `SIGTERM` of the leader a follower leads within a second.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures are for who runs it")]
async fn a_leader_that_is_stopped_is_followed_within_a_second() {
    let case = "faults::a_leader_that_is_stopped_is_followed_within_a_second";
    let Some(part) = SUITE.part_in_turn("consul", case) else { return };
    let consul = Consul::start_with(&part.path, quick()).await.unwrap();
    let mut run = Run::start(consul, None).await;
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
