//! An etcd for one test: a real one, or the double.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use consul_watch::testing::parts::{Part, Suite};
use futures::StreamExt as _;
use resource_store::{
    backend::{
        Backend, Error, Query, Watch, WatchEvent,
        etcd::{EtcdBackend, EtcdConfig},
    },
    pb::{Any, Id, Resource, Tenancy, Type},
    testing::etcd::{ServedEtcd, TestEtcd},
};

use super::server::Servers;

pub(super) const SUITE: Suite = Suite("etcd faults");
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// An etcd that is this test's alone.
pub(super) enum World {
    Real(Box<Servers>),
    Double(TestEtcd, ServedEtcd),
}

impl World {
    /// A real server of a version.
    pub(super) async fn real(part: &Part) -> Self {
        Self::Real(Box::new(Servers::start(&part.path, 1).await))
    }

    pub(super) async fn double() -> Self {
        SUITE.double("etcd");
        let etcd = TestEtcd::new();
        let served = etcd.serve().await.unwrap();
        Self::Double(etcd, served)
    }

    pub(super) fn endpoint(&self) -> String {
        match self {
            Self::Real(servers) => servers.endpoint(0),
            Self::Double(_, served) => served.endpoint(),
        }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.endpoint().strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub(super) async fn compact(&self) {
        match self {
            Self::Real(servers) => servers.compact().await,
            Self::Double(etcd, _) => etcd.compact(),
        }
    }

    /// How many keys there are.
    pub(super) async fn count(&self) -> usize {
        match self {
            Self::Real(servers) => servers.count().await,
            Self::Double(etcd, _) => etcd.count(),
        }
    }

    pub(super) async fn backend(&self) -> EtcdBackend {
        EtcdBackend::connect(&EtcdConfig::new([self.endpoint()])).await.unwrap()
    }
}

/// Makes a test on each version of the real etcd, and one on the double, of each
/// case.
macro_rules! on_both {
    ($($case:ident)*) => {
        mod real {
            $(#[tokio::test]
            async fn $case() {
                use crate::etcd::world::{SUITE, World};
                for part in SUITE.parts("etcd", stringify!($case)) {
                    super::$case(World::real(&part).await).await;
                }
            })*
        }

        mod double {
            $(#[tokio::test]
            async fn $case() {
                super::$case(crate::etcd::world::World::double().await).await;
            })*
        }
    };
}
pub(super) use on_both;

pub(super) fn id(name: &str) -> Id {
    Id::new(Type::new("test", "v1", "Thing"), Tenancy::new("default", "default"), name)
        .with_uid("u")
}

pub(super) fn thing(name: &str) -> Resource {
    let data = Any { type_url: "test".to_owned(), value: name.as_bytes().to_vec() };
    Resource { data: Some(data), ..Resource::new(id(name)) }
}

/// What changes a resource that is stored.
pub(super) fn next(stored: &Resource) -> Resource {
    let mut next = stored.clone();
    *next.metadata.entry("changes".to_owned()).or_default() += "x";
    next
}

pub(super) fn things() -> Query {
    Query::new(Type::new("test", "v1", "Thing").group_kind(), Tenancy::new("*", "*"))
}

pub(super) async fn event(watch: &mut Watch) -> Result<WatchEvent, Error> {
    tokio::time::timeout(PATIENCE, watch.next()).await.expect("an event").expect("no end")
}

/// A watch that has told of all there is: so many.
pub(super) async fn watch_after(backend: &EtcdBackend, snapshot: usize) -> Watch {
    let mut watch = backend.watch_list(&things()).await.unwrap();
    for _ in 0..snapshot {
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Upsert(_)));
    }
    assert_eq!(event(&mut watch).await.unwrap(), WatchEvent::EndOfSnapshot);
    watch
}

pub(super) async fn upserted(watch: &mut Watch, resource: &Arc<Resource>) {
    assert_eq!(event(watch).await.unwrap(), WatchEvent::Upsert(Arc::clone(resource)));
}

pub(super) async fn deleted(watch: &mut Watch, resource: &Arc<Resource>) {
    assert_eq!(event(watch).await.unwrap(), WatchEvent::Delete(Arc::clone(resource)));
}

pub(super) async fn closed(watch: &mut Watch) {
    let error = event(watch).await.unwrap_err();
    assert!(matches!(error, Error::WatchClosed), "{error}");
    assert!(watch.next().await.is_none());
}
