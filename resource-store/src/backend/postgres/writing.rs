//! Conditional writes and deletes, and what became of those whose answer was lost.
//!
//! The writer chooses the version, which no other write ever has. So whether a write took
//! place can be read back: its version is what is stored, or it is among the changes since.

use std::sync::Arc;

use super::{
    batch::{Asked, Outcome, Writer},
    database::Database,
    failure::Failure,
    reading::find,
    record::{encode, group_version},
};
use crate::{
    backend::{
        Error, Result,
        store::{
            condition::{check_delete, check_write},
            key,
        },
    },
    pb::{Id, Resource},
};

const WRITING: &str = "writing to PostgreSQL";
const DELETING: &str = "deleting from PostgreSQL";

/// A change under way, with what was known before its first attempt.
struct Change<'a> {
    database: &'a Database,
    writer: &'a Writer,
    asked: Asked,
    operation: &'static str,
    /// Number of the last change.
    floor: i64,
    /// Why an earlier attempt may have taken place; none if none can have.
    uncertain: Option<String>,
}

/// The knowledge of a change that did not take place at its last attempt.
enum Fate {
    /// An earlier attempt did.
    Done,
    /// None did, and none will: what it expects is there no more.
    Never,
    /// Nobody can tell.
    Unknown,
}

/// The next step after an attempt.
enum Next {
    Done,
    /// The state that it expects was not there.
    Refused,
    /// A creation that may have taken place.
    Lost(String),
}

impl<'a> Change<'a> {
    fn new(
        database: &'a Database,
        writer: &'a Writer,
        asked: Asked,
        operation: &'static str,
    ) -> Self {
        let floor = database.progress.seq();
        Self { database, writer, asked, operation, floor, uncertain: None }
    }

    fn unknown(&self, reason: &str) -> Error {
        Failure::Unanswered(reason.to_owned()).into_error(self.operation, &self.database.place)
    }

    /// Returns the error of a step after the attempts: where one of them may have taken
    /// place, that one is unknown.
    fn failed(&self, error: Error) -> Error {
        match &self.uncertain {
            Some(reason) => self.unknown(reason),
            None => error,
        }
    }

    /// Attempts it until there is an answer.
    ///
    /// A change that expects a version is repeated when the answer was lost: the version
    /// is there once, so at most one attempt takes effect. A creation is not: where someone
    /// has deleted what it created, a second attempt would bring that back.
    async fn attempt(&mut self) -> Result<Next> {
        let mut attempts = self.database.attempts();
        loop {
            let failure = match self.writer.change(self.asked.clone()).await {
                Ok(Outcome::Done) => return Ok(Next::Done),
                Ok(Outcome::Refused | Outcome::Overtaken) => return Ok(Next::Refused),
                Err(failure) => failure,
            };
            if let Failure::Unanswered(reason) = &failure {
                if self.asked.expected.is_empty() {
                    return Ok(Next::Lost(reason.clone()));
                }
                self.uncertain = Some(reason.clone());
                // A restore may bring the expected version back.
                self.asked.floor = Some(self.floor);
            }
            if !failure.is_passing() || !attempts.pause().await {
                return Err(self.failed(self.database.error(failure, self.operation)));
            }
        }
    }

    /// Finds out whether an earlier attempt took place, by the changes since.
    async fn fate(&self) -> Result<Fate> {
        let deletes = self.asked.value.is_none();
        let version = if deletes { &self.asked.expected } else { &self.asked.version };
        let row = self.database.read(self.operation, |client| {
            let statements = Arc::clone(&self.database.statements);
            let (floor, version) = (self.floor, version.clone());
            Box::pin(async move {
                let statement = client.prepare_cached(&statements.find_change).await?;
                client.query_one(&statement, &[&floor, &version, &deletes]).await
            })
        });
        let row = row.await?;
        let unreadable = |error| Error::failed(self.operation, error);
        let pruned: i64 = row.try_get(0).map_err(unreadable)?;
        Ok(match row.try_get(1).map_err(unreadable)? {
            true => Fate::Done,
            // A restore keeps no change.
            false if pruned <= self.floor => Fate::Never,
            false => Fate::Unknown,
        })
    }

    /// The same, where failing to find out leaves it unknown.
    async fn settle(&self, reason: &str) -> Result<bool> {
        match self.fate().await {
            Ok(Fate::Done) => Ok(true),
            Ok(Fate::Never) => Ok(false),
            Ok(Fate::Unknown) | Err(_) => Err(self.unknown(reason)),
        }
    }
}

pub(super) async fn write(
    database: &Database,
    writer: &Writer,
    resource: Resource,
) -> Result<Arc<Resource>> {
    let id =
        resource.id.as_ref().ok_or_else(|| Error::failed(WRITING, "the resource has no id"))?;
    let id = id.clone();
    let asked = Asked {
        key: key::resource_key(&id),
        uid: id.uid.clone(),
        expected: resource.version.clone(),
        version: new_version(),
        group_version: group_version(&resource).to_owned(),
        owner: resource.owner.as_ref().map(key::owner_prefix),
        value: Some(encode(&resource)),
        floor: None,
    };
    let version = asked.version.clone();
    let mut change = Change::new(database, writer, asked, WRITING);
    let mut attempts = database.attempts();
    loop {
        match change.attempt().await? {
            Next::Done => break,
            Next::Lost(reason) => {
                // What is not there now may come yet.
                let found = find(database, &id).await.map_err(|_error| change.unknown(&reason))?;
                if found.is_some_and(|found| found.version == version)
                    || matches!(change.fate().await, Ok(Fate::Done))
                {
                    break;
                }
                return Err(change.unknown(&reason));
            }
            Next::Refused => {}
        }
        if let Some(reason) = change.uncertain.clone()
            && change.settle(&reason).await?
        {
            break;
        }
        let found = find(database, &id).await?;
        check_write(found.as_deref(), &resource)?;
        // What it expects came between the two, as after a delete, or a restore.
        change.asked.floor = None;
        change.uncertain = None;
        if !attempts.pause().await {
            return Err(changed_too_often());
        }
    }
    Ok(Arc::new(Resource { version, ..resource }))
}

pub(super) async fn delete(
    database: &Database,
    writer: &Writer,
    id: &Id,
    version: &str,
) -> Result<()> {
    let asked = Asked {
        key: key::resource_key(id),
        uid: id.uid.clone(),
        expected: version.to_owned(),
        version: String::new(),
        group_version: String::new(),
        owner: None,
        value: None,
        floor: None,
    };
    let mut change = Change::new(database, writer, asked, DELETING);
    let mut attempts = database.attempts();
    loop {
        match change.attempt().await? {
            Next::Done => return Ok(()),
            // Nothing has an empty version, so it did nothing.
            Next::Refused | Next::Lost(_) => {}
        }
        let found = find(database, id).await.map_err(|error| change.failed(error))?;
        let Some(found) = found else { return Ok(()) };
        match check_delete(&found, id, version) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(refusal) => {
                let Some(reason) = change.uncertain.clone() else { return Err(refusal) };
                return if change.settle(&reason).await? { Ok(()) } else { Err(refusal) };
            }
        }
        if !attempts.pause().await {
            return Err(change.failed(changed_too_often()));
        }
    }
}

/// Returns a version that no other write has.
pub(super) fn new_version() -> String {
    ulid::Ulid::generate().to_string()
}

fn changed_too_often() -> Error {
    Error::Inconsistent { reason: "the resource, or the store, changes again and again".to_owned() }
}
