//! Secrets with a lease: each read of one makes another lease, so they are kept, renewed and, when
//! their lease ends, read again.
//!
//! | the lease | at two thirds of it |
//! |---|---|
//! | nobody uses the secret | forgotten; a later read makes another one |
//! | can be renewed | renewed; what was granted counts from then on |
//! | was granted less than half of what it had at first | it nears its longest time: read again |
//! | cannot be renewed, or its renewal is refused | read again |
//!
//! A task uses a secret from its first read of it until its [`Uses`](super::Uses) are dropped, also while it
//! runs or while its plan waits. Whoever used the secret before is notified of another one,
//! whether the keeper or another task's run read it.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use consul_watch::Backoff;
use futures::future::join_all;
use http::Method;
use serde_json::{Value as Json, json};
use tokio::{
    sync::{Mutex as PathMutex, Notify, OwnedMutexGuard, watch},
    time::{Instant, sleep_until},
};

use super::{Problem, Result, Secret, Vault, success};

/// The shortest pause between two exchanges about one lease.
const PAUSE: Duration = Duration::from_secs(1);

/// Secrets that are used or have a lease, by path.
pub(super) struct Leases {
    entries: Mutex<HashMap<String, Entry>>,
    /// Given when a lease was added.
    added: Notify,
    /// Sent after each change of a secret.
    changes: watch::Sender<()>,
    /// Number of futures that keep leases.
    keepers: AtomicUsize,
}

/// A path of a secret, with its lease and users.
#[derive(Default)]
struct Entry {
    held: Option<Held>,
    /// Number of those who use the secret.
    users: usize,
    /// Number of times that the secret became another one.
    version: u64,
    /// `true` if the last read brought no lease: then simultaneous reads do no harm.
    unleased: bool,
    /// Taken for each read and each renewal, for two reads would make two leases.
    lock: Arc<PathMutex<()>>,
}

impl Entry {
    /// Forgets a secret that nobody uses and that is due.
    fn forget_unused(&mut self, now: Instant) {
        if self.users == 0 && self.held.as_ref().is_some_and(|held| held.due <= now) {
            self.held = None;
        }
    }

    /// Returns `true` if anybody needs the entry.
    fn is_needed(&self) -> bool {
        self.users > 0 || self.held.is_some() || Arc::strong_count(&self.lock) > 1
    }
}

/// A secret and its lease.
struct Held {
    secret: Secret,
    id: String,
    /// Duration of the lease as it was at first.
    first: Duration,
    can_be_renewed: bool,
    /// Time of the next renewal, or of the next read.
    due: Instant,
    ends: Instant,
    backoff: Backoff,
}

impl Held {
    fn new(secret: Secret, began: Instant) -> Option<Self> {
        let lease = secret.lease()?;
        Some(Self {
            id: lease.id.clone(),
            first: lease.duration,
            can_be_renewed: lease.can_be_renewed,
            due: began + two_thirds(lease.duration),
            ends: began + lease.duration,
            backoff: Backoff::default(),
            secret,
        })
    }

    /// Takes what a renewal granted.
    fn renewed(&mut self, granted: Duration, began: Instant) {
        self.due = began + two_thirds(granted);
        self.ends = began + granted;
        self.backoff = Backoff::default();
        // A lease near its longest time is granted less and less, never more again.
        self.can_be_renewed = granted >= self.first / 2;
    }
}

fn two_thirds(lease: Duration) -> Duration {
    (lease * 2 / 3).max(PAUSE)
}

/// The action on a lease that is due and used.
enum Step {
    Renew(String),
    Read(String),
}

/// The right to read or renew one secret, until it is dropped.
struct PathLock<'a> {
    leases: &'a Leases,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for PathLock<'_> {
    fn drop(&mut self) {
        self.guard = None;
        self.leases.sweep();
    }
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
            added: Notify::new(),
            changes: watch::Sender::new(()),
            keepers: AtomicUsize::new(0),
        }
    }
}

