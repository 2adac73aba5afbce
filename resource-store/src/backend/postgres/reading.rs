//! Reads, lists and snapshots, each one statement and so of one moment.

use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use tokio_postgres::{Row, types::ToSql};

use super::{database::Database, failure::judge, record::decode};
use crate::{
    backend::{
        Error, Query, ResourceStream, Result,
        store::{condition::check_read, key},
    },
    pb::{Id, Resource},
};

const READING: &str = "reading from PostgreSQL";
const LISTING: &str = "listing from PostgreSQL";
const SNAPSHOT: &str = "reading a snapshot from PostgreSQL";

/// The beginning of a watch.
pub(super) struct Beginning {
    /// Name of the history.
    pub(super) name: String,
    /// Number of the last change that the rows show.
    pub(super) seq: i64,
    rows: Vec<Row>,
}

/// Returns the keys that a query may cover: from the first to before the second.
fn bounds(query: &Query) -> (Vec<u8>, Vec<u8>) {
    let start = key::query_prefix(query);
    let mut end = start.clone();
    // No key ends with a byte 0xff: its strings are UTF-8, and a zero byte follows each.
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    (start, end)
}

/// Returns what is stored under the key of a resource, whatever its uid and version.
pub(super) async fn find(database: &Database, id: &Id) -> Result<Option<Arc<Resource>>> {
    let key = key::resource_key(id);
    let found = database.read(READING, |client| {
        let (key, statements) = (key.clone(), Arc::clone(&database.statements));
        Box::pin(async move {
            let statement = client.prepare_cached(&statements.read).await?;
            client.query_opt(&statement, &[&key]).await
        })
    });
    found.await?.map(|row| decode(&row, 0, READING)).transpose()
}

pub(super) async fn get(database: &Database, id: &Id) -> Result<Arc<Resource>> {
    let resource = find(database, id).await?.ok_or(Error::NotFound)?;
    check_read(&resource, id)?;
    Ok(resource)
}

async fn rows(database: &Database, statement: &str, keys: Vec<Vec<u8>>) -> Result<Vec<Row>> {
    let asked = database.read_long(LISTING, |client| {
        let (keys, statement) = (keys.clone(), statement.to_owned());
        Box::pin(async move {
            let statement = client.prepare_cached(&statement).await?;
            let keys: Vec<_> = keys.iter().map(|key| key as &(dyn ToSql + Sync)).collect();
            client.query(&statement, &keys).await
        })
    });
    asked.await
}

pub(super) async fn list(database: &Database, query: &Query) -> Result<Vec<Arc<Resource>>> {
    let (start, end) = bounds(query);
    let rows = rows(database, &database.statements.list, vec![start, end]).await?;
    let decoded = rows.iter().map(|row| decode(row, 0, LISTING));
    decoded.filter(|resource| resource.as_ref().map_or(true, |r| query.covers(r))).collect()
}

pub(super) async fn list_by_owner(database: &Database, owner: &Id) -> Result<Vec<Arc<Resource>>> {
    let keys = vec![key::owner_prefix(owner)];
    let rows = rows(database, &database.statements.owned, keys).await?;
    rows.iter().map(|row| decode(row, 0, LISTING)).collect()
}

/// Reads what a watch begins with, whole: a slow watcher must not hold a connection,
/// or keep the database from cleaning up.
pub(super) async fn beginning(database: &Database, query: &Query) -> Result<Beginning> {
    let (start, end) = bounds(query);
    let mut rows = rows(database, &database.statements.list_from, vec![start, end]).await?;
    let unreadable = |error| Error::failed(LISTING, error);
    let first = rows.first().ok_or_else(|| {
        Error::failed(LISTING, format!("{}: the table store is empty", database.place))
    })?;
    let name: String = first.try_get(0).map_err(unreadable)?;
    let seq = first.try_get(1).map_err(unreadable)?;
    if first.try_get::<_, Option<&str>>(2).map_err(unreadable)?.is_none() {
        // There is nothing but the store's own row.
        rows.clear();
    }
    Ok(Beginning { name, seq, rows })
}

impl Beginning {
    /// Returns the resources that the query covers, each decoded when it is taken.
    pub(super) fn into_resources(self, query: Query) -> ResourceStream {
        let decoded = self.rows.into_iter().map(|row| decode(&row, 2, LISTING));
        let covered = decoded.filter(move |resource| {
            resource.as_ref().map_or(true, |resource| query.covers(resource))
        });
        stream::iter(covered).boxed()
    }
}

/// Returns the name of the history, and the number of its last change.
pub(super) async fn position(database: &Database) -> Result<Row> {
    let asked = database.read(READING, |client| {
        let statements = Arc::clone(&database.statements);
        Box::pin(async move { client.query_one(&statements.position, &[]).await })
    });
    asked.await
}

/// Reads everything, as it was when the statement began, row by row as they are taken.
pub(super) async fn snapshot(database: &Arc<Database>) -> Result<ResourceStream> {
    let begin = || async {
        let dedicated = database.dedicated().await?;
        let begun = async {
            // The reader decides on the pace.
            dedicated.client.batch_execute("SET statement_timeout = 0").await?;
            let none: [&(dyn ToSql + Sync); 0] = [];
            dedicated.client.query_raw(&database.statements.everything, none).await
        };
        let rows =
            begun.await.map_err(|error: tokio_postgres::Error| judge(&error).repeatable())?;
        Ok((dedicated, rows))
    };
    let begun = database.persist(begin).await;
    let (dedicated, rows) = begun.map_err(|failure| database.error(failure, SNAPSHOT))?;
    let database = Arc::clone(database);
    let resources = rows
        .map_err(move |error| database.error(judge(&error).repeatable(), SNAPSHOT))
        .and_then(|row| std::future::ready(decode(&row, 0, SNAPSHOT)))
        .map(move |resource| {
            let _connected = &dedicated;
            resource
        });
    Ok(resources.boxed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{Tenancy, Type};

    #[test]
    fn the_bounds_of_a_query_are_around_its_keys() {
        let query = Query::new(Type::new("g", "v", "K").group_kind(), Tenancy::new("p", "n"));
        let (start, end) = bounds(&query.with_name_prefix("\u{ff}"));
        let id = Id::new(Type::new("g", "v", "K"), Tenancy::new("p", "n"), "\u{ff}\u{10ffff}");
        let key = key::resource_key(&id);
        assert!(start < key && key < end);
    }
}
