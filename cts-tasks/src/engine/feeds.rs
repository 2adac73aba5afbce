use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use consul_watch::{
    Query, QueryOptions, Watcher,
    query::{CatalogServices, HealthService, KvGet, KvList},
    watch::WatchError,
};
use futures::{
    StreamExt,
    stream::{AbortHandle, BoxStream, SelectAll, abortable},
};

use super::want::{Feed, Want};

/// The watches of one task, as one stream of what they yield.
///
/// The watcher below shares each upstream read among all tasks that want it.
pub(crate) struct Feeds {
    watcher: Watcher,
    streams: SelectAll<BoxStream<'static, (Want, Answer)>>,
    handles: BTreeMap<Want, AbortHandle>,
}

/// One answer, or why there is none yet; the watch goes on by itself unless
/// no retry can help.
pub(crate) type Answer = Result<Feed, WatchError>;

impl Feeds {
    pub(crate) fn new(watcher: Watcher) -> Self {
        Self { watcher, streams: SelectAll::new(), handles: BTreeMap::new() }
    }

    /// Watches exactly `wants` from now on.
    pub(crate) fn set(&mut self, wants: &BTreeSet<Want>) {
        self.handles.retain(|want, handle| {
            let keep = wants.contains(want);
            if !keep {
                handle.abort();
            }
            keep
        });
        for want in wants {
            if !self.handles.contains_key(want) {
                let (stream, handle) = abortable(self.open(want.clone()));
                self.streams.push(stream.boxed());
                self.handles.insert(want.clone(), handle);
            }
        }
    }

    /// The next answer of any watch; pending for ever while there is none.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> (Want, Answer) {
        match self.streams.next().await {
            Some(answer) => answer,
            None => futures::future::pending().await,
        }
    }

    fn open(&self, want: Want) -> BoxStream<'static, (Want, Answer)> {
        match &want {
            Want::Instances { name, datacenter, namespace, filter } => {
                let mut options = options(datacenter, namespace);
                options.filter = Some(filter.clone()).filter(|filter| !filter.is_empty());
                let query = HealthService::new(name).options(options);
                // Upstream's rule: a filter that speaks of check states replaces "passing only".
                let query = if filter.contains("Checks.Status") { query } else { query.passing() };
                self.stream(want, query, Feed::Instances)
            }
            Want::Names { datacenter, namespace, node_meta } => {
                let mut options = options(datacenter, namespace);
                options.node_meta =
                    node_meta.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                self.stream(want, CatalogServices::new().options(options), Feed::Names)
            }
            Want::Key { path, datacenter, namespace } => {
                let query = KvGet::new(path).options(options(datacenter, namespace));
                self.stream(want, query, Feed::Key)
            }
            Want::Prefix { path, datacenter, namespace } => {
                let query = KvList::new(path).options(options(datacenter, namespace));
                self.stream(want, query, Feed::Prefix)
            }
        }
    }

    fn stream<Q: Query>(
        &self,
        want: Want,
        query: Q,
        feed: fn(Arc<Q::Value>) -> Feed,
    ) -> BoxStream<'static, (Want, Answer)> {
        let watch = self.watcher.watch(query);
        watch.map(move |item| (want.clone(), item.map(|snapshot| feed(snapshot.data)))).boxed()
    }
}

fn options(datacenter: &str, namespace: &str) -> QueryOptions {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let mut options = QueryOptions::default();
    options.datacenter = given(datacenter);
    options.namespace = given(namespace);
    options
}

/// A failure of a watch that is not waited out: reads like what happened, not
/// like the watch that will try again.
#[derive(Debug)]
pub(crate) struct FirstFailure(pub(crate) WatchError);

impl fmt::Display for FirstFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.cause().fmt(f)
    }
}

impl std::error::Error for FirstFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause().source()
    }
}
