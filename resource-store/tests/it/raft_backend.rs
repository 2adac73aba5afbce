//! The Raft backend: conformance on one node and through a follower of three,
//! and what becomes of a cluster whose nodes fail.

mod cluster;
mod damage;
mod failures;
mod growing;
mod membership;
mod reading;
mod restoring;
mod secured;
mod telemetry;

use std::{sync::Arc, time::Duration};

use resource_store::{
    backend::{Backend, Consistency, Error},
    testing::storage::Capabilities,
};

use self::cluster::Cluster;

/// A replica lags behind, so a watch may begin before what was written before.
fn of_a_follower() -> Capabilities {
    let mut capabilities = Capabilities::default();
    capabilities.complete_snapshots = false;
    capabilities
}

mod one_node {
    use super::*;

    async fn fixture() -> (Arc<dyn Backend>, Cluster) {
        let cluster = Cluster::start(1).await;
        (Arc::new(cluster.node(0).clone()), cluster)
    }

    // Spec: RS66
    resource_store::storage_conformance!(fixture());
}

mod through_a_follower_of_three {
    use super::*;

    async fn fixture() -> (Arc<dyn Backend>, Cluster) {
        let cluster = Cluster::start(3).await;
        let follower = cluster.follower().await;
        (Arc::new(follower), cluster)
    }

    resource_store::storage_conformance!(fixture(), of_a_follower());
}

/// With a follower that applies entries up to 50 ms late.
///
/// Spec: RS66
mod through_a_late_follower_of_three {
    use super::*;

    async fn fixture() -> (Arc<dyn Backend>, Cluster) {
        let lag = Duration::from_millis(50);
        let cluster = Cluster::start_with(3, |number, config| {
            if number > 0 {
                config.faults = config.faults.clone().with_lag(lag);
            }
        });
        let cluster = cluster.await;
        let follower = cluster.follower().await;
        (Arc::new(follower), cluster)
    }

    resource_store::storage_conformance!(fixture(), of_a_follower());

    /// Else a second write with the version of the first would be refused by a service that
    /// compares it with what this node holds.
    #[tokio::test]
    async fn who_changes_something_through_it_reads_that_there() {
        let (follower, _cluster) = fixture().await;
        let mut version = String::new();
        for _ in 0..3 {
            let mut resource = cluster::thing("mine");
            resource.version = version;
            let written = follower.write_cas(resource).await.unwrap();
            let read = follower.read(Consistency::Eventual, &cluster::id("mine")).await.unwrap();
            assert_eq!(read, written);
            version = written.version.clone();
        }
        follower.delete_cas(&cluster::id("mine"), &version).await.unwrap();
        let read = follower.read(Consistency::Eventual, &cluster::id("mine")).await;
        assert!(matches!(read, Err(Error::NotFound)), "{read:?}");
    }
}
