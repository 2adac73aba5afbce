//! Services come and go while AWS, Consul, people and the controller itself fail at random; after
//! each quiet moment everything that has to be there is, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use consul_watch::{QueryOptions, WriteOptions, client::AclTokenFilter, types::AclPolicy};
use fastrand::Rng;
use tokio::time::{Instant, sleep};

use super::{
    checker::{Expected, violations},
    process::{Launch, Process},
    proxy::Weather,
    rights,
    world::{World, secret_of},
};

const SERVICES: usize = 50;
const SHORT: Duration = Duration::from_mins(1);
const LONG: Duration = Duration::from_mins(5);
/// How long it may take until all is well again, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn service(number: usize) -> String {
    format!("svc-{number:02}")
}

/// What is done to the run, beside services that come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Throttle,
    LoseAnswers,
    RestartConsul,
    CrashConsul,
    DeleteSecret,
    OverwriteSecret,
    OverwriteClientSecret,
    DeleteToken,
    DeleteClientToken,
    DeletePolicy,
    DeleteClientPolicy,
    ChangeRules,
    Kill,
    KillAtWrite,
}

impl Fault {
    /// Each kind, with how often it comes among a hundred or so.
    const ALL: [(Self, u8); 14] = [
        (Self::Throttle, 14),
        (Self::LoseAnswers, 10),
        (Self::RestartConsul, 4),
        (Self::CrashConsul, 4),
        (Self::DeleteSecret, 10),
        (Self::OverwriteSecret, 8),
        (Self::OverwriteClientSecret, 4),
        (Self::DeleteToken, 10),
        (Self::DeleteClientToken, 4),
        (Self::DeletePolicy, 6),
        (Self::DeleteClientPolicy, 4),
        (Self::ChangeRules, 6),
        (Self::Kill, 12),
        (Self::KillAtWrite, 12),
    ];

    /// Every kind once, in a random order.
    fn each_once(random: &mut Rng) -> Vec<Self> {
        let mut all = Self::ALL.map(|(fault, _)| fault).to_vec();
        random.shuffle(&mut all);
        all
    }

    fn random(random: &mut Rng) -> Self {
        let all = Self::ALL.iter().flat_map(|&(fault, often)| (0..often).map(move |_| fault));
        random.choice(all.collect::<Vec<_>>()).unwrap()
    }
}

struct Run {
    world: World,
    launch: Launch,
    controller: Option<Process>,
    random: Rng,
    /// Secrets that somebody has deleted.
    gone: BTreeSet<String>,
    /// Faults that the run has not met yet.
    unmet: Vec<Fault>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    rounds: usize,
    changes: usize,
    faults: BTreeMap<Fault, usize>,
    starts: usize,
    slowest: Duration,
}

impl Run {
    async fn start(world: World, seed: u64) -> Self {
        let launch = world.launch();
        let mut random = Rng::with_seed(seed);
        let unmet = Fault::each_once(&mut random);
        let mut run = Self {
            world,
            launch,
            controller: None,
            random,
            gone: BTreeSet::new(),
            unmet,
            counts: Counts::default(),
        };
        for number in 0..SERVICES {
            run.world.create_service(&service(number)).await;
        }
        run.restart_controller();
        run
    }

    fn restart_controller(&mut self) {
        self.controller = Some(self.launch.start());
        self.counts.starts += 1;
    }

