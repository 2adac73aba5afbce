//! The one task that changes resources.
//!
//! Changes of one store take turns in any case: their numbers have to be in the order of
//! their commits, because a watch reads what is after the last number it saw. So those
//! of one process that wait while a statement is under way go together into the next one,
//! and share its round trip and its commit to the disk.
//!
//! The other ways were worse. A number from a sequence alone is visible out of
//! order, and a watch would miss the late one. Reading up to the oldest transaction
//! that is open (`pg_snapshot_xmin`) lets writers of several processes commit at the
//! same time, but any long transaction anywhere on the server then holds up every
//! watch, and two watchers see two changes in different orders.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use tokio::sync::{mpsc, oneshot};

use super::{database::Database, failure::Failure};

/// Upper bounds of a statement: number of changes, and their bytes; and of what waits.
const MOST: usize = 128;
const MOST_BYTES: usize = 4 << 20;
const QUEUE: usize = 1024;
/// Number of changes after which the oldest ones are removed.
const PRUNE_EVERY: i64 = 1024;

/// A conditional change to one resource.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) key: Vec<u8>,
    pub(super) uid: String,
    /// Version that has to be there; empty for a creation.
    pub(super) expected: String,
    /// Version to be stored; of no meaning for a delete.
    pub(super) version: String,
    pub(super) group_version: String,
    pub(super) owner: Option<Vec<u8>>,
    /// The resource to store; none for a delete.
    pub(super) value: Option<Vec<u8>>,
    /// Number of a change: it may take place only while all later ones are kept, and so
    /// not after a restore, which keeps none; none for whenever.
    pub(super) floor: Option<i64>,
}

impl Asked {
    fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// The outcome of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The condition did not hold.
    Refused,
    /// It held, and another change was faster.
    Overtaken,
}

type Answer = oneshot::Sender<Result<Outcome, Failure>>;
type Waiting = (Asked, Answer);

/// The way to the task.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    queue: mpsc::Sender<Waiting>,
}

impl Writer {
    /// Starts the task, which ends with the last handle.
    pub(super) fn start(database: Arc<Database>, keep_changes: u32) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        // It ends by itself, after what it has begun.
        drop(tokio::spawn(serve(database, waiting, i64::from(keep_changes))));
        Self { queue }
    }

    /// Does a change, once.
    pub(super) async fn change(&self, asked: Asked) -> Result<Outcome, Failure> {
        let (answer, answered) = oneshot::channel();
        let ended = || Failure::Refused("the runtime of this backend has ended".to_owned());
        self.queue.send((asked, answer)).await.map_err(|_ended| ended())?;
        answered.await.map_err(|_ended| ended())?
    }
}

async fn serve(database: Arc<Database>, mut queue: mpsc::Receiver<Waiting>, keep_changes: i64) {
    let mut waiting = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match queue.recv().await {
                Some(next) => waiting.push_back(next),
                None => return,
            }
        }
        while waiting.len() < MOST
            && let Ok(next) = queue.try_recv()
        {
            waiting.push_back(next);
        }
        let batch = take_batch(&mut waiting);
        let before = database.progress.seq();
        answer(&database, batch).await;
        let after = database.progress.seq();
        if after / PRUNE_EVERY != before / PRUNE_EVERY {
            prune(&database, keep_changes).await;
        }
    }
}

/// Takes what can be done in one statement: each resource once.
fn take_batch(waiting: &mut VecDeque<Waiting>) -> Vec<Waiting> {
    let (mut batch, mut rest) = (Vec::new(), VecDeque::new());
    let (mut keys, mut bytes) = (HashSet::new(), 0);
    while let Some((asked, answer)) = waiting.pop_front() {
        // Whoever asked has gone; what was not begun is left undone.
        if answer.is_closed() {
            continue;
        }
        let room = batch.is_empty() || bytes + asked.bytes() <= MOST_BYTES;
        if room && keys.insert(asked.key.clone()) {
            bytes += asked.bytes();
            batch.push((asked, answer));
        } else {
            keys.insert(asked.key.clone());
            rest.push_back((asked, answer));
        }
    }
    *waiting = rest;
    batch
}