impl Leases {
    fn entries(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what nobody needs any more.
    pub(super) fn sweep(&self) {
        let now = Instant::now();
        self.entries().retain(|_, entry| {
            entry.forget_unused(now);
            entry.is_needed()
        });
    }

    /// Returns the secret of a lease that lasts, with its version. One that is used is renewed in
    /// time, so it is good to its end.
    pub(super) fn get(&self, path: &str) -> Option<(Secret, u64)> {
        let entries = self.entries();
        let entry = entries.get(path)?;
        let held = entry.held.as_ref()?;
        let is_kept = entry.users > 0 && self.keepers.load(Ordering::SeqCst) > 0;
        let until = if is_kept { held.ends } else { held.due.min(held.ends) };
        (Instant::now() < until).then(|| (held.secret.clone(), entry.version))
    }

    /// Waits until nobody else reads or renews the secret; `None` for one without a lease, which
    /// many may read at the same time.
    async fn lock(&self, path: &str) -> Option<PathLock<'_>> {
        let lock = {
            let mut entries = self.entries();
            let entry = entries.entry(path.to_owned()).or_default();
            (!entry.unleased).then(|| Arc::clone(&entry.lock))?
        };
        let locked = PathLock { leases: self, guard: Some(lock.lock_owned().await) };
        let is_unleased = self.entries().get(path).is_some_and(|entry| entry.unleased);
        (!is_unleased).then_some(locked)
    }

    /// Takes what was read, and returns its version; its users are notified if it differs from
    /// what was held.
    fn put(&self, path: &str, secret: &Secret, began: Instant) -> u64 {
        let mut entries = self.entries();
        let entry = entries.entry(path.to_owned()).or_default();
        let new = Held::new(secret.clone(), began);
        entry.unleased = new.is_none();
        let before = std::mem::replace(&mut entry.held, new);
        let differs = before.is_some_and(|before| !before.secret.is_as(secret));
        entry.version += u64::from(differs);
        let version = entry.version;
        drop(entries);
        self.sweep();
        self.added.notify_one();
        if differs {
            self.changes.send_replace(());
        }
        version
    }

    /// Returns the time of the next lease that is due; `None` while there is none.
    fn next_due(&self) -> Option<Instant> {
        self.entries().values().filter_map(|entry| Some(entry.held.as_ref()?.due)).min()
    }

    fn due_now(&self) -> Vec<String> {
        let now = Instant::now();
        let is_due = |entry: &Entry| entry.held.as_ref().is_some_and(|held| held.due <= now);
        let entries = self.entries();
        entries.iter().filter(|(_, entry)| is_due(entry)).map(|(path, _)| path.clone()).collect()
    }

    /// Returns what to do for a secret; `None` if it is not due any more, or not used.
    fn step(&self, path: &str) -> Option<Step> {
        let now = Instant::now();
        let mut entries = self.entries();
        let entry = entries.get_mut(path)?;
        entry.forget_unused(now);
        let held = entry.held.as_ref().filter(|held| held.due <= now)?;
        let id = held.id.clone();
        let renew = held.can_be_renewed && now < held.ends;
        Some(if renew { Step::Renew(id) } else { Step::Read(id) })
    }

    /// Changes a lease, unless another one took its place meanwhile.
    fn change(&self, path: &str, id: &str, change: impl FnOnce(&mut Held)) {
        let mut entries = self.entries();
        let held = entries.get_mut(path).and_then(|entry| entry.held.as_mut());
        if let Some(held) = held.filter(|held| held.id == id) {
            change(held);
        }
    }

    /// Begins a use of a secret.
    pub(super) fn take_up(&self, path: &str) {
        self.entries().entry(path.to_owned()).or_default().users += 1;
    }

    /// Ends a use of a secret; what nobody uses is forgotten at once.
    pub(super) fn give_up(&self, path: &str) {
        if let Some(entry) = self.entries().get_mut(path) {
            entry.users = entry.users.saturating_sub(1);
            if entry.users == 0 {
                entry.held = None;
            }
        }
    }

