//! Leases of Vault's secrets: renewed while somebody uses them, read again when they end.
//!
//! On `OpenBao` with users of a real `PostgreSQL`, and on a double of Vault's API, which can grant
//! and refuse what a test wants.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use consul_watch::{Watcher, testing::TestConsul, types::HealthStatus};
use cts_driver_terraform::dynamic::{LiveValues, Reference, ValueSource};
use cts_tasks::{
    Condition, ConsulConfig, DriverSettings, Engine, EngineOptions, Stop, StopReason, TaskEnv,
    config::VaultConfig,
};
use futures::future::{FutureExt as _, join_all};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::any};

use crate::{
    bao::{Bao, ROOT},
    commands::fake,
    servers::{PASSWORD, Postgres},
    site::SUITE,
};

/// Longest wait for what has to happen.
const LIMIT: Duration = Duration::from_mins(1);

fn live(vault: &VaultConfig) -> LiveValues {
    let consul = ConsulConfig::default();
    let mut settings = DriverSettings::new(&consul, Path::new("/"));
    settings.vault = Some(vault);
    LiveValues::new(settings).with_environment(BTreeMap::new())
}

fn user() -> BTreeSet<Reference> {
    let (path, field) = ("database/creds/app".to_owned(), vec!["username".to_owned()]);
    BTreeSet::from([Reference::Secret { path, field }])
}

async fn read(values: &dyn ValueSource) -> String {
    let found = values.look_up(&user()).await.unwrap();
    found.values().next().unwrap().expose_secret().to_owned()
}

/// Runs the keeper beside some work.
async fn kept<T>(values: &LiveValues, work: impl Future<Output = T>) -> T {
    tokio::select! {
        () = values.keep_alive() => panic!("leases are kept for ever"),
        done = work => done,
    }
}

/// Vault's API, as far as leases go. Each read makes another user and another lease.
#[derive(Clone)]
struct Double {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Seconds of each lease, and whether it can be renewed.
    lease: (u64, bool),
    /// Seconds that the next renewals grant; then they are refused.
    grants: Vec<u64>,
    reads: u64,
    renewals: Vec<String>,
    /// Answers of reads from now on.
    refuses: bool,
    /// Time that each read takes.
    delay: Duration,
}

impl Double {
    async fn start(seconds: u64, renewable: bool, grants: &[u64]) -> (Self, MockServer) {
        let state = State {
            lease: (seconds, renewable),
            grants: grants.iter().rev().copied().collect(),
            ..State::default()
        };
        let double = Self { state: Arc::new(Mutex::new(state)) };
        let server = MockServer::start().await;
        let answering = double.clone();
        Mock::given(any())
            .respond_with(move |request: &Request| answering.answer(request))
            .mount(&server)
            .await;
        (double, server)
    }

    fn answer(&self, request: &Request) -> ResponseTemplate {
        let mut state = self.state.lock().unwrap();
        match request.url.path() {
            "/v1/database/creds/app" if state.refuses => {
                ResponseTemplate::new(503).set_body_json(json!({"errors": ["sealed"]}))
            }
            "/v1/database/creds/app" => {
                state.reads += 1;
                let (seconds, renewable) = state.lease;
                ResponseTemplate::new(200).set_delay(state.delay).set_body_json(json!({
                    "lease_id": format!("lease-{}", state.reads), "lease_duration": seconds,
                    "renewable": renewable, "data": {"username": format!("user-{}", state.reads)},
                }))
            }
            "/v1/sys/leases/renew" => {
                let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
                let id = body.get("lease_id").and_then(serde_json::Value::as_str).unwrap();
                state.renewals.push(id.to_owned());
                match state.grants.pop() {
                    Some(granted) => ResponseTemplate::new(200)
                        .set_body_json(json!({"lease_id": "x", "lease_duration": granted})),
                    None => ResponseTemplate::new(400)
                        .set_body_json(json!({"errors": ["lease is not renewable"]})),
                }
            }
            _ => ResponseTemplate::new(403),
        }
    }

    fn reads(&self) -> u64 {
        self.state.lock().unwrap().reads
    }

    fn renewals(&self) -> Vec<String> {
        self.state.lock().unwrap().renewals.clone()
    }
}

