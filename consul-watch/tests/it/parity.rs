//! One table of cases, run against the double in memory, as current and as old
//! servers, against the double on a socket, and against real servers of both kinds.
//!
//! Absolute indexes are never asserted, only their order. A case takes names of
//! its own, because the real server is shared by all of them, one at a time.

mod acl;
mod acl_objects;
mod agent;
mod blocking;
mod catalog;
mod certificates;
mod chain;
mod cluster;
mod config;
mod event;
mod exchanges;
mod filter;
mod gateway;
mod health;
mod intention;
mod kv;
mod login;
mod malformed;
mod query;
mod server;
mod session;
mod sidecar;
mod txn;
mod txn_catalog;

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use consul_watch::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    testing::{Behaviour, DefaultPolicy, ServedConsul, TestConsul, parts::Suite, real},
    types::{CatalogRegistration, HealthCheck, HealthStatus, Service, SessionId, SessionRequest},
};
use serde_json::json;
use tokio::{
    sync::{Mutex, MutexGuard, OnceCell},
    time::{Instant, timeout},
};

const SUITE: Suite = Suite("consul-watch parity");

/// Where a case runs.
struct Env {
    client: Client,
    double: Option<TestConsul>,
    is_1_8: bool,
    node: &'static str,
    case: &'static str,
    _served: Option<ServedConsul>,
    _real: Option<MutexGuard<'static, real::Consul>>,
}

/// The real servers that cases share: one before Consul 1.9, and one after.
struct Versions {
    old: OnceCell<Mutex<real::Consul>>,
    current: OnceCell<Mutex<real::Consul>>,
}

impl Versions {
    const fn new() -> Self {
        Self { old: OnceCell::const_new(), current: OnceCell::const_new() }
    }
}

/// How long observed reads may block: longer than any write takes.
const HOLD: Duration = Duration::from_secs(20);

static REAL: Versions = Versions::new();
/// The same with ACLs.
static SEALED: Versions = Versions::new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// The secret of the management token where ACLs are on.
const ROOT: &str = "5ec2e700-0000-4000-8000-00000000600d";

impl Env {
    fn memory(case: &'static str, behaviour: Behaviour) -> Self {
        Self::of(case, behaviour, TestConsul::builder().behaviour(behaviour).build())
    }

    /// With ACLs that deny by default; the client has the management token.
    fn sealed_memory(case: &'static str, behaviour: Behaviour) -> Self {
        let builder = TestConsul::builder().behaviour(behaviour).acls(DefaultPolicy::Deny);
        Self::of(case, behaviour, builder.management_token(ROOT).build())
    }

    fn of(case: &'static str, behaviour: Behaviour, consul: TestConsul) -> Self {
        SUITE.double("consul");
        let is_1_8 = behaviour == Behaviour::V1_8;
        Self {
            client: consul.client(),
            double: Some(consul),
            is_1_8,
            node: "test-consul",
            case,
            _served: None,
            _real: None,
        }
    }

    async fn socket(case: &'static str) -> Self {
        Self::served(case, TestConsul::new()).await
    }

    async fn sealed_socket(case: &'static str) -> Self {
        let builder = TestConsul::builder().acls(DefaultPolicy::Deny);
        Self::served(case, builder.management_token(ROOT).build()).await
    }

    async fn served(case: &'static str, consul: TestConsul) -> Self {
        let served = consul.serve().await.unwrap();
        Self {
            client: served.client(),
            double: Some(served.consul().clone()),
            is_1_8: false,
            node: "test-consul",
            case,
            _served: Some(served),
            _real: None,
        }
    }

    async fn real(case: &'static str, behaviour: Behaviour) -> Option<Self> {
        Self::real_with(case, behaviour, &REAL, json!({ "connect": { "enabled": true } })).await
    }

    async fn sealed_real(case: &'static str, behaviour: Behaviour) -> Option<Self> {
        let tokens = json!({ "master": ROOT });
        let acl = json!({ "enabled": true, "default_policy": "deny", "tokens": tokens });
        let settings = json!({ "acl": acl, "connect": { "enabled": true } });
        Self::real_with(case, behaviour, &SEALED, settings).await
    }

    async fn real_with(
        case: &'static str,
        behaviour: Behaviour,
        shared: &'static Versions,
        settings: serde_json::Value,
    ) -> Option<Self> {
        let is_1_8 = behaviour == Behaviour::V1_8;
        let mut parts = SUITE.parts("consul", case).into_iter();
        // A machine without Go has only the old one.
        let part = parts.find(|part| (part.major_minor() < (1, 9)) == is_1_8)?;
        let shared = if is_1_8 { &shared.old } else { &shared.current };
        let start = || async {
            let consul = real::Consul::start_with(&part.path, settings).await;
            Mutex::new(consul.expect("a real Consul"))
        };
        let guard = shared.get_or_init(start).await.lock().await;
        Some(Self {
            client: guard.client(),
            double: None,
            is_1_8,
            node: guard.node(),
            case,
            _served: None,
            _real: Some(guard),
        })
    }

    /// A name that no other case uses.
    fn name(&self, name: &str) -> String {
        format!("{}-{}-{name}", self.case, NAMES.fetch_add(1, Ordering::Relaxed))
    }

