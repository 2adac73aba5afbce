//! One listener for all watches of a process.
//!
//! It is there while somebody watches. A notification says that there are changes; it
//! then reads those after the last one that it published, in the order of their numbers,
//! which is that of their commits. When its connection breaks, it connects again, to
//! whichever server takes writes, and reads on from there:
//!
//! | finds | does |
//! |---|---|
//! | the same history, and all changes since | goes on; nobody notices |
//! | the same history, of which some changes since were removed | closes every watch |
//! | another history: a restore, or a standby that was promoted, which another connection may find first | closes every watch |
//! | a lower number in the same history: the server's files are of before | begins another history, and closes every watch |

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::time::timeout;
use tokio_postgres::{Row, types::ToSql};

use super::{
    connection::Dedicated,
    database::{Database, delay_after},
    failure::{Failure, judge},
    record::decode,
    schema::random_name,
};
use crate::{
    backend::{
        Result,
        store::{self, change::Change, following::open},
    },
    pb::Resource,
};

const WATCHING: &str = "watching PostgreSQL";
/// Number of changes that are read at a time.
const PAGE: i64 = 512;
/// Time without a notification after which it asks: a connection can die without a word.
const QUIET: Duration = Duration::from_secs(15);
/// Number of refusals in a row after which every watch closes.
const REFUSALS: u32 = 3;
const OTHER_HISTORY: &str = "another history counts: a restore or a failover";

/// The changes of a history, by its name.
pub(super) type Following = store::following::Following<String>;

/// The listener of a process, if it has one.
pub(super) type Current = Mutex<Weak<Following>>;

/// Returns the listener that is there already, or makes one.
pub(super) async fn following(
    database: &Arc<Database>,
    current: &Current,
) -> Result<Arc<Following>> {
    if let Some(following) = open(&current.lock().unwrap_or_else(PoisonError::into_inner)) {
        return Ok(following);
    }
    let begun = database.persist(|| async {
        // Listening comes first, so that nothing falls between.
        let dedicated = database.listener().await?;
        let row = dedicated.client.query_one(&database.statements.position, &[]).await;
        let row = row.map_err(|error| judge(&error).repeatable())?;
        Ok((dedicated, row))
    });
    let (dedicated, row) = begun.await.map_err(|failure| database.error(failure, WATCHING))?;
    let unreadable = |error| crate::backend::Error::failed(WATCHING, error);
    let history: String = row.try_get(0).map_err(unreadable)?;
    let last = row.try_get(1).map_err(unreadable)?;
    let mut known = current.lock().unwrap_or_else(PoisonError::into_inner);
    // Another watch may have been faster.
    if let Some(following) = open(&known) {
        return Ok(following);
    }
    let following = Arc::new(Following::new(history, database.watch_buffer));
    let follower = Follower {
        database: Arc::clone(database),
        following: Arc::downgrade(&following),
        history: following.history().clone(),
        last,
    };
    following.fed_by(tokio::spawn(follower.run(dedicated)));
    *known = Arc::downgrade(&following);
    Ok(following)
}

/// The task behind a [`Following`]. It ends with it.
struct Follower {
    database: Arc<Database>,
    following: Weak<Following>,
    history: String,
    /// Every change up to this number was published.
    last: i64,
}

/// Why a connection is not followed any more.
#[derive(Debug)]
enum End {
    /// Go on on another one.
    Broken(Failure),
    /// The next changes are unknown, for this reason.
    Closed(String),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Broken(failure)
    }
}

/// A row that does not have the columns that were asked for.
impl From<tokio_postgres::Error> for End {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Closed(error.to_string())
    }
}

impl Follower {
    async fn run(mut self, first: Dedicated) {
        let (mut failures, mut refusals) = (0_u32, 0_u32);
        let mut dedicated = Some(first);
        loop {
            let before = self.last;
            let connected = match dedicated.take() {
                Some(first) => Ok(first),
                None => self.database.listener().await,
            };
            let end = match connected {
                Ok(mut dedicated) => self.follow(&mut dedicated).await,
                Err(failure) => Err(End::Broken(failure)),
            };
            failures = if self.last > before { 0 } else { failures.saturating_add(1) };
            match end {
                Ok(()) => return,
                Err(End::Closed(reason)) => return self.close(&reason),
                Err(End::Broken(failure)) => {
                    refusals = if failure.is_passing() { 0 } else { refusals + 1 };
                    if refusals >= REFUSALS {
                        return self.close(&format!("{failure:?}"));
                    }
                    tracing::debug!(?failure, failures, "the watch of PostgreSQL connects again");
                }
            }
            tokio::time::sleep(delay_after(failures)).await;
        }
    }

