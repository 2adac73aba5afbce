//! Declaring a controller.

use std::{any::Any, fmt, num::NonZeroUsize, sync::Arc, time::Duration};

use futures::{future::BoxFuture, stream::BoxStream};

use super::{
    backoff::go_text,
    cache::{Cache, CacheError, Index, NamedQuery},
    error::BoxError,
    mapper::DependencyMapper,
    queue::QueueItem,
    rate::{Bucket, RateLimit},
    reconciler::{Initializer, Reconciler, Request, Runtime},
};
use crate::{gvk::GroupKind, pb::Type, typed::ResourceData};

/// A controller is declared wrongly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// Nothing reconciles.
    #[error("cannot register controller without a reconciler {0}")]
    NoReconciler(String),
    /// Two watches on one type.
    #[error("resource type \"{0}\" already has a configured watch")]
    DuplicateWatch(Type),
    /// Two queries of one name.
    #[error("a predefined cache query with name \"{0}\" already exists")]
    DuplicateQuery(String),
    /// Another controller of that name is registered.
    #[error("controller \"{0}\" is already registered")]
    DuplicateController(String),
    /// The service does not know a type.
    #[error(
        "controller \"{controller}\" watches resource type {ty}, which is not registered with the service"
    )]
    UnregisteredType {
        /// The name of the controller.
        controller: String,
        /// The type.
        ty: Type,
    },
    /// Two indexes of one name on a type, or one without a name.
    #[error(transparent)]
    Index(#[from] CacheError),
}

/// The place where a controller runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// In one process at a time: the one that holds the manager's lease.
    #[default]
    Singleton,
    /// In every process. Such a controller should not write resources.
    EachServer,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Singleton => "singleton",
            Self::EachServer => "each-server",
        })
    }
}

/// Something that happened outside of the resource service.
#[derive(Clone)]
pub struct Event {
    /// Events of one key are the same work while they wait.
    pub key: String,
    /// The event itself, for the mapper.
    pub object: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("key", &self.key).finish_non_exhaustive()
    }
}

impl QueueItem for Event {
    fn key(&self) -> String {
        self.key.clone()
    }
}

/// Makes the events of a custom watch, again at each start of the controller.
/// When the stream ends, the source is quiet.
pub type EventSource = Arc<dyn Fn() -> BoxStream<'static, Event> + Send + Sync>;
/// Turns an event of a custom watch into requests.
pub type EventMapper =
    Arc<dyn Fn(Runtime, Event) -> BoxFuture<'static, Result<Vec<Request>, BoxError>> + Send + Sync>;

/// Told of the start or stop of a controller.
pub(super) type Notify = Arc<dyn Fn(&Runtime) + Send + Sync>;

/// A type whose changes a controller maps to requests.
#[derive(Clone)]
pub(super) struct DependencyWatch {
    pub(super) ty: Type,
    pub(super) mapper: Arc<dyn DependencyMapper>,
    pub(super) indexes: Vec<Index>,
}

#[derive(Clone)]
pub(super) struct CustomWatch {
    pub(super) source: EventSource,
    pub(super) mapper: EventMapper,
}

/// The declaration of a controller.
///
/// What is wrong with it is said when it is registered.
#[derive(Clone)]
#[must_use]
pub struct Controller {
    pub(super) name: String,
    pub(super) managed: Type,
    indexes: Vec<Index>,
    pub(super) watches: Vec<DependencyWatch>,
    pub(super) custom_watches: Vec<CustomWatch>,
    queries: Vec<(String, NamedQuery)>,
    pub(super) reconciler: Option<Arc<dyn Reconciler>>,
    pub(super) initializer: Option<Arc<dyn Initializer>>,
    pub(super) backoff: (Duration, Duration),
    pub(super) placement: Placement,
    pub(super) force_every: Duration,
    pub(super) concurrency: NonZeroUsize,
    pub(super) rate: Option<Arc<Bucket>>,
    pub(super) on_start: Option<Notify>,
    pub(super) on_stop: Option<Notify>,
}