#[tokio::test]
async fn a_lease_is_renewed_as_long_as_it_is_granted_and_then_read_again() {
    let (double, server) = Double::start(3, true, &[3, 3]).await;
    let values = live(&VaultConfig::new(server.uri()));
    assert_eq!(read(&values).await, "user-1");
    let (begun, wanted) = (Instant::now(), user());
    kept(&values, timeout(LIMIT, values.changed(&wanted))).await.unwrap();
    // Three times two thirds of 3 s.
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(5500), "{took:?}");
    assert_eq!(double.renewals(), ["lease-1"; 3]);
    assert_eq!((read(&values).await, double.reads()), ("user-2".to_owned(), 2));
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_is_read_again_before_it_ends() {
    let (double, server) = Double::start(3, false, &[]).await;
    let values = live(&VaultConfig::new(server.uri()));
    assert_eq!(read(&values).await, "user-1");
    let (begun, wanted) = (Instant::now(), user());
    kept(&values, timeout(LIMIT, values.changed(&wanted))).await.unwrap();
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(1500) && took < Duration::from_secs(3), "{took:?}");
    assert_eq!((double.renewals().len(), double.reads()), (0, 2));
}

/// A renewal near the longest time of a lease grants what is left of it.
#[tokio::test]
async fn a_lease_that_is_granted_less_and_less_is_read_again() {
    let (double, server) = Double::start(4, true, &[4, 2, 4, 4]).await;
    let values = live(&VaultConfig::new(server.uri()));
    assert_eq!(read(&values).await, "user-1");
    let wanted = user();
    // 2 of 4 s is half of it, still worth a renewal; 1 of 4 s is not.
    double.state.lock().unwrap().grants = vec![1, 4];
    kept(&values, timeout(LIMIT, values.changed(&wanted))).await.unwrap();
    assert_eq!((double.renewals().len(), double.reads()), (2, 2));
}

#[tokio::test]
async fn a_lease_that_nobody_waits_for_is_left_to_end() {
    let (double, server) = Double::start(2, true, &[2; 9]).await;
    let values = live(&VaultConfig::new(server.uri()));
    assert_eq!(read(&values).await, "user-1");
    kept(&values, async {
        let begun = Instant::now();
        // The lease of the first read is used for two thirds of it, as it always was.
        while read(&values).await == "user-1" {
            assert!(begun.elapsed() < LIMIT);
            sleep(Duration::from_millis(20)).await;
        }
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    })
    .await;
    assert_eq!((double.renewals().len(), double.reads()), (0, 2));
}

#[tokio::test]
async fn a_vault_that_is_away_is_asked_again_until_it_gives_another_secret() {
    let (double, server) = Double::start(2, false, &[]).await;
    let values = live(&VaultConfig::new(server.uri()));
    assert_eq!(read(&values).await, "user-1");
    double.state.lock().unwrap().refuses = true;
    let log = consul_watch::testing::Log::start();
    let wanted = user();
    let changed = async {
        tokio::join!(values.changed(&wanted), async {
            while log.with("cannot read a secret of Vault again").is_empty() {
                sleep(Duration::from_millis(20)).await;
            }
            double.state.lock().unwrap().refuses = false;
        })
    };
    kept(&values, timeout(LIMIT, changed)).await.unwrap();
    assert_eq!(read(&values).await, "user-2");
    assert!(!log.text().contains("user-"), "{}", log.text());
}

/// From the end of a lease to the next apply: the engine, the driver, a script as the tool.
#[tokio::test]
async fn a_task_runs_again_when_the_lease_of_its_secret_has_ended() {
    let (_double, server) = Double::start(3, false, &[]).await;
    let mut site = fake("1.11.4");
    site.vault = Some(VaultConfig::new(server.uri()));
    let consul = TestConsul::new();
    consul.set_instance("api", "api-1", "10.0.0.1", 80, HealthStatus::Passing);
    let mut task = site.task(&json!({
        "env": {
            "DB_USER": "{{ with secret \"database/creds/app\" }}{{ .Data.username }}{{ end }}",
        },
    }));
    task.condition = Condition::services(["api"]);
    let other = {
        let mut other = task.clone();
        (other.name, other.env) = ("other".parse().unwrap(), TaskEnv::default());
        other.working_dir = "sync-tasks/other".into();
        other
    };
    let factory = site.factory();
    factory.start().await.unwrap();
    let watcher = Watcher::new(consul.client());
    let engine = Engine::new(watcher, factory, EngineOptions::default());
    let stop = Stop::new();
    engine.load(vec![task, other], &stop).await.unwrap();
    let users = || {
        let text = std::fs::read_to_string(site.task_dir().join("environment.apply"));
        let text = text.unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("DB_USER=")).map(str::to_owned)
    };
    let runs = |name: &str| {
        let name = name.parse().unwrap();
        engine.state(|state| state.events.get(&name).map_or(0, Vec::len))
    };
    let seen = async {
        let begun = Instant::now();
        while users().as_deref() != Some("user-2") || runs("test") < 2 {
            assert!(begun.elapsed() < LIMIT, "{:?}", users());
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(runs("other"), 1, "it uses no secret");
        stop.stop(StopReason::Shutdown);
    };
    let (ended, ()) = tokio::join!(engine.run(&stop), seen);
    ended.unwrap();
}

