//! Where a case runs: on the double with driven time, or on a real Consul.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Clock, SystemClock, Transport,
    testing::{TestClock, TestConsul, parts::Suite, real},
    transport::{ExchangeLimits, SocketTransport, TransportError},
};
use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions, LockOptions, SessionOptions};
use futures::FutureExt as _;
use tokio::sync::{OnceCell, watch};

pub(crate) const SUITE: Suite = Suite("cts-ha");

/// Runs each case on the double in memory with a paused clock, and on every real Consul
/// that is there.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        mod double {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(&$crate::place::Place::double()).await;
            })*
        }
        mod real {
            $(#[tokio::test]
            async fn $name() {
                let case = concat!(module_path!(), "::", stringify!($name));
                let places = $crate::place::Place::real(case).await;
                let cases = places.iter().map(|place| $crate::place::on(place, super::$name(place)));
                futures::future::join_all(cases).await;
            })*
        }
    };
}
pub(crate) use cases;

/// A Consul for one case.
pub(crate) struct Place {
    /// The double, or a version of Consul, for messages.
    what: String,
    pub(crate) client: Client,
    pub(crate) double: Option<TestConsul>,
    transport: Arc<dyn Transport>,
    config: ClientConfig,
    pub(crate) clock: Arc<dyn Clock>,
    /// TTL and lock-delay of sessions.
    pub(crate) ttl: Duration,
    pub(crate) delay: Duration,
}

/// One server of each version, the oldest first.
static REAL: OnceCell<Vec<(String, real::Consul)>> = OnceCell::const_new();
static NAMES: AtomicU32 = AtomicU32::new(0);

/// Settings of a real server whose sessions end within seconds.
pub(crate) fn quick() -> serde_json::Value {
    serde_json::json!({ "session_ttl_min": "1s", "limits": { "http_max_conns_per_client": 1000 } })
}

impl Place {
    pub(crate) fn double() -> Self {
        SUITE.double("consul");
        let consul = TestConsul::new();
        Self {
            what: "the double".to_owned(),
            client: consul.client(),
            transport: consul.transport(),
            config: ClientConfig::default(),
            double: Some(consul),
            clock: Arc::new(TestClock::default()),
            ttl: Duration::from_secs(10),
            delay: Duration::from_secs(10),
        }
    }

    /// A place on each version of Consul. All cases share the servers, and take names
    /// of their own.
    pub(crate) async fn real(case: &str) -> Vec<Self> {
        let parts = SUITE.parts("consul", case);
        let start = || async {
            let mut servers = Vec::new();
            for part in parts {
                let server = real::Consul::start_with(&part.path, quick()).await.unwrap();
                servers.push((part.version, server));
            }
            servers
        };
        let servers = REAL.get_or_init(start).await;
        let place = |(version, server): &(String, real::Consul)| Self {
            what: format!("Consul {version}"),
            ..Self::of(server)
        };
        servers.iter().map(place).collect()
    }

    pub(crate) fn of(consul: &real::Consul) -> Self {
        let mut config = ClientConfig::default();
        config.address = consul.address();
        Self {
            what: "a real Consul".to_owned(),
            client: consul.client(),
            double: None,
            transport: Arc::new(SocketTransport::new(&config).unwrap()),
            config,
            clock: Arc::new(SystemClock),
            ttl: Duration::from_secs(4),
            delay: Duration::from_secs(4),
        }
    }