    /// Returns a receiver that is woken after each change of a secret.
    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(super) fn version(&self, path: &str) -> u64 {
        self.entries().get(path).map_or(0, |entry| entry.version)
    }
}

/// Counts a future that keeps leases, until it is dropped.
struct Keeping<'a>(&'a AtomicUsize);

impl<'a> Keeping<'a> {
    fn new(keepers: &'a AtomicUsize) -> Self {
        keepers.fetch_add(1, Ordering::SeqCst);
        Self(keepers)
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Vault {
    /// Reads a secret, and returns its version. One with a lease is read again only when two
    /// thirds of its lease are over, or, if it is kept, when its lease ends.
    ///
    /// Source: hcat 0.2, the function `secret`.
    pub(in crate::dynamic) async fn read(&self, path: &str) -> Result<(Secret, u64)> {
        if let Some(found) = self.leases.get(path) {
            return Ok(found);
        }
        let _locked = self.leases.lock(path).await;
        // Somebody else may have read it meanwhile.
        if let Some(found) = self.leases.get(path) {
            return Ok(found);
        }
        let began = Instant::now();
        let secret = self.fetch(path).await?;
        let version = self.leases.put(path, &secret, began);
        Ok((secret, version))
    }

    /// Renews leases, and reads secrets again, whenever one is due. Never ends.
    pub(in crate::dynamic) async fn keep_leases(&self) {
        let _keeping = Keeping::new(&self.leases.keepers);
        loop {
            let next = self.leases.next_due();
            tokio::select! {
                () = self.leases.added.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    let due = self.leases.due_now();
                    join_all(due.iter().map(|path| self.keep(path))).await;
                }
            }
        }
    }

    /// Does what is due for one lease.
    async fn keep(&self, path: &str) {
        let _locked = self.leases.lock(path).await;
        let id = match self.leases.step(path) {
            None => return,
            Some(Step::Read(id)) => return self.read_again(path, &id).await,
            Some(Step::Renew(id)) => id,
        };
        let began = Instant::now();
        match self.renew_lease(&id).await {
            Ok(granted) if granted > PAUSE => {
                self.leases.change(path, &id, |held| held.renewed(granted, began));
            }
            Ok(_) => self.read_again(path, &id).await,
            Err(problem) if problem.retryable => {
                tracing::warn!(
                    secret = path,
                    problem = problem.message,
                    "cannot renew the lease of a secret of Vault, trying again"
                );
                self.leases.change(path, &id, |held| {
                    held.due = Instant::now() + held.backoff.next_delay().max(PAUSE);
                });
            }
            Err(problem) => {
                tracing::info!(
                    secret = path,
                    problem = problem.message,
                    "the lease of a secret of Vault is not renewed any more, reading it again"
                );
                self.read_again(path, &id).await;
            }
        }
    }

    async fn read_again(&self, path: &str, id: &str) {
        let began = Instant::now();
        match self.fetch(path).await {
            Ok(secret) => {
                tracing::info!(
                    secret = path,
                    "the lease of a secret of Vault ended, it was read again"
                );
                self.leases.put(path, &secret, began);
            }
            Err(problem) => {
                tracing::warn!(
                    secret = path,
                    problem = problem.message,
                    "cannot read a secret of Vault again whose lease ends, trying again"
                );
                self.leases.change(path, id, |held| {
                    held.due = Instant::now() + held.backoff.next_delay().max(PAUSE);
                    // Its time is over; only reading helps.
                    held.can_be_renewed = false;
                });
            }
        }
    }

    /// Returns the duration that was granted.
    async fn renew_lease(&self, id: &str) -> Result<Duration> {
        let body = json!({"lease_id": id});
        let (status, answer) = self.call(Method::POST, "sys/leases/renew", Some(body)).await?;
        let answer = success(status, answer)?;
        let seconds = answer.get("lease_duration").and_then(Json::as_u64);
        let seconds = seconds.ok_or_else(|| Problem::new("Vault granted no duration", false))?;
        Ok(Duration::from_secs(seconds))
    }
}