impl Controller {
    /// A controller of a type: a singleton, with a backoff from 5 milliseconds
    /// to 1000 seconds, that reconciles each resource every 8 hours at least.
    pub fn new(name: &str, managed: Type) -> Self {
        Self {
            name: name.to_owned(),
            managed,
            indexes: Vec::new(),
            watches: Vec::new(),
            custom_watches: Vec::new(),
            queries: Vec::new(),
            reconciler: None,
            initializer: None,
            backoff: (Duration::from_millis(5), Duration::from_secs(1000)),
            placement: Placement::default(),
            force_every: Duration::from_hours(8),
            concurrency: NonZeroUsize::MIN,
            rate: None,
            on_start: None,
            on_stop: None,
        }
    }

    /// A controller of a Rust type, as [`Controller::new`].
    pub fn of<K: ResourceData>(name: &str) -> Self {
        Self::new(name, K::resource_type())
    }

    /// Watches a type that the managed type owns: a change of one of its resources
    /// has its owner reconciled.
    pub fn with_owned<K: ResourceData>(self) -> Self {
        let owner = super::mapper::owner_of_type(self.managed.clone());
        self.with_watch(K::resource_type(), owner, Vec::new())
    }

    /// Sets what reconciles; required.
    pub fn with_reconciler(mut self, reconciler: impl Reconciler) -> Self {
        self.reconciler = Some(Arc::new(reconciler));
        self
    }

    /// Adds an index on the managed type.
    pub fn with_index(mut self, index: Index) -> Self {
        self.indexes.push(index);
        self
    }

    /// Watches a type, maps its changes to requests, and indexes it.
    pub fn with_watch(
        mut self,
        ty: Type,
        mapper: impl DependencyMapper,
        indexes: Vec<Index>,
    ) -> Self {
        self.watches.push(DependencyWatch { ty, mapper: Arc::new(mapper), indexes });
        self
    }

    /// Maps events from elsewhere to requests. They do not feed the cache.
    pub fn with_custom_watch(mut self, source: EventSource, mapper: EventMapper) -> Self {
        self.custom_watches.push(CustomWatch { source, mapper });
        self
    }

    /// Names a query of the cache.
    pub fn with_query(mut self, name: &str, query: NamedQuery) -> Self {
        self.queries.push((name.to_owned(), query));
        self
    }

    /// Sets the first and the longest delay after failures; zero keeps what is
    /// there.
    pub fn with_backoff(mut self, base: Duration, max: Duration) -> Self {
        for (bound, value) in [(&mut self.backoff.0, base), (&mut self.backoff.1, max)] {
            if !value.is_zero() {
                *bound = value;
            }
        }
        self
    }

    /// Sets where the controller runs.
    pub fn with_placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Sets what runs before anything else at each start; its failure is one of
    /// the start.
    pub fn with_initializer(mut self, initializer: impl Initializer) -> Self {
        self.initializer = Some(Arc::new(initializer));
        self
    }

    /// Sets how often a resource is reconciled though nothing changed, up to a
    /// fifth earlier.
    pub fn with_force_reconcile_every(mut self, every: Duration) -> Self {
        self.force_every = every;
        self
    }

    /// Sets how many resources are reconciled at the same time, one by default. Two
    /// reconciles of one resource never overlap.
    ///
    /// They take turns on one task of the runtime, each while the others wait; what
    /// computes for long belongs on a thread of its own
    /// ([`tokio::task::spawn_blocking`]).
    ///
    /// Deviation: upstream's controllers have one worker each.
    pub fn with_concurrency(mut self, reconciles: NonZeroUsize) -> Self {
        self.concurrency = reconciles;
        self
    }

    /// Limits how often the controller reconciles, over all its resources and workers; not
    /// limited by default. Clones share the limit, and a start after a failure goes on with it.
    ///
    /// Deviation: upstream's controllers only delay what failed, by resource.
    pub fn with_rate_limit(mut self, limit: RateLimit) -> Self {
        self.rate = Some(Arc::new(Bucket::new(limit)));
        self
    }