    /// A name that no other case uses.
    pub(crate) fn name(&self, name: &str) -> String {
        let process = std::process::id();
        let at = self.ttl.as_secs();
        format!("ha-{process}-{at}s-{}/{name}", NAMES.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn consul(&self) -> Consul {
        Consul::new(self.client.clone())
    }

    /// A client of its own, whose requests can be troubled.
    pub(crate) fn troubled(&self) -> (Client, Trouble) {
        let trouble = Trouble::default();
        let transport = Troubled { inner: Arc::clone(&self.transport), trouble: trouble.clone() };
        let client = Client::with_transport(self.config.clone(), Arc::new(transport)).unwrap();
        (client, trouble)
    }

    pub(crate) fn session(&self) -> SessionOptions {
        let mut options = SessionOptions::default();
        (options.ttl, options.lock_delay) = (self.ttl, self.delay);
        options
    }

    pub(crate) fn lock(&self) -> LockOptions {
        let mut options = LockOptions::default();
        options.session_options = self.session();
        options.clock = Arc::clone(&self.clock);
        options
    }

    pub(crate) fn election(&self) -> ElectionOptions {
        let mut options = ElectionOptions::default();
        (options.session_ttl, options.lock_delay) = (self.ttl, self.delay);
        options.clock = Arc::clone(&self.clock);
        options
    }

    pub(crate) fn elector(&self, consul: &Consul, key: &str, id: &str) -> ConsulElector {
        ConsulElector::new(consul, key, Candidate::new(id), self.election()).unwrap()
    }

    /// The bound on a takeover after a crash.
    pub(crate) fn failover(&self) -> Duration {
        self.ttl * 2 + self.delay + Duration::from_secs(5)
    }
}

/// Runs a case, and names the place where it failed.
#[expect(clippy::print_stderr, reason = "the test harness shows it with the failure")]
pub(crate) async fn on(place: &Place, case: impl Future<Output = ()>) {
    let outcome = AssertUnwindSafe(case).catch_unwind().await;
    if let Err(panic) = outcome {
        eprintln!("the case failed on {}", place.what);
        std::panic::resume_unwind(panic);
    }
}

/// What becomes of the requests of one client. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    cut: Arc<watch::Sender<bool>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<String>>>,
    cut_after: Arc<Mutex<Option<(&'static str, usize)>>>,
    /// Beginnings and ends of requests whose answers are held back.
    held_back: Arc<Mutex<Option<(&'static str, &'static str)>>>,
    /// TTL that sessions are created with, in place of what the client asks for.
    ttl: Arc<Mutex<Option<&'static str>>>,
}

/// An answer in place of Consul's, to requests whose method and path begin like this.
#[derive(Debug, Clone)]
struct Answer {
    to: &'static str,
    status: u16,
    text: &'static str,
}

impl Default for Trouble {
    fn default() -> Self {
        Self {
            cut: Arc::new(watch::Sender::new(false)),
            answers: Arc::default(),
            seen: Arc::default(),
            cut_after: Arc::default(),
            held_back: Arc::default(),
            ttl: Arc::default(),
        }
    }
}

impl Trouble {
    /// Loses all requests and answers from now on, or lets them pass again.
    pub(crate) fn cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }

    /// Answers the next `times` requests that begin like `to`, such as `GET /v1/kv`.
    pub(crate) fn answer(&self, to: &'static str, times: usize, status: u16, text: &'static str) {
        let answers = std::iter::repeat_n(Answer { to, status, text }, times);
        self.answers.lock().unwrap().extend(answers);
    }

    /// Loses everything from the request on that follows `times` more like `to`.
    pub(crate) fn cut_after(&self, to: &'static str, times: usize) {
        *self.cut_after.lock().unwrap() = Some((to, times));
    }

    /// Lets Consul answer requests like `to`, and the answers never come.
    pub(crate) fn hold_answers(&self, to: &'static str) {
        self.hold_answers_of(to, "");
    }

    /// The same for those that also end with `end`.
    pub(crate) fn hold_answers_of(&self, to: &'static str, end: &'static str) {
        *self.held_back.lock().unwrap() = Some((to, end));
    }

    /// Lets further answers pass; those that were held back stay lost.
    pub(crate) fn let_answers_pass(&self) {
        *self.held_back.lock().unwrap() = None;
    }

    /// How many answers were held back.
    pub(crate) fn held_back(&self) -> usize {
        self.count("held back ")
    }

    /// Sends this text as the TTL of sessions that are created from now on.
    pub(crate) fn create_with_ttl(&self, ttl: &'static str) {
        *self.ttl.lock().unwrap() = Some(ttl);
    }

    fn change_ttl(&self, line: &str, request: &mut http::Request<Bytes>) {
        if let Some(ttl) = *self.ttl.lock().unwrap()
            && line.starts_with("PUT /v1/session/create")
        {
            let mut body: serde_json::Value = serde_json::from_slice(request.body()).unwrap();
            body["TTL"] = ttl.into();
            *request.body_mut() = body.to_string().into();
        }
    }

    fn answered(&self, request: &str) {
        self.seen.lock().unwrap().push(format!("held back {request}"));
    }

    fn holds(&self, request: &str) -> bool {
        let held_back = *self.held_back.lock().unwrap();
        held_back.is_some_and(|(to, end)| request.starts_with(to) && request.ends_with(end))
    }

    fn count_down(&self, request: &str) {
        let mut cut_after = self.cut_after.lock().unwrap();
        if let Some((to, left)) = &mut *cut_after
            && request.starts_with(*to)
        {
            if let Some(fewer) = left.checked_sub(1) {
                *left = fewer;
            } else {
                *cut_after = None;
                self.cut(true);
            }
        }
    }

    /// How many requests that begin like `to` came so far.
    pub(crate) fn count(&self, to: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| seen.starts_with(to)).count()
    }

    fn take(&self, request: &str) -> Option<Answer> {
        let mut answers = self.answers.lock().unwrap();
        let at = answers.iter().position(|answer| request.starts_with(answer.to))?;
        answers.remove(at)
    }
}

#[derive(Debug)]
struct Troubled {
    inner: Arc<dyn Transport>,
    trouble: Trouble,
}

#[async_trait]
impl Transport for Troubled {
    async fn exchange(
        &self,
        mut request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let line = format!("{} {}", request.method(), request.uri().path());
        self.trouble.seen.lock().unwrap().push(line.clone());
        self.trouble.count_down(&line);
        self.trouble.change_ttl(&line, &mut request);
        if let Some(answer) = self.trouble.take(&line) {
            let response = http::Response::builder().status(answer.status);
            return Ok(response.body(Bytes::from_static(answer.text.as_bytes())).unwrap());
        }
        let mut cut = self.trouble.cut.subscribe();
        let mut lost = self.trouble.cut.subscribe();
        // What is lost stays lost: its connection is not heard of again.
        let lost = async {
            drop(lost.wait_for(|cut| *cut).await);
            tokio::time::sleep(limits.headers).await;
            Err(TransportError::Timeout { after: limits.headers })
        };
        let exchange = async {
            if *cut.borrow_and_update() {
                std::future::pending::<()>().await;
            }
            let answer = self.inner.exchange(request, limits).await;
            if self.trouble.holds(&line) {
                self.trouble.answered(&line);
                std::future::pending::<()>().await;
            }
            answer
        };
        tokio::select! {
            biased;
            lost = lost => lost,
            answer = exchange => answer,
        }
    }
}

/// Waits for a condition that something else brings about.
pub(crate) async fn eventually(what: &str, limit: Duration, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(limit, waiting).await.is_ok(), "not within {limit:?}: {what}");
}
