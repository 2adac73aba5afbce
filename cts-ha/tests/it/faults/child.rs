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
    transport::SocketTransport,
    types::{KvOp, SessionId},
};
use cts_ha::{
    Candidate, Consul, ConsulElector, ElectionOptions, Elector as _, Error, Leadership, Loss,
    testing::OddClock,
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    checker::{Line, What},
    wire::{Mishap, Wire},
};

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
    /// The mistake that the checker has to find.
    pub(crate) plant: Option<Plant>,
}

/// A mistake that a process makes on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Plant {
    /// Goes on after its leadership has ended, and writes without asking Consul who leads.
    Stubborn,
    /// Does not end its work when the time for winding up is over.
    EndlessWork,
    /// Leaves the check of the lock out of what it writes as leader.
    UnfencedWrites,
    /// Counts its lease from the answer to a renewal, however late that comes.
    LateAnswers,
    /// Sends a write again when its answer was lost.
    ResentWrites,
}

struct Candidacy {
    role: Role,
    client: Client,
    clock: OddClock,
    rate: Mutex<f64>,
    log: Mutex<File>,
    number: AtomicU64,
    session: Mutex<Option<SessionId>>,
    wire: Wire,
    /// How long the work goes on when it is next asked to end.
    slow: Mutex<Duration>,
    /// Cancelled when the process is told to end.
    stopping: CancellationToken,
}

/// How often a leader looks whether it leads.
const LOOK: Duration = Duration::from_millis(20);

/// Stands for election until the run ends it.
pub(crate) async fn play(role: Role) {
    let mut config = ClientConfig::default();
    config.address.clone_from(&role.consul);
    config.connect_timeout = Duration::from_secs(1);
    let wire = Wire::new(Arc::new(SocketTransport::new(&config).unwrap()), role.plant);
    let client = Client::with_transport(config, Arc::new(wire.clone())).unwrap();
    let log = File::options().create(true).append(true).open(&role.log).unwrap();
    let candidacy = Candidacy {
        role,
        client,
        clock: OddClock::new(Arc::new(SystemClock)),
        rate: Mutex::new(1.0),
        log: Mutex::new(log),
        number: AtomicU64::new(0),
        session: Mutex::new(None),
        wire,
        slow: Mutex::default(),
        stopping: CancellationToken::new(),
    };
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    let leads = Mutex::new(false);
    let running = async {
        let standing = candidacy.stand(&leads);
        tokio::pin!(standing);
        tokio::select! {
            () = &mut standing => {}
            _ = terminate.recv() => {
                candidacy.stopping.cancel();
                // A candidate has nothing to end.
                if *leads.lock().unwrap() {
                    standing.await;
                }
            }
        }
    };
    tokio::select! {
        () = running => {}
        () = candidacy.obey() => {}
    }
}

impl Candidacy {
    /// Stands for election and leads, again and again, until it is told to end while it leads.
    async fn stand(&self, leads: &Mutex<bool>) {
        let mut options = ElectionOptions::default();
        options.session_ttl = self.role.ttl;
        options.lock_delay = self.role.lock_delay;
        options.clock = Arc::new(self.clock.clone());
        let consul = Consul::new(self.client.clone());
        let candidate = Candidate::new(&self.role.id);
        let elector = ConsulElector::new(&consul, &self.role.key, candidate, options).unwrap();
        while !self.stopping.is_cancelled() {
            let leadership = elector.campaign().await.unwrap();
            *leads.lock().unwrap() = true;
            self.lead(&leadership).await;
            leadership.resign().await;
            *leads.lock().unwrap() = false;
        }
    }