    /// Calls back at each start, before watches, with an empty cache.
    pub fn with_notify_start(mut self, notify: impl Fn(&Runtime) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(notify));
        self
    }

    /// Calls back at each stop, when everything ended, with the cache as it
    /// was.
    pub fn with_notify_stop(mut self, notify: impl Fn(&Runtime) + Send + Sync + 'static) -> Self {
        self.on_stop = Some(Arc::new(notify));
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type whose resources are reconciled.
    pub fn managed_type(&self) -> &Type {
        &self.managed
    }

    /// The other types that are watched.
    pub fn watched_types(&self) -> impl Iterator<Item = &Type> {
        self.watches.iter().map(|watch| &watch.ty)
    }

    /// Says what is wrong, if anything is.
    pub(super) fn check(&self) -> Result<(), ControllerError> {
        if self.reconciler.is_none() {
            return Err(ControllerError::NoReconciler(self.to_string()));
        }
        let mut seen = vec![&self.managed];
        for ty in self.watched_types() {
            if seen.contains(&ty) {
                return Err(ControllerError::DuplicateWatch(ty.clone()));
            }
            seen.push(ty);
        }
        // Made for the check only: it finds indexes and queries of the same name.
        match self.new_cache() {
            Err(CacheError::DuplicateQuery(name)) => Err(ControllerError::DuplicateQuery(name)),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(()),
        }
    }

    /// An empty cache with the indexes and queries of this controller.
    pub(crate) fn new_cache(&self) -> Result<Cache, CacheError> {
        let managed = (self.managed.group_kind(), self.indexes.clone());
        let watched =
            self.watches.iter().map(|watch| (GroupKind::from(&watch.ty), watch.indexes.clone()));
        Cache::new(std::iter::once(managed).chain(watched), self.queries.iter().cloned())
    }

    /// The mapper of a watched type.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn mapper(
        &self,
        resource: &crate::pb::Resource,
    ) -> Option<&Arc<dyn DependencyMapper>> {
        let ty = resource.resource_type()?;
        self.watches.iter().find(|watch| watch.ty == *ty).map(|watch| &watch.mapper)
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn reconciler(&self) -> Option<&Arc<dyn Reconciler>> {
        self.reconciler.as_ref()
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched: Vec<_> = self.watched_types().map(|ty| format!("{ty}")).collect();
        write!(
            f,
            "<Controller managed_type={}, watched_types=[{}], backoff=<base={}, max={}>, placement={}>",
            self.managed,
            watched.join(", "),
            go_text(self.backoff.0),
            go_text(self.backoff.1),
            self.placement
        )
    }
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controller::{mapper, reconciler::Outcome},
        demo::v2,
    };

    #[derive(Debug)]
    struct Nothing;

    #[async_trait::async_trait]
    impl Reconciler for Nothing {
        async fn reconcile(&self, _: &Runtime, _: &Request) -> Result<Outcome, BoxError> {
            Ok(Outcome::Done)
        }
    }

    fn artists() -> Controller {
        Controller::new("artists", v2::Artist::resource_type())
            .with_watch(v2::Album::resource_type(), mapper::owner(), Vec::new())
            .with_backoff(Duration::from_secs(5), Duration::from_hours(1))
            .with_placement(Placement::EachServer)
    }

    /// Spec: RS83
    #[test]
    fn a_controller_prints_and_needs_a_reconciler() {
        let text = "<Controller managed_type=demo.v2.Artist, watched_types=[demo.v2.Album], \
                    backoff=<base=5s, max=1h0m0s>, placement=each-server>";
        assert_eq!(artists().to_string(), text);
        assert_eq!(
            artists().check().unwrap_err().to_string(),
            format!("cannot register controller without a reconciler {text}")
        );
        artists().with_reconciler(Nothing).check().unwrap();
    }

    #[test]
    fn doubles_are_refused() {
        let twice = artists().with_reconciler(Nothing).with_watch(
            v2::Album::resource_type(),
            mapper::owner(),
            Vec::new(),
        );
        assert_eq!(
            twice.check().unwrap_err().to_string(),
            "resource type \"demo.v2.Album\" already has a configured watch"
        );
        let query: NamedQuery = Arc::new(|_, _| Ok(Vec::new()));
        let twice = artists()
            .with_reconciler(Nothing)
            .with_query("q", Arc::clone(&query))
            .with_query("q", query);
        assert_eq!(
            twice.check().unwrap_err().to_string(),
            "a predefined cache query with name \"q\" already exists"
        );
        let twice = artists()
            .with_reconciler(Nothing)
            .with_index(Index::id("i"))
            .with_index(Index::id("i"));
        assert_eq!(
            twice.check().unwrap_err().to_string(),
            "Index with name \"i\" is already defined."
        );
    }
}