    fn close(&self, reason: &str) {
        tracing::info!(reason, "watches of PostgreSQL close");
        if let Some(following) = self.following.upgrade() {
            following.close();
        }
    }

    /// Publishes changes until the connection ends, or nobody watches.
    async fn follow(&mut self, dedicated: &mut Dedicated) -> Result<(), End> {
        let mut names = self.database.progress.names();
        loop {
            // Before the changes are read, so that a notification meanwhile is not missed.
            dedicated.told.borrow_and_update();
            while self.take_page(dedicated).await? {}
            // A primary that was replaced may live on and answer, of its own history: another
            // connection of this process has found its successor.
            if *names.borrow_and_update() != self.history {
                return Err(End::Closed(OTHER_HISTORY.to_owned()));
            }
            tokio::select! {
                told = timeout(QUIET, dedicated.told.changed()) => {
                    if let Ok(Err(_closed)) = told {
                        let reason = "the connection ended".to_owned();
                        return Err(End::Broken(Failure::Unreachable(reason)));
                    }
                }
                // The sender lives as long as the database.
                _ = names.changed() => {}
            }
            if self.following.strong_count() == 0 {
                return Ok(());
            }
        }
    }

    /// Publishes the next changes; returns `true` if there may be more.
    async fn take_page(&mut self, dedicated: &Dedicated) -> Result<bool, End> {
        let statements = &self.database.statements;
        let limit = self.database.attempt_timeout;
        let parameters: [&(dyn ToSql + Sync); 2] = [&self.last, &PAGE];
        let asking = dedicated.client.query(&statements.changes, &parameters);
        let rows = match timeout(limit, asking).await {
            Ok(rows) => rows.map_err(|error| judge(&error))?,
            Err(_elapsed) => {
                return Err(Failure::Unreachable("no answer in time".to_owned()).into());
            }
        };
        let Some(first) = rows.first() else {
            return Err(End::Closed("the table store is empty".to_owned()));
        };
        let (name, seq, pruned): (&str, i64, i64) =
            (first.try_get(0)?, first.try_get(1)?, first.try_get(2)?);
        if name != self.history {
            self.database.progress.learn(name, seq);
            return Err(End::Closed(OTHER_HISTORY.to_owned()));
        }
        if seq < self.last {
            return Err(self.went_back(dedicated, seq).await);
        }
        if pruned > self.last {
            return Err(End::Closed(format!(
                "changes up to {pruned} were removed, and the last one seen is {}",
                self.last
            )));
        }
        if first.try_get::<_, Option<i64>>(3)?.is_none() {
            return Ok(false);
        }
        let following =
            self.following.upgrade().ok_or_else(|| End::Closed("nobody watches".to_owned()))?;
        for row in &rows {
            let change = change_of(row)?;
            self.last = row.try_get(3)?;
            following.publish(&change);
        }
        self.database.progress.reached(self.last);
        Ok(rows.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX))
    }

    /// The server has the files of an earlier time, and gives numbers again that were given.
    async fn went_back(&self, dedicated: &Dedicated, seq: i64) -> End {
        tracing::warn!(from = self.last, to = seq, "PostgreSQL went back in time");
        let name = random_name();
        let statement = &self.database.statements.rename;
        match dedicated.client.execute(statement, &[&name, &self.history, &self.last]).await {
            Ok(_) => End::Closed("the server went back in time".to_owned()),
            Err(error) => End::Broken(judge(&error)),
        }
    }
}

/// Reads a change from the columns after the third.
fn change_of(row: &Row) -> Result<Change, End> {
    let decoded = |column: usize| -> Result<Arc<Resource>, End> {
        decode(row, column, WATCHING).map_err(|error| End::Closed(error.to_string()))
    };
    let seq: i64 = row.try_get(3)?;
    let index = u64::try_from(seq).unwrap_or_default();
    let kind: i16 = row.try_get(4)?;
    let resource = decoded(5)?;
    let replaced = row.try_get::<_, Option<&str>>(7)?.map(|_| decoded(7)).transpose()?;
    Ok(match (kind, replaced) {
        (DELETED, _) => Change::delete(index, resource),
        (CREATED, _) => Change::write(index, None, resource),
        (_, Some(replaced)) => Change::write(index, Some(&replaced), resource),
        // What it replaced has the same type, and nothing else is asked of it.
        (_, None) => Change::write(index, Some(&Arc::clone(&resource)), resource),
    })
}

const CREATED: i16 = 0;
const DELETED: i16 = 2;