    /// How long a read must stay blocked after a write that is not to wake it.
    fn wait(&self) -> Duration {
        if self.double.is_some() { Duration::from_millis(400) } else { Duration::from_secs(1) }
    }

    /// Registers an instance with one check on a node of its own.
    async fn instance(&self, service: &str, node: &str, status: &str) {
        self.client.catalog_register(&instance(service, node, status)).await.unwrap();
    }

    /// Reads, blocks on the answer's index, writes, and tells what became of the read.
    async fn observe<T, R, F, W>(&self, read: R, write: W) -> Observed<T>
    where
        T: Send + 'static,
        R: Fn(Client, QueryOptions) -> F,
        F: Future<Output = Result<Answer<T>>> + Send + 'static,
        W: Future,
    {
        let first = read(self.client.clone(), QueryOptions::default()).await.unwrap();
        let before = first.meta.index.expect("an index");
        let mut options = QueryOptions::default();
        (options.index, options.wait) = (Some(before), Some(HOLD));
        let start = Instant::now();
        let mut held = tokio::spawn(read(self.client.clone(), options));
        if let Some(double) = &self.double {
            double.wait_for_blocked(1).await;
        } else {
            // A real server does not say what it holds. The read is sent first, and what is
            // sent after it, on other connections, is answered: so the read is there.
            tokio::task::yield_now().await;
            for _ in 0..2 {
                self.client.status_leader().await.unwrap();
            }
        }
        write.await;
        // However slow the machine made the write, the time counts from its end.
        let in_time = timeout(self.wait(), &mut held).await;
        // What this one shows, the held one had been told before.
        let now = read(self.client.clone(), QueryOptions::default()).await.unwrap();
        let answer = match in_time {
            Ok(answer) => Some(answer),
            Err(_) if held.is_finished() => Some(held.await),
            Err(_) => {
                held.abort();
                drop(held.await);
                None
            }
        };
        let woken = answer.is_some() && start.elapsed() < HOLD;
        let answer = answer.map_or(now, |answer| answer.unwrap().unwrap());
        Observed {
            before,
            after: answer.meta.index.expect("an index"),
            woken,
            first: first.value,
            last: answer.value,
        }
    }

    async fn session(&self, change: impl FnOnce(&mut SessionRequest)) -> SessionId {
        let mut request = SessionRequest::default();
        change(&mut request);
        self.client.session_create(&request, &WriteOptions::default()).await.unwrap()
    }

    async fn destroy(&self, session: &SessionId) {
        self.client.session_destroy(session, &WriteOptions::default()).await.unwrap();
    }
}

/// What became of a read that was blocked.
struct Observed<T> {
    before: u64,
    after: u64,
    woken: bool,
    first: T,
    last: T,
}

impl<T> Observed<T> {
    fn assert_woken(&self) {
        assert!(
            self.woken && self.after > self.before,
            "not woken: {} to {}",
            self.before,
            self.after
        );
    }

    /// Not woken, although its index may have grown.
    fn assert_idle(&self) {
        assert!(!self.woken, "woken: {} to {}", self.before, self.after);
    }

    fn assert_quiet(&self) {
        assert!(
            !self.woken && self.after == self.before,
            "woken: {} to {}",
            self.before,
            self.after
        );
    }
}

/// The status that an error came with.
fn status(error: &consul_watch::Error) -> u16 {
    error.status().expect("an answer").as_u16()
}

/// An instance with one check on a node of its own; its id is the node's name.
fn instance(service: &str, node: &str, status: &str) -> CatalogRegistration {
    let mut instance = Service::new(service, node);
    instance.port = 80;
    let check = HealthCheck::of_service(
        node,
        format!("{node}-check"),
        HealthStatus::from(status.to_owned()),
    );
    CatalogRegistration::new(node, "10.0.0.1").with_service(instance).with_check(check)
}

/// Makes each case a test in each place that it runs in. Cases that are
/// `sealed` run with ACLs.
macro_rules! cases {
    (sealed: $($case:ident),+ $(,)?) => {
        crate::parity::cases!(@ sealed_memory, sealed_socket, sealed_real: $($case),+);
    };
    (@ $memory:ident, $socket:ident, $real:ident: $($case:ident),+) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                let behaviour = consul_watch::testing::Behaviour::Current;
                super::$case(&crate::parity::Env::$memory(stringify!($case), behaviour)).await;
            })+
        }
        mod memory_1_8 {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                let behaviour = consul_watch::testing::Behaviour::V1_8;
                super::$case(&crate::parity::Env::$memory(stringify!($case), behaviour)).await;
            })+
        }
        mod socket {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&crate::parity::Env::$socket(stringify!($case)).await).await;
            })+
        }
        mod real_1_8 {
            $(#[tokio::test]
            async fn $case() {
                let behaviour = consul_watch::testing::Behaviour::V1_8;
                if let Some(env) = crate::parity::Env::$real(stringify!($case), behaviour).await {
                    super::$case(&env).await;
                }
            })+
        }
        mod real_current {
            $(#[tokio::test]
            async fn $case() {
                let behaviour = consul_watch::testing::Behaviour::Current;
                if let Some(env) = crate::parity::Env::$real(stringify!($case), behaviour).await {
                    super::$case(&env).await;
                }
            })+
        }
    };
    ($($case:ident),+ $(,)?) => {
        crate::parity::cases!(@ memory, socket, real: $($case),+);
    };
}
use cases;
