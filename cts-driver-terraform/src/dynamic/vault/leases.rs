//! Secrets with a lease: each read of one makes another lease, so they are kept, renewed and, when
//! their lease ends, read again.
//!
//! | the lease | at two thirds of it |
//! |---|---|
//! | nobody waits for changes of the secret | left to end; a later read makes another one |
//! | can be renewed | renewed; what was granted counts from then on |
//! | was granted less than half of what it had at first | it nears its longest time: read again |
//! | cannot be renewed, or its renewal is refused | read again |
//!
//! Whoever waits for a change of the secret is notified when the one that was read again differs.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use consul_watch::Backoff;
use futures::future::join_all;
use http::Method;
use serde_json::{Value as Json, json};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::{Problem, Result, Secret, Vault, success};

/// The shortest pause between two exchanges about one lease.
const PAUSE: Duration = Duration::from_secs(1);

/// Secrets with a lease, by path.
pub(super) struct Leases {
    held: Mutex<HashMap<String, Held>>,
    /// Number of those who wait for a change of a secret, by path.
    waiting: Mutex<HashMap<String, usize>>,
    /// Given when a lease was added.
    added: Notify,
    /// Number of changes of each secret that a read after its lease brought.
    changes: watch::Sender<HashMap<String, u64>>,
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
    /// Nobody waited for its changes when it was due: it is left to end.
    left: bool,
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
            left: false,
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

/// The action on a lease that is due.
enum Step {
    Leave,
    Renew(String),
    Read,
}

impl Default for Leases {
    fn default() -> Self {
        Self {
            held: Mutex::default(),
            waiting: Mutex::default(),
            added: Notify::new(),
            changes: watch::Sender::new(HashMap::new()),
        }
    }
}

impl Leases {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waited_for(&self, path: &str) -> bool {
        self.waiting().contains_key(path)
    }

    /// Returns the secret of a lease that lasts. One that is due and waited for is renewed just
    /// now, so it is good to its end.
    pub(super) fn get(&self, path: &str) -> Option<Secret> {
        let waited_for = self.is_waited_for(path);
        let held = self.held();
        let found = held.get(path)?;
        let now = Instant::now();
        let until = if waited_for && !found.left { found.ends } else { found.due };
        (now < until).then(|| found.secret.clone())
    }

    /// Keeps a secret that has a lease.
    pub(super) fn add(&self, path: &str, secret: &Secret, began: Instant) {
        if let Some(new) = Held::new(secret.clone(), began) {
            self.held().insert(path.to_owned(), new);
            self.added.notify_one();
        }
    }

    /// Returns the time of the next lease that is due; `None` while there is none.
    fn next_due(&self) -> Option<Instant> {
        self.held().values().filter(|held| !held.left).map(|held| held.due).min()
    }

    fn due_now(&self) -> Vec<String> {
        let now = Instant::now();
        let held = self.held();
        let due = held.iter().filter(|(_, held)| !held.left && held.due <= now);
        due.map(|(path, _)| path.clone()).collect()
    }

    fn step(&self, path: &str) -> Option<Step> {
        let waited_for = self.is_waited_for(path);
        let mut all = self.held();
        let held = all.get_mut(path)?;
        if !waited_for {
            held.left = true;
            return Some(Step::Leave);
        }
        let renew = held.can_be_renewed && Instant::now() < held.ends;
        Some(if renew { Step::Renew(held.id.clone()) } else { Step::Read })
    }

    /// Changes a lease, unless another one took its place meanwhile.
    fn change(&self, path: &str, id: &str, change: impl FnOnce(&mut Held)) {
        if let Some(held) = self.held().get_mut(path).filter(|held| held.id == id) {
            change(held);
        }
    }

    /// Puts what was read in the place of a lease; whoever waits is notified if it differs.
    fn replace(&self, path: &str, secret: &Secret, began: Instant) {
        let mut all = self.held();
        let before = all.remove(path);
        if let Some(new) = Held::new(secret.clone(), began) {
            all.insert(path.to_owned(), new);
        }
        drop(all);
        if before.is_some_and(|before| !before.secret.is_as(secret)) {
            self.changes.send_modify(|changes| *changes.entry(path.to_owned()).or_default() += 1);
        }
    }

    /// Waits until one of these secrets was read again and differs. Meanwhile their leases are
    /// renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait, and nothing else.
    pub(super) async fn changed(&self, paths: &[&str]) {
        let _waiting = Waiting::new(self, paths);
        let count = |changes: &HashMap<String, u64>| -> Vec<u64> {
            paths.iter().map(|path| changes.get(*path).copied().unwrap_or(0)).collect()
        };
        let mut receiver = self.changes.subscribe();
        let known = count(&receiver.borrow_and_update());
        // The sender lives as long as this.
        let _end = receiver.wait_for(|changes| count(changes) != known).await;
    }
}

/// Counts somebody who waits for changes of secrets, until it is dropped.
struct Waiting<'a> {
    leases: &'a Leases,
    paths: Vec<String>,
}

impl<'a> Waiting<'a> {
    fn new(leases: &'a Leases, paths: &[&str]) -> Self {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let mut waiting = leases.waiting();
        for path in &paths {
            *waiting.entry(path.clone()).or_default() += 1;
        }
        drop(waiting);
        Self { leases, paths }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.leases.waiting();
        for path in &self.paths {
            if let Some(count) = waiting.get_mut(path) {
                *count -= 1;
                if *count == 0 {
                    waiting.remove(path);
                }
            }
        }
    }
}

impl Vault {
    /// Renews leases, and reads secrets again, whenever one is due. Never ends.
    pub(in crate::dynamic) async fn keep_leases(&self) {
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

    /// Waits until one of these secrets is another one than it was; see [`Leases::changed`].
    pub(in crate::dynamic) async fn changed(&self, paths: &[&str]) {
        self.leases.changed(paths).await;
    }

    /// Does what is due for one lease.
    async fn keep(&self, path: &str) {
        let id = match self.leases.step(path) {
            None | Some(Step::Leave) => return,
            Some(Step::Read) => return self.read_again(path).await,
            Some(Step::Renew(id)) => id,
        };
        let began = Instant::now();
        match self.renew_lease(&id).await {
            Ok(granted) if granted > PAUSE => {
                self.leases.change(path, &id, |held| held.renewed(granted, began));
            }
            Ok(_) => self.read_again(path).await,
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
                self.read_again(path).await;
            }
        }
    }

    async fn read_again(&self, path: &str) {
        let began = Instant::now();
        match self.fetch(path).await {
            Ok(secret) => {
                tracing::info!(
                    secret = path,
                    "the lease of a secret of Vault ended, it was read again"
                );
                self.leases.replace(path, &secret, began);
            }
            Err(problem) => {
                tracing::warn!(
                    secret = path,
                    problem = problem.message,
                    "cannot read a secret of Vault again whose lease ends, trying again"
                );
                let mut all = self.leases.held();
                if let Some(held) = all.get_mut(path) {
                    held.due = Instant::now() + held.backoff.next_delay().max(PAUSE);
                    // Its time is over; only reading helps.
                    held.can_be_renewed = false;
                }
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
