//! Ranges that are read page by page, all at one revision.

use std::sync::Arc;

use futures::{Stream, TryStreamExt as _, stream};

use super::{
    failure::Failure,
    layout::{Generation, KeyRange},
    pb::{KeyValue, RangeRequest, RangeResponse, RequestOp, TxnRequest},
    record::Stored,
    session::Session,
};
use crate::{
    backend::{Consistency, Query, Result},
    pb::Resource,
};

/// Sizes of pages in keys: the first, the smallest and the largest; in between, as
/// many as make pages of about `PAGE_BYTES`.
const FIRST_PAGE: usize = 64;
const SMALLEST_PAGE: usize = 16;
const LARGEST_PAGE: usize = 1024;
const PAGE_BYTES: usize = 2 << 20;

/// A range of keys at one revision, of which some pages may still be in etcd.
pub(super) struct Pages {
    session: Arc<Session>,
    pub(super) generation: Generation,
    pub(super) revision: i64,
    keys_only: bool,
    /// Keys from the next page on; nothing after the last one.
    rest: Option<KeyRange>,
    page: Vec<KeyValue>,
    operation: &'static str,
    serializable: bool,
    page_size: usize,
}

/// The range, revision and size of a read by pages.
pub(super) struct PagesRequest<F> {
    pub(super) consistency: Consistency,
    pub(super) operation: &'static str,
    pub(super) keys_only: bool,
    /// The keys, in the generation that counts.
    pub(super) range: F,
}

fn range(keys: &KeyRange, limit: usize, revision: i64, keys_only: bool) -> RangeRequest {
    RangeRequest {
        key: keys.start.clone(),
        range_end: keys.end.clone(),
        limit: i64::try_from(limit).unwrap_or(i64::MAX),
        revision,
        keys_only,
        serializable: false,
    }
}

impl Pages {
    /// Reads the first page, which decides on the revision.
    pub(super) async fn read<F>(session: &Arc<Session>, request: PagesRequest<F>) -> Result<Self>
    where
        F: Fn(&Generation) -> KeyRange + Send + Sync,
    {
        let PagesRequest { consistency, operation, keys_only, range: keys } = request;
        let reads = |generation: &Generation| {
            vec![RequestOp::range(range(&keys(generation), FIRST_PAGE, 0, keys_only))]
        };
        let guarded = session.read(consistency, operation, reads).await?;
        let mut pages = Self {
            session: Arc::clone(session),
            rest: Some(keys(&guarded.generation)),
            generation: guarded.generation,
            revision: guarded.revision,
            keys_only,
            page: Vec::new(),
            operation,
            serializable: true,
            page_size: FIRST_PAGE,
        };
        pages.take(guarded.ranges.into_iter().next().unwrap_or_default());
        Ok(pages)
    }

    fn take(&mut self, found: RangeResponse) {
        let last = found.kvs.last().filter(|_| found.more).map(|last| last.key.clone());
        self.page = found.kvs;
        self.rest = last.and_then(|mut start| {
            start.push(0);
            Some(KeyRange { start, end: self.rest.take()?.end })
        });
    }

    /// The next page; none after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<KeyValue>>, Failure> {
        if self.page.is_empty() {
            let Some(rest) = self.rest.clone() else { return Ok(None) };
            let found = self.fetch(&rest).await?;
            self.take(found);
        }
        let page = std::mem::take(&mut self.page);
        if page.is_empty() {
            return Ok(None);
        }
        self.page_size = next_size(&page);
        Ok(Some(page))
    }

    async fn fetch(&mut self, rest: &KeyRange) -> Result<RangeResponse, Failure> {
        let range = range(rest, self.page_size, self.revision, self.keys_only);
        let request = TxnRequest::reads(vec![RequestOp::range(range)]);
        if self.serializable {
            match self.session.cluster.txn(&request.clone().serializable()).await {
                // Another member than before answers, and lags behind it.
                Err(Failure::Behind) => self.serializable = false,
                other => return Ok(other?.response.into_range()),
            }
        }
        Ok(self.session.cluster.txn(&request).await?.response.into_range())
    }

    /// The resources of the range that a query covers.
    pub(super) fn into_resources(
        self,
        query: Option<Query>,
    ) -> impl Stream<Item = Result<Arc<Resource>>> + Send {
        stream::try_unfold(self, move |mut pages| {
            let query = query.clone();
            async move {
                let page =
                    pages.next().await.map_err(|failure| failure.into_error(pages.operation))?;
                let Some(page) = page else { return Ok(None) };
                let decoded = page.iter().map(|kv| Stored::decode(&pages.generation, kv));
                let resources: Vec<_> = decoded.collect::<Result<_>>()?;
                let covered = resources
                    .into_iter()
                    .map(|stored| stored.resource)
                    .filter(move |resource| query.as_ref().is_none_or(|q| q.covers(resource)));
                Ok(Some((stream::iter(covered.map(Ok).collect::<Vec<_>>()), pages)))
            }
        })
        .try_flatten()
    }
}

fn next_size(page: &[KeyValue]) -> usize {
    let bytes: usize = page.iter().map(|kv| kv.key.len() + kv.value.len()).sum();
    let each = (bytes / page.len().max(1)).max(1);
    (PAGE_BYTES / each).clamp(SMALLEST_PAGE, LARGEST_PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_get_as_large_as_their_values_allow() {
        let page = |bytes| vec![KeyValue { value: vec![0; bytes], ..KeyValue::default() }];
        assert_eq!(next_size(&page(1)), LARGEST_PAGE);
        assert_eq!(next_size(&page(16 << 10)), 128);
        assert_eq!(next_size(&page(1 << 20)), SMALLEST_PAGE);
        assert_eq!(next_size(&[]), LARGEST_PAGE);
    }
}