    async fn lead(&self, leadership: &Leadership) {
        let term = leadership.token().get();
        *self.session.lock().unwrap() = None;
        // Told to end in an orderly way, it still leads while its work ends.
        let mut ends: Option<Duration> = None;
        {
            let writing = self.write(leadership);
            tokio::pin!(writing);
            loop {
                // The clock first: what the check says was true no earlier.
                let now = SystemClock.monotonic();
                if leadership.check().is_err() || ends.is_some_and(|end| now >= end) {
                    break;
                }
                let left = leadership.lease().remaining().unwrap();
                let rate = *self.rate.lock().unwrap();
                let until = now + left.div_f64(rate);
                self.note_at(now, term, What::Leads { until });
                self.note_at(now, term, What::Acted);
                tokio::select! {
                    () = sleep(LOOK) => {}
                    () = &mut writing => {}
                    () = leadership.ended().cancelled() => {}
                    () = self.stopping.cancelled(), if ends.is_none() => {
                        let work = std::mem::take(&mut *self.slow.lock().unwrap());
                        ends = Some(SystemClock.monotonic() + work);
                    }
                }
            }
        }
        // Also of a write that was given up because leadership has ended.
        self.note_mishaps(term);
        if self.stopping.is_cancelled() && leadership.check().is_ok() {
            leadership.lease().end(Loss::Resigned);
            self.note(term, What::Ended);
            return;
        }
        if self.role.plant == Some(Plant::Stubborn) {
            self.go_on_regardless(term).await;
        }
        self.note(term, What::Ended);
        self.wind_up(leadership, term).await;
        if self.role.plant == Some(Plant::LateAnswers) {
            self.believe_in_answers(leadership, term).await;
        }
        let session = self.session.lock().unwrap().take();
        if let Some(session) = session {
            self.try_to_write(term, session).await;
        }
    }

    /// Goes on with the work of a lost leadership for as long as it wants, and no longer
    /// than it may: as the `loss_watch` of `tasks::CtsCluster` has it.
    async fn wind_up(&self, leadership: &Leadership, term: u64) {
        let work = std::mem::take(&mut *self.slow.lock().unwrap());
        let wanted = SystemClock.monotonic() + work;
        let killed = self.clock.monotonic() + leadership.wind_up_left();
        let endless = self.role.plant == Some(Plant::EndlessWork);
        loop {
            let now = SystemClock.monotonic();
            if now >= wanted || (!endless && self.clock.monotonic() >= killed) {
                return;
            }
            self.note_at(now, term, What::Acted);
            sleep(LOOK / 2).await;
        }
    }

    /// Believes in its leadership for one lease from each answer to a renewal.
    async fn believe_in_answers(&self, leadership: &Leadership, term: u64) {
        let lease = leadership.margin() * 4;
        for _step in 0..300 {
            let now = SystemClock.monotonic();
            if let Some(until) = self.wire.renewed().map(|renewed| renewed + lease)
                && until > now
            {
                self.note_at(now, term, What::Leads { until });
            }
            sleep(LOOK).await;
        }
    }

    /// Writes as long as it leads; each write is a key of its own.
    async fn write(&self, leadership: &Leadership) {
        let term = leadership.token().get();
        self.learn_session(term).await;
        while leadership.check().is_ok() {
            let (number, key) = self.next(term);
            // Only if the key is not there: Consul refuses what it has carried out before.
            let committed = leadership.commit(vec![KvOp::cas(key, "x", 0)]).await;
            self.note_mishaps(term);
            match committed {
                Ok(_) => self.note(term, What::Wrote(number)),
                Err(Error::RolledBack { .. }) => self.note(term, What::Refused(number)),
                // Whether it has taken effect is not known, and not claimed.
                Err(_) => {}
            }
            sleep(LOOK * 2).await;
        }
    }

    fn note_mishaps(&self, term: u64) {
        for mishap in self.wire.struck() {
            self.note(term, What::Struck(mishap));
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
                Some(("slow", millis)) => {
                    *self.slow.lock().unwrap() = Duration::from_millis(millis.parse().unwrap());
                }
                Some(("pause", millis)) => {
                    let time = Duration::from_millis(millis.parse().unwrap());
                    self.wire.strike(Mishap::Pause(time));
                }
                Some(("lose", _)) => self.wire.strike(Mishap::LostAnswer),
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
