//! Statements on a connection of the pool, with time limits and repeats; and the
//! making of the tables.

use std::{future::Future, sync::Arc, time::Duration};

use deadpool::{
    Runtime,
    managed::{Object, Pool},
};
use futures::future::BoxFuture;
use tokio::time::{Instant, timeout};

use super::{
    config::{PostgresConfig, misconfigured},
    connection::{Connector, Dedicated, Pooled, adopt},
    failure::{Failure, judge, judge_pool},
    progress::Progress,
    schema::{LAYOUT, Statements, definition, quoted},
};
use crate::backend::{Error, Result};

const FIRST_DELAY: Duration = Duration::from_millis(20);
const LONGEST_DELAY: Duration = Duration::from_millis(500);
/// Longest name of a schema, and of a channel, in bytes.
const LONGEST_NAME: usize = 63;

/// A database, and the tables of one store in it.
#[derive(Debug)]
pub(super) struct Database {
    pool: Pool<Connector>,
    pub(super) statements: Arc<Statements>,
    pub(super) progress: Arc<Progress>,
    pub(super) place: String,
    pub(super) watch_buffer: usize,
    pub(super) attempt_timeout: Duration,
    /// The same of one that may be long.
    long_timeout: Duration,
    timeout: Duration,
}

/// The attempts at an operation, up to its time limit.
#[derive(Debug)]
pub(super) struct Attempts {
    deadline: Instant,
    failures: u32,
}

impl Attempts {
    /// Waits before the next attempt, longer each time; returns `false`, at once, if there
    /// is no time for another one.
    pub(super) async fn pause(&mut self) -> bool {
        let delay = delay_after(self.failures);
        self.failures += 1;
        if Instant::now() + delay >= self.deadline {
            return false;
        }
        tokio::time::sleep(delay).await;
        true
    }
}

/// A statement under way on a connection of the pool.
pub(super) type Running<'c, T> = BoxFuture<'c, Result<T, tokio_postgres::Error>>;

/// Checks the name of a schema.
pub(super) fn check_schema(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
        return Err(misconfigured(&format!(
            "the schema {name:?}: a name of 1 to {LONGEST_NAME} bytes is expected"
        )));
    }
    Ok(())
}

