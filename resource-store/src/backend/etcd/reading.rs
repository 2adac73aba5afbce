//! Reads and lists.

use std::{sync::Arc, time::Duration};

use futures::TryStreamExt as _;

use super::{
    failure::Failure,
    layout::{Generation, KeyRange},
    pages::{Pages, PagesRequest},
    pb::{RangeRequest, RequestOp, TxnRequest},
    record::Stored,
    session::Session,
};
use crate::{
    backend::{
        Consistency, Error, Query, ResourceStream, Result,
        store::{condition::check_read, key},
    },
    pb::{Id, Resource},
};

const READING: &str = "reading from etcd";
const LISTING: &str = "listing from etcd";
const SNAPSHOT: &str = "reading a snapshot from etcd";
/// Number of resources that one transaction reads; etcd takes 128 operations.
const GETS: usize = 64;
/// Limit of restarts of a list because etcd compacts what it reads.
const ATTEMPTS: usize = 5;
const DELAY: Duration = Duration::from_millis(20);

impl Session {
    pub(super) async fn get(&self, consistency: Consistency, id: &Id) -> Result<Arc<Resource>> {
        let get =
            |generation: &Generation| vec![RequestOp::get(self.layout.resource(generation, id))];
        let guarded = self.read(consistency, READING, get).await?;
        let found = guarded.ranges.into_iter().flat_map(|range| range.kvs).next();
        let found = found.ok_or(Error::NotFound)?;
        let resource = Stored::decode(&guarded.generation, &found)?.resource;
        check_read(&resource, id)?;
        Ok(resource)
    }

    /// Returns the keys of the resources that a query may cover.
    fn range_of(&self, generation: &Generation, query: &Query) -> KeyRange {
        let prefix = key::query_prefix(query);
        KeyRange::of_prefix(self.layout.resource_of_key(generation, &prefix))
    }
}

/// The resources that a query covers, in pages.
pub(super) async fn pages_of_query(
    session: &Arc<Session>,
    consistency: Consistency,
    query: &Query,
) -> Result<Pages> {
    let range = |generation: &Generation| session.range_of(generation, query);
    let request = PagesRequest { consistency, operation: LISTING, keys_only: false, range };
    Pages::read(session, request).await
}

pub(super) async fn list(
    session: &Arc<Session>,
    consistency: Consistency,
    query: &Query,
) -> Result<Vec<Arc<Resource>>> {
    let mut attempts = 0;
    loop {
        let pages = pages_of_query(session, consistency, query).await?;
        attempts += 1;
        match pages.into_resources(Some(query.clone())).try_collect().await {
            Err(error) if error.is_retryable() && attempts < ATTEMPTS => {
                tokio::time::sleep(DELAY).await;
            }
            done => return done,
        }
    }
}

pub(super) async fn list_by_owner(
    session: &Arc<Session>,
    owner: &Id,
) -> Result<Vec<Arc<Resource>>> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        match owned_at_once(session, owner).await {
            Err(error) if error.is_retryable() && attempts < ATTEMPTS => {
                tokio::time::sleep(DELAY).await;
            }
            done => return done,
        }
    }
}

/// The index first, then the resources that it names, at the same revision.
async fn owned_at_once(session: &Arc<Session>, owner: &Id) -> Result<Vec<Arc<Resource>>> {
    let range = |generation: &Generation| session.layout.owned_by(generation, owner);
    let consistency = Consistency::Eventual;
    let request = PagesRequest { consistency, operation: LISTING, keys_only: true, range };
    let mut pages = Pages::read(session, request).await?;
    let prefix = session.layout.owned_by(&pages.generation, owner).start;
    let mut owned = Vec::new();
    while let Some(page) = pages.next().await.map_err(|f| f.into_error(LISTING))? {
        let keys: Vec<_> =
            page.iter().filter_map(|entry| entry.key.strip_prefix(&*prefix)).collect();
        for keys in keys.chunks(GETS) {
            let found = gets(session, &pages, keys).await.map_err(|f| f.into_error(LISTING))?;
            owned.extend(found?);
        }
    }
    // A restore may leave entries of what it restored twice.
    let key = key::owner_prefix(owner);
    owned.retain(|resource: &Arc<Resource>| {
        resource.owner.as_ref().is_some_and(|owner| key::owner_prefix(owner) == key)
    });
    Ok(owned)
}

async fn gets(
    session: &Session,
    pages: &Pages,
    keys: &[&[u8]],
) -> Result<Result<Vec<Arc<Resource>>>, Failure> {
    let get = |key: &&[u8]| {
        let key = session.layout.resource_of_key(&pages.generation, key);
        let revision = pages.revision;
        RequestOp::range(RangeRequest { key, revision, ..RangeRequest::default() })
    };
    let request = TxnRequest::reads(keys.iter().map(get).collect());
    let answer = match session.cluster.txn(&request.clone().serializable()).await {
        Err(Failure::Behind) => session.cluster.txn(&request).await?,
        other => other?,
    };
    let found = answer.response.into_ranges().flat_map(|range| range.kvs);
    let decoded = found.map(|kv| Ok(Stored::decode(&pages.generation, &kv)?.resource));
    Ok(decoded.collect())
}

/// Everything, at one revision.
pub(super) async fn snapshot(session: &Arc<Session>) -> Result<ResourceStream> {
    let all = |generation: &Generation| {
        KeyRange::of_prefix(session.layout.resource_of_key(generation, b""))
    };
    let consistency = Consistency::Strong;
    let request = PagesRequest { consistency, operation: SNAPSHOT, keys_only: false, range: all };
    Ok(Box::pin(Pages::read(session, request).await?.into_resources(None)))
}
