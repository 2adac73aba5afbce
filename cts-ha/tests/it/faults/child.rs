//! One process of a fault run.

use std::{
    fs::File,
    io::Write as _,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use consul_watch::{
    Client, ClientConfig, Clock as _, QueryOptions, SystemClock, WriteOptions,
    client::PutOptions,
    types::{KvOp, SessionId},
};
use cts_ha::{
    Candidate, Consul, ConsulElector, ElectionOptions, Elector as _, Leadership, testing::OddClock,
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};

use super::checker::{Line, What};

/// Tells a process that it is one of a fault run, and which.
pub(crate) const ROLE: &str = "CTS_HA_FAULTS";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) id: String,
    pub(crate) consul: String,
    pub(crate) key: String,
    pub(crate) writes: String,
    pub(crate) log: PathBuf,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    /// The planted fault: goes on after its leadership has ended, and writes
    /// without asking Consul who leads.
    pub(crate) stubborn: bool,
}

struct Candidacy {
    role: Role,
    client: Client,
    clock: OddClock,
    rate: Mutex<f64>,
    log: Mutex<File>,
    number: AtomicU64,
    session: Mutex<Option<SessionId>>,
}

/// How often a leader looks whether it leads.
const LOOK: Duration = Duration::from_millis(20);

/// Stands for election until the run ends it.
pub(crate) async fn play(role: Role) {
    let mut config = ClientConfig::default();
    config.address.clone_from(&role.consul);
    config.connect_timeout = Duration::from_secs(1);
    let client = Client::new(config).unwrap();
    let log = File::options().create(true).append(true).open(&role.log).unwrap();
    let candidacy = Arc::new(Candidacy {
        role,
        client,
        clock: OddClock::new(Arc::new(SystemClock)),
        rate: Mutex::new(1.0),
        log: Mutex::new(log),
        number: AtomicU64::new(0),
        session: Mutex::new(None),
    });
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let current: Arc<Mutex<Option<Leadership>>> = Arc::default();
    tokio::select! {
        () = Arc::clone(&candidacy).stand(Arc::clone(&current)) => {}
        () = candidacy.obey() => {}
        _ = terminate.recv() => {
            let leadership = current.lock().unwrap().take();
            if let Some(leadership) = leadership {
                let term = leadership.token().get();
                leadership.lease().end(cts_ha::Loss::Resigned);
                candidacy.note(term, What::Ended);
                leadership.resign().await;
            }
        }
    }
}

impl Candidacy {
    async fn stand(self: Arc<Self>, current: Arc<Mutex<Option<Leadership>>>) {
        let mut options = ElectionOptions::default();
        options.session_ttl = self.role.ttl;
        options.lock_delay = self.role.lock_delay;
        options.delayed = Duration::from_millis(200);
        options.clock = Arc::new(self.clock.clone());
        let consul = Consul::new(self.client.clone());
        let candidate = Candidate::new(&self.role.id);
        let elector = ConsulElector::new(&consul, &self.role.key, candidate, options).unwrap();
        loop {
            let leadership = elector.campaign().await.unwrap();
            *current.lock().unwrap() = Some(leadership.clone());
            self.lead(&leadership).await;
            leadership.resign().await;
        }
    }

    async fn lead(&self, leadership: &Leadership) {
        let term = leadership.token().get();
        let writing = self.write(leadership);
        tokio::pin!(writing);
        *self.session.lock().unwrap() = None;
        loop {
            // The clock first: what the check says was true no earlier.
            let now = SystemClock.monotonic();
            if leadership.check().is_err() {
                break;
            }
            let left = leadership.lease().remaining().unwrap();
            let rate = *self.rate.lock().unwrap();
            let until = now + left.div_f64(rate);
            self.note_at(now, term, What::Leads { until });
            tokio::select! {
                () = sleep(LOOK) => {}
                () = &mut writing => {}
                () = leadership.ended().cancelled() => {}
            }
        }
        if self.role.stubborn {
            self.go_on_regardless(term).await;
        }
        self.note(term, What::Ended);
        let session = self.session.lock().unwrap().take();
        if let Some(session) = session {
            self.try_to_write(term, session).await;
        }
    }

    /// Writes as long as it leads; each write is a key of its own.
    async fn write(&self, leadership: &Leadership) {
        let term = leadership.token().get();
        self.learn_session(term).await;
        while leadership.check().is_ok() {
            let (number, key) = self.next(term);
            let committed = leadership.commit(vec![KvOp::set(key, "x")]).await;
            if committed.is_ok() {
                self.note(term, What::Wrote(number));
            }
            sleep(LOOK * 2).await;
        }
    }

    /// For what it tries once it is deposed.
    async fn learn_session(&self, term: u64) {
        let options = QueryOptions::default();
        let read = self.client.kv_get(&self.role.key, &options);
        if let Ok(Ok(answer)) = timeout(Duration::from_millis(300), read).await
            && let Some(pair) = answer.value.filter(|pair| pair.modify_index == term)
        {
            *self.session.lock().unwrap() = pair.session;
        }
    }

    fn next(&self, term: u64) -> (u64, String) {
        let number = self.number.fetch_add(1, Ordering::SeqCst);
        (number, format!("{}/{term}/{number}", self.role.writes))
    }

    /// A deposed leader that does not ask its lease, but is fenced: Consul
    /// accepts nothing once another leads.
    async fn try_to_write(&self, term: u64, session: SessionId) {
        for _attempt in 0..3 {
            let (_, key) = self.next(term);
            let ops =
                [KvOp::check_session(&self.role.key, session.clone()), KvOp::set(key, "late")];
            let options = WriteOptions::default();
            let writing = self.client.kv_transact(&ops, &options);
            // Refused or lost, as it should be; the checker sees what was accepted.
            drop(timeout(Duration::from_millis(200), writing).await);
            sleep(LOOK).await;
        }
    }

    async fn go_on_regardless(&self, term: u64) {
        for _step in 0..300 {
            let now = SystemClock.monotonic();
            self.note_at(now, term, What::Leads { until: now + LOOK });
            let (_, key) = self.next(term);
            let options = PutOptions::default();
            let writing = self.client.kv_put(&key, "mine", &options);
            drop(timeout(LOOK, writing).await);
            sleep(LOOK).await;
        }
    }

    /// Does what the run says about this process's clock, and ends with the run.
    async fn obey(&self) {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            match line.split_once(' ') {
                Some(("rate", rate)) => {
                    let rate = rate.parse().unwrap();
                    *self.rate.lock().unwrap() = rate;
                    self.clock.set_rate(rate);
                }
                Some(("jump", millis)) => {
                    self.clock.jump(Duration::from_millis(millis.parse().unwrap()));
                }
                _ => return,
            }
        }
    }

    fn note(&self, term: u64, what: What) {
        self.note_at(SystemClock.monotonic(), term, what);
    }

    fn note_at(&self, at: Duration, term: u64, what: What) {
        let text = Line { at, term, what }.text();
        self.log.lock().unwrap().write_all(text.as_bytes()).unwrap();
    }
}