impl Database {
    pub(super) async fn connect(config: &PostgresConfig) -> Result<Self> {
        check_schema(&config.schema)?;
        let statements = Arc::new(Statements::new(&config.schema));
        let progress = Arc::new(Progress::default());
        let connector = Connector::new(config, &statements, &progress)?;
        let pool = Pool::builder(connector)
            .max_size(config.connections.max(1))
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(config.attempt_timeout))
            .build()
            .map_err(|error| misconfigured(&error.to_string()))?;
        let database = Self {
            pool,
            statements,
            progress,
            place: config.place(),
            watch_buffer: config.watch_buffer,
            attempt_timeout: config.attempt_timeout,
            long_timeout: config.long_timeout(),
            timeout: config.timeout,
        };
        let operation = "connecting to PostgreSQL";
        let set_up = database.persist(|| async {
            // Both do no harm when they are repeated.
            match database.set_up().await.map_err(Failure::repeatable)? {
                Some(refusal) => Ok(Some(refusal)),
                None => database.run(|_| Box::pin(async { Ok(()) })).await.map(|()| None),
            }
        });
        match set_up.await.map_err(|failure| database.error(failure, operation))? {
            Some(refusal) => {
                Err(Error::failed(operation, format!("{}: {refusal}", database.place)))
            }
            None => Ok(database),
        }
    }

    pub(super) fn error(&self, failure: Failure, operation: &'static str) -> Error {
        failure.into_error(operation, &self.place)
    }

    /// Makes the tables where there are none. Returns why those that are there are of
    /// no use, if they are not.
    async fn set_up(&self) -> Result<Option<String>, Failure> {
        let mut dedicated = self.dedicated().await?;
        let schema = &self.statements.schema;
        let making = async {
            let transaction = dedicated.client.transaction().await?;
            // Of several programs that start at a time, one makes the tables.
            let key = i64::from(crc32fast::hash(format!("resource-store {schema}").as_bytes()));
            transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&key]).await?;
            let asked = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1), \
                         EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'store')";
            let found = transaction.query_one(asked, &[schema]).await?;
            if found.try_get(1)? {
                let asked = format!("SELECT layout FROM {}.store", quoted(schema));
                return transaction.query_one(&asked, &[]).await?.try_get(0);
            }
            if !found.try_get::<_, bool>(0)? {
                transaction.batch_execute(&format!("CREATE SCHEMA {}", quoted(schema))).await?;
            }
            transaction.batch_execute(&definition(schema)).await?;
            transaction.commit().await?;
            Ok(LAYOUT)
        };
        let made: Result<i32, tokio_postgres::Error> = making.await;
        match made {
            Ok(LAYOUT) => {}
            Ok(layout) => return Ok(Some(foreign_layout(schema, layout))),
            Err(error) => {
                return Err(match judge(&error) {
                    Failure::Refused(text) => Failure::Refused(format!(
                        "{text}; the tables could not be made: let the role create schemas in the \
                         database, or have an administrator do it once with the statements of \
                         `PostgresBackend::schema_sql`"
                    )),
                    other => other,
                });
            }
        }
        let adopted = adopt(&dedicated.client, &self.statements, &self.progress).await;
        adopted.map(|()| None).map_err(|error| judge(&error))
    }

    /// Makes a connection apart from the pool, whose statements may take long.
    pub(super) async fn dedicated(&self) -> Result<Dedicated, Failure> {
        self.pool.manager().dedicated().await
    }

    /// Makes a connection apart from the pool, set up as those of the pool are.
    pub(super) async fn listener(&self) -> Result<Dedicated, Failure> {
        let dedicated = self.pool.manager().dedicated().await?;
        let preparing = async {
            adopt(&dedicated.client, &self.statements, &self.progress).await?;
            dedicated.client.batch_execute(&self.statements.listen).await
        };
        preparing.await.map_err(|error: tokio_postgres::Error| judge(&error).repeatable())?;
        Ok(dedicated)
    }

    /// Does something on a connection of the pool, once.
    pub(super) async fn run<T>(
        &self,
        work: impl for<'c> FnOnce(&'c Pooled) -> Running<'c, T> + Send,
    ) -> Result<T, Failure> {
        self.run_within(self.attempt_timeout, work).await
    }

    async fn run_within<T>(
        &self,
        limit: Duration,
        work: impl for<'c> FnOnce(&'c Pooled) -> Running<'c, T> + Send,
    ) -> Result<T, Failure> {
        let client = self.pool.get().await.map_err(judge_pool)?;
        let failure = match timeout(limit, work(&client)).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => judge(&error),
            Err(_elapsed) => {
                Failure::Unanswered(format!("no answer came within {} ms", limit.as_millis()))
            }
        };
        if matches!(failure, Failure::Unanswered(_) | Failure::Unreachable(_)) {
            // Whoever came next would wait behind the same statement, or get the same standby.
            drop(Object::take(client));
        }
        Err(failure)
    }

    /// Begins the attempts at an operation.
    pub(super) fn attempts(&self) -> Attempts {
        Attempts { deadline: Instant::now() + self.timeout, failures: 0 }
    }

    /// Repeats what fails in passing, up to the time limit of an operation.
    pub(super) async fn persist<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut attempts = self.attempts();
        loop {
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(failure) if !failure.is_passing() || !attempts.pause().await => {
                    return Err(failure);
                }
                Err(_passing) => {}
            }
        }
    }

    /// Reads on a connection of the pool, and repeats that while it fails in passing.
    pub(super) async fn read<T: Send>(
        &self,
        operation: &'static str,
        work: impl for<'c> Fn(&'c Pooled) -> Running<'c, T> + Send + Sync,
    ) -> Result<T> {
        self.read_within(self.attempt_timeout, operation, work).await
    }

    /// The same for what may be long.
    pub(super) async fn read_long<T: Send>(
        &self,
        operation: &'static str,
        work: impl for<'c> Fn(&'c Pooled) -> Running<'c, T> + Send + Sync,
    ) -> Result<T> {
        self.read_within(self.long_timeout, operation, work).await
    }

    async fn read_within<T: Send>(
        &self,
        limit: Duration,
        operation: &'static str,
        work: impl for<'c> Fn(&'c Pooled) -> Running<'c, T> + Send + Sync,
    ) -> Result<T> {
        let attempt = || async { self.run_within(limit, &work).await.map_err(Failure::repeatable) };
        self.persist(attempt).await.map_err(|failure| self.error(failure, operation))
    }
}

/// Returns the pause after so many failures in a row.
pub(super) fn delay_after(failures: u32) -> Duration {
    let longest = (FIRST_DELAY * 2_u32.saturating_pow(failures.min(10))).min(LONGEST_DELAY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
}

fn foreign_layout(schema: &str, layout: i32) -> String {
    format!(
        "the schema {schema} has layout {layout}, and this program knows {LAYOUT}: run the version \
         that made it or a newer one, or choose another schema"
    )
}