async fn answer(database: &Database, batch: Vec<Waiting>) {
    let (asked, answers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
    if asked.is_empty() {
        return;
    }
    let results = match execute(database, &asked).await {
        Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
        // One that the server takes offence at must not take the others with it.
        Err(Failure::Refused(_)) if asked.len() > 1 => {
            let mut results = Vec::new();
            for asked in &asked {
                let outcome = execute(database, std::slice::from_ref(asked)).await;
                results.push(outcome.map(|all| all.first().copied().unwrap_or(Outcome::Refused)));
            }
            results
        }
        Err(failure) => vec![Err(failure); asked.len()],
    };
    for (answer, result) in answers.into_iter().zip(results) {
        // Whoever asked may have gone meanwhile.
        drop(answer.send(result));
    }
}

/// Does the changes in one statement, once.
async fn execute(database: &Database, asked: &[Asked]) -> Result<Vec<Outcome>, Failure> {
    let row = database
        .run(|client| {
            let (statements, asked) = (Arc::clone(&database.statements), asked.to_vec());
            Box::pin(async move {
                let statement = client.prepare_cached(&statements.write).await?;
                let column = |of: fn(&Asked) -> &str| asked.iter().map(of).collect::<Vec<_>>();
                let keys: Vec<_> = asked.iter().map(|asked| asked.key.as_slice()).collect();
                let uids = column(|asked| &asked.uid);
                let expected = column(|asked| &asked.expected);
                let versions = column(|asked| &asked.version);
                let group_versions = column(|asked| &asked.group_version);
                let owners: Vec<_> = asked.iter().map(|asked| asked.owner.as_deref()).collect();
                let values: Vec<_> = asked.iter().map(|asked| asked.value.as_deref()).collect();
                let count = i64::try_from(asked.len()).unwrap_or(i64::MAX);
                let floors: Vec<_> = asked.iter().map(|asked| asked.floor).collect();
                client
                    .query_one(
                        &statement,
                        &[
                            &keys,
                            &uids,
                            &expected,
                            &versions,
                            &group_versions,
                            &owners,
                            &values,
                            &floors,
                            &count,
                            &statements.schema,
                        ],
                    )
                    .await
            })
        })
        .await?;
    let unreadable = |error: tokio_postgres::Error| Failure::Refused(error.to_string());
    let name: &str = row.try_get(0).map_err(unreadable)?;
    let base: Option<i64> = row.try_get(1).map_err(unreadable)?;
    let fit: Vec<i64> = row.try_get(2).map_err(unreadable)?;
    let done: Vec<i64> = row.try_get(3).map_err(unreadable)?;
    let reached = base.map_or(0, |base| base + i64::try_from(asked.len()).unwrap_or(0));
    database.progress.learn(name, reached);
    let outcome = |place: i64| match () {
        () if done.contains(&place) => Outcome::Done,
        () if fit.contains(&place) => Outcome::Overtaken,
        () => Outcome::Refused,
    };
    Ok((1..).take(asked.len()).map(outcome).collect())
}

/// Removes the oldest changes. If that fails, the next time does it.
async fn prune(database: &Database, keep_changes: i64) {
    let pruned = database.run(|client| {
        let statements = Arc::clone(&database.statements);
        Box::pin(async move { client.execute(&statements.prune, &[&keep_changes]).await })
    });
    if let Err(failure) = pruned.await {
        tracing::warn!(?failure, "old changes are left in PostgreSQL for now");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(key: &str, bytes: usize) -> Waiting {
        let asked = Asked {
            key: key.as_bytes().to_vec(),
            uid: String::new(),
            expected: String::new(),
            version: String::new(),
            group_version: String::new(),
            owner: None,
            value: Some(vec![0; bytes]),
            floor: None,
        };
        // The other end has to stay, or it counts as gone.
        let (answer, answered) = oneshot::channel();
        std::mem::forget(answered);
        (asked, answer)
    }

    fn keys(batch: &[Waiting]) -> Vec<&str> {
        batch.iter().map(|(asked, _)| str::from_utf8(&asked.key).unwrap()).collect()
    }

    #[test]
    fn a_batch_has_each_resource_once_and_the_rest_keeps_its_order() {
        let mut waiting = VecDeque::from([
            asked("a", 1),
            asked("b", 1),
            asked("a", 1),
            asked("c", MOST_BYTES),
            asked("c", 1),
        ]);
        assert_eq!(keys(&take_batch(&mut waiting)), ["a", "b"]);
        assert_eq!(keys(&take_batch(&mut waiting)), ["a"]);
        assert_eq!(keys(&take_batch(&mut waiting)), ["c"]);
        assert_eq!(keys(&take_batch(&mut waiting)), ["c"]);
        assert!(take_batch(&mut waiting).is_empty());
    }

    #[test]
    fn what_nobody_waits_for_is_not_begun() {
        let mut one = asked("a", 1);
        let (answer, answered) = oneshot::channel();
        one.1 = answer;
        drop(answered);
        assert!(take_batch(&mut VecDeque::from([one])).is_empty());
    }
}