/// The first run takes longer than the lease; nobody waits for changes yet.
#[tokio::test]
async fn a_lease_that_falls_due_during_the_first_run_is_kept_and_the_task_runs_again() {
    let (double, server) = Double::start(2, false, &[]).await;
    let mut site = fake("1.11.4");
    site.vault = Some(VaultConfig::new(server.uri()));
    let consul = TestConsul::new();
    consul.set_instance("api", "api-1", "10.0.0.1", 80, HealthStatus::Passing);
    let mut task = site.task(&json!({
        "env": {
            "DB_USER": "{{ with secret \"database/creds/app\" }}{{ .Data.username }}{{ end }}",
        },
    }));
    task.condition = Condition::services(["api"]);
    std::fs::create_dir_all(site.task_dir()).unwrap();
    std::fs::write(site.task_dir().join("slow.apply"), "").unwrap();
    let factory = site.factory();
    factory.start().await.unwrap();
    let engine = Engine::new(Watcher::new(consul.client()), factory, EngineOptions::default());
    let stop = Stop::new();
    engine.load(vec![task], &stop).await.unwrap();
    let user = || {
        let text = std::fs::read_to_string(site.task_dir().join("environment.apply"));
        let text = text.unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("DB_USER=")).map(str::to_owned)
    };
    let runs = || {
        let name = "test".parse().unwrap();
        engine.state(|state| state.events.get(&name).map_or(0, Vec::len))
    };
    let seen = async {
        let begun = Instant::now();
        while user().is_none() || double.reads() < 2 {
            assert!(begun.elapsed() < LIMIT, "read {} times", double.reads());
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!((user().as_deref(), runs()), (Some("user-1"), 0), "the first run goes on");
        // From now on leases last.
        double.state.lock().unwrap().lease = (3600, false);
        std::fs::write(site.task_dir().join("go"), "").unwrap();
        while runs() < 2 || user().as_deref() == Some("user-1") {
            assert!(begun.elapsed() < LIMIT, "{:?} after {} runs", user(), runs());
            sleep(Duration::from_millis(20)).await;
        }
        stop.stop(StopReason::Shutdown);
    };
    let (ended, ()) = tokio::join!(engine.run(&stop), seen);
    ended.unwrap();
}

#[tokio::test]
async fn simultaneous_look_ups_of_one_secret_make_one_lease() {
    let (double, server) = Double::start(3600, false, &[]).await;
    double.state.lock().unwrap().delay = Duration::from_millis(200);
    let values = live(&VaultConfig::new(server.uri()));
    let users = join_all((0..5).map(|_| read(&values))).await;
    assert_eq!((users, double.reads()), (vec!["user-1".to_owned(); 5], 1));
}

/// Only secrets with a lease are read one after the other: 20 turns of half a second would be
/// beyond the limit of a look-up.
#[tokio::test]
async fn simultaneous_look_ups_of_a_secret_without_a_lease_do_not_wait_for_each_other() {
    let (double, server) = Double::start(0, false, &[]).await;
    double.state.lock().unwrap().delay = Duration::from_millis(500);
    let values = live(&VaultConfig::new(server.uri()));
    join_all((0..20).map(|_| read(&values))).await;
    assert_eq!(double.reads(), 20);
}

