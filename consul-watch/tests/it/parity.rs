//! One table of cases, run against the double in memory, as current and as old
//! servers, against the double on a socket, and against a real server.
//!
//! Absolute indexes are never asserted, only their order. A case takes names of
//! its own, because the real server is shared by all of them, one at a time.

mod agent;
mod blocking;
mod catalog;
mod health;
mod kv;
mod server;
mod session;
mod txn;

use std::{
    future::Future,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use consul_watch::{
    Answer, Client, QueryOptions, Result, WriteOptions,
    testing::{Behaviour, ServedConsul, TestConsul, parts::Suite, real},
    types::{CatalogRegistration, HealthCheck, HealthStatus, Service, SessionId, SessionRequest},
};
use tokio::{
    sync::{Mutex, MutexGuard, OnceCell},
    time::Instant,
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

static REAL: OnceCell<Mutex<real::Consul>> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

impl Env {
    fn memory(case: &'static str, behaviour: Behaviour) -> Self {
        SUITE.double("consul");
        let consul = TestConsul::builder().behaviour(behaviour).build();
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
        let served = TestConsul::new().serve().await.unwrap();
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

    async fn real(case: &'static str) -> Option<Self> {
        let part = SUITE.part("consul", case)?;
        let start =
            || async { Mutex::new(real::Consul::start(&part.path).await.expect("a real Consul")) };
        let guard = REAL.get_or_init(start).await.lock().await;
        Some(Self {
            client: guard.client(),
            double: None,
            is_1_8: part.major_minor() < (1, 9),
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

    /// How long a read blocks that is not to be woken.
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
        (options.index, options.wait) = (Some(before), Some(self.wait()));
        let start = Instant::now();
        let held = tokio::spawn(read(self.client.clone(), options));
        if let Some(double) = &self.double {
            double.wait_for_blocked(1).await;
        }
        write.await;
        let answer = held.await.unwrap().unwrap();
        let woken = start.elapsed() < self.wait();
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

    fn assert_quiet(&self) {
        assert!(
            !self.woken && self.after == self.before,
            "woken: {} to {}",
            self.before,
            self.after
        );
    }
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

/// Makes each case a test in each place that it runs in.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod memory {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                let behaviour = consul_watch::testing::Behaviour::Current;
                super::$case(&crate::parity::Env::memory(stringify!($case), behaviour)).await;
            })+
        }
        mod memory_1_8 {
            $(#[tokio::test(start_paused = true)]
            async fn $case() {
                let behaviour = consul_watch::testing::Behaviour::V1_8;
                super::$case(&crate::parity::Env::memory(stringify!($case), behaviour)).await;
            })+
        }
        mod socket {
            $(#[tokio::test]
            async fn $case() {
                super::$case(&crate::parity::Env::socket(stringify!($case)).await).await;
            })+
        }
        mod real {
            $(#[tokio::test]
            async fn $case() {
                if let Some(env) = crate::parity::Env::real(stringify!($case)).await {
                    super::$case(&env).await;
                }
            })+
        }
    };
}
use cases;
