//! An etcd for one test: a real one, or the double.

use std::net::SocketAddr;

use consul_watch::testing::parts::{Part, Suite};
use resource_store::{
    backend::etcd::{EtcdBackend, EtcdConfig},
    testing::etcd::{ServedEtcd, TestEtcd},
};

use super::server::Servers;
pub(super) use crate::support::things::*;

pub(super) const SUITE: Suite = Suite("etcd faults");

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