/// Nobody keeps the leases here, so each task reads the secret anew when it needs it.
#[tokio::test]
async fn a_task_learns_once_that_another_one_has_read_its_secret_anew() {
    let (double, server) = Double::start(2, false, &[]).await;
    let values = live(&VaultConfig::new(server.uri()));
    let (one, other) = (values.for_task().unwrap(), values.for_task().unwrap());
    assert_eq!(
        (read(&*one).await, read(&*other).await),
        ("user-1".to_owned(), "user-1".to_owned())
    );
    let wanted = user();
    assert!(other.changed(&wanted).now_or_never().is_none());
    double.state.lock().unwrap().lease = (3600, false);
    let begun = Instant::now();
    while read(&*one).await == "user-1" {
        assert!(begun.elapsed() < LIMIT);
        sleep(Duration::from_millis(20)).await;
    }
    assert!(other.changed(&wanted).now_or_never().is_some());
    assert!(other.changed(&wanted).now_or_never().is_none());
    assert_eq!((read(&*other).await, double.reads()), ("user-2".to_owned(), 2));
}

/// A look-up for a plan that is only shown must not hide that what was applied is out of date.
#[tokio::test]
async fn a_change_between_a_look_up_and_the_wait_is_told() {
    let (double, server) = Double::start(2, false, &[]).await;
    let values = live(&VaultConfig::new(server.uri()));
    let task = values.for_task().unwrap();
    assert_eq!(read(&*task).await, "user-1");
    double.state.lock().unwrap().lease = (3600, false);
    kept(&values, async {
        let begun = Instant::now();
        while read(&*task).await == "user-1" {
            assert!(begun.elapsed() < LIMIT);
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(task.changed(&user()).now_or_never().is_some());
}

#[tokio::test]
async fn a_secret_is_forgotten_with_the_last_task_that_uses_it() {
    let (double, server) = Double::start(3600, false, &[]).await;
    let values = live(&VaultConfig::new(server.uri()));
    let (one, other) = (values.for_task().unwrap(), values.for_task().unwrap());
    assert_eq!(
        (read(&*one).await, read(&*other).await),
        ("user-1".to_owned(), "user-1".to_owned())
    );
    drop(one);
    assert_eq!((read(&values).await, double.reads()), ("user-1".to_owned(), 1));
    drop(other);
    assert_eq!((read(&values).await, double.reads()), ("user-2".to_owned(), 2));
}

/// The whole way: a user that `OpenBao` makes in `PostgreSQL`, whose lease of 3 s may last 7 s.
#[tokio::test]
async fn users_of_a_real_database_are_kept_and_replaced_when_their_longest_time_nears() {
    let case = "users_of_a_real_database_are_kept_and_replaced_when_their_longest_time_nears";
    let part = |name| SUITE.part(name, case);
    let (Some(bao), Some(postgres), Some(initdb)) = (part("bao"), part("postgres"), part("initdb"))
    else {
        return;
    };
    let (postgres, bao) =
        tokio::join!(Postgres::start(&postgres.path, &initdb.path), Bao::start(&bao.path));
    bao.call("POST", "sys/mounts/database", json!({"type": "database"})).await;
    let url =
        postgres.connection().replace(&format!("cts:{PASSWORD}"), "{{username}}:{{password}}");
    let connection = json!({
        "plugin_name": "postgresql-database-plugin", "allowed_roles": "app",
        "connection_url": url, "username": "cts", "password": PASSWORD,
    });
    bao.call("POST", "database/config/db", connection).await;
    let make =
        "CREATE ROLE \"{{name}}\" LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}'";
    let role = json!({
        "db_name": "db", "creation_statements": [make], "default_ttl": "3s", "max_ttl": "7s",
    });
    bao.call("POST", "database/roles/app", role).await;

    let values = live(&bao.config(ROOT));
    let first = read(&values).await;
    let (begun, wanted) = (Instant::now(), user());
    let still = async {
        // Past the lease as it was at first, the user is the same, and lives.
        while begun.elapsed() < Duration::from_millis(3500) {
            sleep(Duration::from_millis(50)).await;
        }
        let leases = bao.call("LIST", "sys/leases/lookup/database/creds/app", json!({})).await;
        (read(&values).await, leases["data"]["keys"].as_array().unwrap().len())
    };
    let both = async { tokio::join!(values.changed(&wanted), still) };
    let ((), (kept_user, leases)) = kept(&values, timeout(LIMIT, both)).await.unwrap();
    assert_eq!((kept_user, leases), (first.clone(), 1));
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(3500) && took < Duration::from_secs(7), "{took:?}");
    assert_ne!(read(&values).await, first);
}