    async fn kill_controller(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.kill().await;
        }
        self.restart_controller();
    }

    fn any_service(&mut self) -> String {
        service(self.random.usize(0..SERVICES))
    }

    /// Rather one that runs: there is more to lose.
    fn victim(&mut self) -> String {
        let running: Vec<String> = self.world.running().into_iter().collect();
        match self.random.choice(running) {
            Some(service) if self.random.u8(0..4) > 0 => service,
            _ => self.any_service(),
        }
    }

    fn pause(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(0..400))
    }

    /// Services come and go.
    async fn change(&mut self) {
        for _ in 0..self.random.usize(1..8) {
            let service = self.any_service();
            if self.random.u8(0..10) < 6 {
                self.world.run_task(&service).await;
            } else {
                self.world.stop_task(&service).await;
            }
            self.counts.changes += 1;
        }
    }

    /// First every fault once, then any.
    fn next_fault(&mut self) -> Fault {
        self.unmet.pop().unwrap_or_else(|| Fault::random(&mut self.random))
    }

    async fn commit(&mut self, fault: Fault) {
        *self.counts.faults.entry(fault).or_default() += 1;
        match fault {
            Fault::Throttle => {
                let share = 0.1 + self.random.f64() * 0.8;
                self.world.proxy.set(Weather::Throttled(share));
            }
            Fault::LoseAnswers => {
                let share = 0.1 + self.random.f64() * 0.5;
                self.world.proxy.set(Weather::Lossy(share));
            }
            Fault::RestartConsul => self.world.consul.restart().await.unwrap(),
            Fault::CrashConsul => {
                self.world.consul.kill();
                self.world.consul.restart().await.unwrap();
            }
            Fault::DeleteSecret => {
                let service = self.victim();
                if self.gone.insert(service.clone()) {
                    self.world.delete_secret(&secret_of(&service)).await;
                }
            }
            Fault::OverwriteSecret => {
                let service = self.victim();
                if !self.gone.contains(&service) {
                    self.overwrite_secret(&secret_of(&service)).await;
                }
            }
            Fault::OverwriteClientSecret => self.overwrite_secret("prod-client").await,
            Fault::DeleteToken => self.delete_token("Token for svc-").await,
            Fault::DeleteClientToken => self.delete_token("ECS Consul client Token").await,
            Fault::DeletePolicy => self.spoil_policy("Policy for svc-", false).await,
            Fault::DeleteClientPolicy => {
                self.spoil_policy("Consul Client Token Policy for ECS", false).await;
            }
            Fault::ChangeRules => self.spoil_policy("Policy for svc-", true).await,
            Fault::Kill => self.kill_controller().await,
            Fault::KillAtWrite => {
                let written = self.world.proxy.next_call("UpdateSecret");
                tokio::select! {
                    () = written => {}
                    () = sleep(Duration::from_millis(500)) => {}
                }
                let delay = Duration::from_millis(self.random.u64(0..30));
                sleep(delay).await;
                self.kill_controller().await;
            }
        }
    }

    async fn overwrite_secret(&mut self, name: &str) {
        let id = |random: &mut Rng| {
            format!("{:08x}-0000-4000-8000-{:012x}", random.u32(1..), random.u64(..1 << 48))
        };
        let (accessor, token) = (id(&mut self.random), id(&mut self.random));
        let value = match self.random.u8(0..3) {
            0 => "{}".to_owned(),
            1 => format!(r#"{{"accessor_id":"{accessor}","token":""}}"#),
            _ => format!(r#"{{"accessor_id":"{accessor}","token":"{token}"}}"#),
        };
        self.world.write_secret(name, &value).await;
    }

    /// A token of the controller's, or none when Consul cannot say.
    async fn delete_token(&mut self, of: &str) {
        let client = self.world.client();
        let tokens = client.acl_tokens(&AclTokenFilter::default(), &QueryOptions::default()).await;
        let Ok(tokens) = tokens else { return };
        let own: Vec<String> = tokens
            .value
            .into_iter()
            .filter(|token| token.description.starts_with(of))
            .map(|token| token.accessor_id)
            .collect();
        if let Some(accessor) = self.random.choice(&own) {
            drop(client.acl_token_delete(accessor, &WriteOptions::default()).await);
        }
    }

    async fn spoil_policy(&mut self, of: &str, change: bool) {
        let (client, options) = (self.world.client(), WriteOptions::default());
        let Ok(policies) = client.acl_policies(&QueryOptions::default()).await else { return };
        let own: Vec<AclPolicy> = policies
            .value
            .into_iter()
            .filter(|policy| policy.description.starts_with(of))
            .collect();
        let Some(policy) = self.random.choice(&own) else { return };
        let done = if change {
            let mut changed = policy.clone();
            changed.rules = String::from(r#"service_prefix "" { policy = "write" }"#);
            client.acl_policy_update(&changed, &options).await.map(drop)
        } else {
            client.acl_policy_delete(&policy.id, &options).await
        };
        // The controller may have deleted it in between.
        drop(done);
    }

    /// Lets everything work again, and waits until all is well.
    async fn calm(&mut self) {
        self.world.proxy.set(Weather::Fair);
        for service in std::mem::take(&mut self.gone) {
            self.world.create_secret(&secret_of(&service)).await;
        }
        let alive = self.controller.as_mut().is_some_and(|controller| !controller.has_ended());
        if !alive {
            // As the ECS service does.
            self.restart_controller();
        }
        let started = Instant::now();
        let expected = self.world.expected();
        let mut wrong = self.wrong(&expected).await;
        while !wrong.is_empty() {
            assert!(
                started.elapsed() < PATIENCE,
                "round {}: {wrong:#?}\nthe end of the log:\n{}",
                self.counts.rounds,
                self.end_of_log()
            );
            sleep(Duration::from_millis(100)).await;
            if self.controller.as_mut().is_some_and(Process::has_ended) {
                self.restart_controller();
            }
            wrong = self.wrong(&expected).await;
        }
        self.counts.slowest = self.counts.slowest.max(started.elapsed());
    }

    async fn wrong(&self, expected: &Expected) -> Vec<String> {
        match self.world.found().await {
            Some(found) => violations(expected, &found),
            None => vec!["Consul does not tell".to_owned()],
        }
    }

    fn end_of_log(&self) -> String {
        let log = self.launch.printed();
        let lines: Vec<&str> = log.lines().rev().take(40).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// A token does what it is for, and no more; the token of a service that is gone does nothing.
    async fn try_tokens(&mut self, most: usize) {
        let mut running: Vec<String> = self.world.running().into_iter().collect();
        self.random.shuffle(&mut running);
        let node = self.world.consul.node();
        for service in running.iter().take(most) {
            let token = self.world.injected(service).await.unwrap();
            let client = self.world.client().with_token(Some(token.into())).unwrap();
            let all = rights::deviations(&client, node, service).await;
            assert!(all.is_empty(), "the token of {service}: {all:#?}");
        }
        for number in 0..SERVICES {
            let service = service(number);
            if running.contains(&service) {
                continue;
            }
            if let Some(token) = self.world.injected(&service).await.filter(|it| !it.is_empty()) {
                let client = self.world.client().with_token(Some(token.into())).unwrap();
                assert!(!rights::lives(&client).await, "the token of {service} still works");
            }
        }
    }
}

async fn run(world: World, seed: u64, time: Duration) -> Counts {
    let mut run = Run::start(world, seed).await;
    let end = Instant::now() + time;
    // Also on a machine that is so slow that the time does not suffice.
    while Instant::now() < end || !run.unmet.is_empty() {
        run.counts.rounds += 1;
        for _ in 0..run.random.usize(1..4) {
            run.change().await;
            sleep(run.pause()).await;
            let fault = run.next_fault();
            run.commit(fault).await;
            sleep(run.pause()).await;
        }
        run.change().await;
        run.calm().await;
        run.try_tokens(3).await;
    }
    run.try_tokens(SERVICES).await;
    let controller = run.controller.take().unwrap();
    assert_eq!(controller.terminate().await, Some(0), "{}", run.end_of_log());
    println!("calls to AWS: {:?}", run.world.proxy.calls());
    run.counts
}

#[tokio::test]
async fn what_has_to_be_there_is_whatever_fails() {
    let long = std::env::var("SOAK").is_ok_and(|value| value == "1");
    let seed = std::env::var("ACL_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("ACL_SEED={seed}");
    let Some(world) = World::start("faults", seed).await else { return };
    let started = Instant::now();
    let counts = run(world, seed, if long { LONG } else { SHORT }).await;
    println!("{} s: {counts:?}", started.elapsed().as_secs());
    assert_eq!(counts.faults.len(), Fault::ALL.len(), "every kind of fault was met");
}
