//! The backend in a PostgreSQL database.

mod batch;
mod config;
mod connection;
mod database;
mod failure;
mod follow;
mod progress;
mod reading;
mod record;
mod restore;
mod schema;
mod writing;

use std::sync::{Arc, Mutex, Weak};

use async_trait::async_trait;
pub use config::{PostgresConfig, PostgresTls};
use futures::StreamExt as _;

use self::{batch::Writer, database::Database, follow::Current};
use super::{
    Backend, Consistency, Error, Query, ResourceStream, Result, Watch, store::watch::StoreWatch,
};
use crate::pb::{Id, Resource};

/// Limit of restarts of a watch because the store is being restored.
const WATCH_ATTEMPTS: usize = 5;

/// Keeps resources in a `PostgreSQL` database, version 13 or newer.
///
/// - **Writes** are compare-and-set in one statement, which is one transaction. Writes of
///   one store take turns, by a lock on one row that lasts until the commit; those of one
///   process that wait meanwhile share the next statement. When the answer is lost, what
///   became of the write is found out by its version; where that is not possible, it ends with
///   [`Error::OutcomeUnknown`].
/// - **Reads**, of both kinds, and lists are one statement on the server that takes
///   writes, and so linearizable.
/// - **Watches** share one connection that listens (`LISTEN`), and read from the table of
///   changes in the order of their commits. They go on after a lost connection or a
///   restart of the server, and close with [`Error::WatchClosed`] after a failover, a
///   restore, or when [`PostgresConfig::keep_changes`] more changes were missed. A watch
///   reads its snapshot whole before it gives the first resource.
/// - **A restore** is staged in a temporary table, and put in place in one transaction.
///
/// Versions are ULIDs that the writer chooses, so that no version comes twice, whatever
/// becomes of the server.
///
/// What PostgreSQL acknowledged and then loses, as with a failover to a standby that was
/// not synchronous, is lost here too; and of a primary that was cut off and goes on
/// beside its successor this cannot know.
///
/// A clone is another handle to the same store.
///
/// Source: "PostgreSQL 15 Documentation", chapters 13 (Concurrency Control) and NOTIFY.
#[derive(Debug, Clone)]
pub struct PostgresBackend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    database: Arc<Database>,
    writer: Writer,
    following: Current,
}

impl PostgresBackend {
    /// Connects to the server that takes writes, and finds the tables of the store, or makes
    /// them.
    ///
    /// To be called in a tokio runtime, which also runs writes and watches.
    ///
    /// # Errors
    ///
    /// [`Error::Other`] if the configuration is malformed, the server refuses the
    /// role, or the tables are of a newer version; [`Error::Inconsistent`] if no server
    /// answers in time that takes writes.
    pub async fn connect(config: &PostgresConfig) -> Result<Self> {
        let database = Arc::new(Database::connect(config).await?);
        let writer = Writer::start(Arc::clone(&database), config.keep_changes);
        let following = Mutex::new(Weak::new());
        Ok(Self { shared: Arc::new(Shared { database, writer, following }) })
    }

    /// Returns the statements that make the tables in a schema that is there, for an
    /// administrator to run once where the role may not make them.
    ///
    /// # Errors
    ///
    /// If it is no name for a schema.
    pub fn schema_sql(schema: &str) -> Result<String> {
        database::check_schema(schema)?;
        Ok(schema::definition(schema))
    }
}

#[async_trait]
impl Backend for PostgresBackend {
    async fn read(&self, _: Consistency, id: &Id) -> Result<Arc<Resource>> {
        reading::get(&self.shared.database, id).await
    }

    async fn write_cas(&self, resource: Resource) -> Result<Arc<Resource>> {
        Box::pin(writing::write(&self.shared.database, &self.shared.writer, resource)).await
    }

    async fn delete_cas(&self, id: &Id, version: &str) -> Result<()> {
        writing::delete(&self.shared.database, &self.shared.writer, id, version).await
    }

    async fn list(&self, _: Consistency, query: &Query) -> Result<Vec<Arc<Resource>>> {
        reading::list(&self.shared.database, query).await
    }

    async fn list_by_owner(&self, owner: &Id) -> Result<Vec<Arc<Resource>>> {
        reading::list_by_owner(&self.shared.database, owner).await
    }

    async fn watch_list(&self, query: &Query) -> Result<Watch> {
        let database = &self.shared.database;
        for _ in 0..WATCH_ATTEMPTS {
            let following = follow::following(database, &self.shared.following).await?;
            let Some(reader) = following.subscribe(query) else { continue };
            let beginning = reading::beginning(database, query).await?;
            if beginning.name != *following.history() {
                // The listener may not know yet.
                following.close();
                continue;
            }
            let index = u64::try_from(beginning.seq).unwrap_or_default();
            let resources = beginning.into_resources(query.clone());
            let watch = StoreWatch::new(query.clone(), reader, index, resources);
            // As long as someone has this stream, the database is listened to.
            return Ok(watch
                .map(move |event| {
                    let _watched = &following;
                    event
                })
                .boxed());
        }
        Err(Error::WatchClosed)
    }

    async fn snapshot(&self) -> Result<ResourceStream> {
        reading::snapshot(&self.shared.database).await
    }

    async fn restore(&self, resources: ResourceStream) -> Result<()> {
        restore::restore(&self.shared.database, resources).await
    }

    /// Asks for what any read asks.
    async fn ready(&self) -> Result<()> {
        reading::position(&self.shared.database).await.map(drop)
    }
}
