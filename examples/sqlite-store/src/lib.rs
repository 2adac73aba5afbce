//! A store of your own: tasks, events and plans of a deployment in a file of `SQLite`.
//!
//! Hand it to an engine as `EngineOptions::store`. The suite `cts_tasks::testing::store`
//! judges it in `tests/`.

use std::{
    collections::BTreeMap,
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use cts_tasks::{BoxError, Change, Error, Result, State, TaskStore};
use rusqlite::{Connection, params};
use serde_json::{Map, Value};

/// Keeps the state in a database that no other process has open meanwhile.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    database: Connection,
    /// What the database holds.
    state: State,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the file, or makes it. It blocks.
    ///
    /// # Errors
    ///
    /// When it cannot be opened, or another process has it.
    pub fn open(path: &Path) -> Result<Self> {
        let opened = (|| {
            let database = Connection::open(path)?;
            // Whoever comes second is refused at once, and what is committed is on the disk.
            database.execute_batch(
                "PRAGMA locking_mode = EXCLUSIVE;
                 PRAGMA synchronous = FULL;
                 BEGIN EXCLUSIVE;
                 CREATE TABLE IF NOT EXISTS state (
                     section TEXT, name TEXT, body TEXT NOT NULL, PRIMARY KEY (section, name)
                 ) WITHOUT ROWID;
                 COMMIT;",
            )?;
            let state = read(&database)?;
            Ok(Shared { database, state })
        })();
        let shared = opened.map_err(|error: BoxError| Error::other("opening the store", error))?;
        Ok(Self { shared: Arc::new(Mutex::new(shared)) })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&mut Shared) -> Result<T, BoxError> + Send + 'static,
    ) -> Result<T> {
        let shared = Arc::clone(&self.shared);
        let worked = tokio::task::spawn_blocking(move || {
            work(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let done = worked.await.map_err(|error| Error::other(operation, error))?;
        done.map_err(|error| Error::other(operation, error))
    }
}

#[async_trait]
impl TaskStore for SqliteStore {
    async fn load(&self) -> Result<State> {
        self.blocking("loading the state", |shared| read(&shared.database)).await
    }

    async fn commit(&self, batch: &[Change]) -> Result<()> {
        let batch = batch.to_vec();
        self.blocking("committing to the store", move |shared| {
            let mut next = shared.state.clone();
            batch.iter().for_each(|change| next.apply(change));
            let (before, after) = (rows(&shared.state)?, rows(&next)?);
            let transaction = shared.database.transaction()?;
            for (section, name) in before.keys().filter(|row| !after.contains_key(*row)) {
                transaction
                    .execute("DELETE FROM state WHERE section = ? AND name = ?", [section, name])?;
            }
            for (row, body) in after.iter().filter(|(row, body)| before.get(*row) != Some(body)) {
                let put = "INSERT OR REPLACE INTO state (section, name, body) VALUES (?, ?, ?)";
                transaction.execute(put, params![row.0, row.1, body])?;
            }
            transaction.commit()?;
            shared.state = next;
            Ok(())
        })
        .await
    }
}

/// A section of the state and what identifies an entry in it.
type Row = (String, String);

/// One row for each entry of each section, so that a commit writes only what changed. What
/// sections there are is the state's own matter.
fn rows(state: &State) -> Result<BTreeMap<Row, String>, BoxError> {
    let Value::Object(sections) = serde_json::to_value(state)? else {
        return Err("the state is no object".into());
    };
    let mut rows = BTreeMap::new();
    for (section, entries) in sections {
        match entries {
            Value::Array(items) => {
                for (position, item) in items.into_iter().enumerate() {
                    // The order of the names is that of the items.
                    rows.insert((section.clone(), format!("[{position:08}]")), item.to_string());
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    rows.insert((section.clone(), name), member.to_string());
                }
            }
            other => return Err(format!("section {section} is {other}").into()),
        }
    }
    Ok(rows)
}

fn read(database: &Connection) -> Result<State, BoxError> {
    let Value::Object(mut sections) = serde_json::to_value(State::default())? else {
        return Err("the state is no object".into());
    };
    let mut query = database.prepare("SELECT section, name, body FROM state ORDER BY 1, 2")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (section, name, body): (String, String, String) =
            (row.get(0)?, row.get(1)?, row.get(2)?);
        let body = serde_json::from_str(&body)?;
        match sections.entry(section).or_insert_with(|| Map::new().into()) {
            Value::Array(items) => items.push(body),
            Value::Object(members) => drop(members.insert(name, body)),
            _ => return Err("a section is neither a list nor a map".into()),
        }
    }
    Ok(serde_json::from_value(sections.into())?)
}
