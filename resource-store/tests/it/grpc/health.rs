//! Health follows the store.

use resource_store::backend::{self, Backend, Query, ResourceStream, Watch, memory::MemoryBackend};
use tokio::{sync::watch, time::timeout};
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A store in memory that may be out of order, or give no answer to whether it is.
#[derive(Debug)]
struct Moody {
    inner: MemoryBackend,
    mood: watch::Receiver<Mood>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Fine,
    OutOfOrder,
    Silent,
}

#[async_trait::async_trait]
impl Backend for Moody {
    async fn read(
        &self,
        consistency: Consistency,
        id: &pb::Id,
    ) -> backend::Result<Arc<pb::Resource>> {
        self.inner.read(consistency, id).await
    }

    async fn write_cas(&self, resource: pb::Resource) -> backend::Result<Arc<pb::Resource>> {
        self.inner.write_cas(resource).await
    }

    async fn delete_cas(&self, id: &pb::Id, version: &str) -> backend::Result<()> {
        self.inner.delete_cas(id, version).await
    }

    async fn list(
        &self,
        consistency: Consistency,
        query: &Query,
    ) -> backend::Result<Vec<Arc<pb::Resource>>> {
        self.inner.list(consistency, query).await
    }

    async fn list_by_owner(&self, owner: &pb::Id) -> backend::Result<Vec<Arc<pb::Resource>>> {
        self.inner.list_by_owner(owner).await
    }

    async fn watch_list(&self, query: &Query) -> backend::Result<Watch> {
        self.inner.watch_list(query).await
    }

    async fn snapshot(&self) -> backend::Result<ResourceStream> {
        self.inner.snapshot().await
    }

    async fn restore(&self, resources: ResourceStream) -> backend::Result<()> {
        self.inner.restore(resources).await
    }

    async fn ready(&self) -> backend::Result<()> {
        let mood = *self.mood.borrow();
        match mood {
            Mood::Fine => Ok(()),
            Mood::OutOfOrder => Err(backend::Error::Inconsistent { reason: "no leader".into() }),
            Mood::Silent => std::future::pending().await,
        }
    }
}

/// Waits until the health of a service is this.
async fn becomes(answers: &mut tonic::Streaming<HealthCheckResponse>, expected: ServingStatus) {
    let told = async { while answers.message().await.unwrap().unwrap().status() != expected {} };
    timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("it is not {expected:?}"));
}

#[tokio::test]
async fn readiness_follows_the_store_and_liveness_does_not() {
    let (mood, moods) = watch::channel(Mood::Fine);
    let store = Moody { inner: MemoryBackend::new(), mood: moods };
    let mut config = ServerConfig::default();
    config.health_interval = Duration::from_millis(50);
    let server = start(builder_over(Arc::new(store)).build(), config).await;
    let mut client = HealthClient::new(channel(&server));
    let of = |service: &str| HealthCheckRequest { service: service.to_owned() };
    // There is a health from the first moment on.
    let first = client.check(of(SERVICE)).await.unwrap().into_inner();
    assert_eq!(first.status(), ServingStatus::Serving);

    let mut told = client.watch(of(SERVICE)).await.unwrap().into_inner();
    for (next, expected) in [
        (Mood::OutOfOrder, ServingStatus::NotServing),
        (Mood::Fine, ServingStatus::Serving),
        (Mood::Silent, ServingStatus::NotServing),
        (Mood::Fine, ServingStatus::Serving),
    ] {
        mood.send_replace(next);
        becomes(&mut told, expected).await;
        let live = client.check(of("")).await.unwrap().into_inner();
        assert_eq!(live.status(), ServingStatus::Serving, "the process is there");
    }
    server.stop.cancel();
    becomes(&mut told, ServingStatus::NotServing).await;
}

/// What is written into a removed file is gone with the process.
#[cfg(all(feature = "durable", unix))]
#[tokio::test]
async fn a_store_whose_file_is_gone_is_not_ready() {
    use resource_store::backend::durable::{DurableBackend, DurableOptions};
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.redb");
    let store = DurableBackend::open(&file, DurableOptions::default()).await.unwrap();
    let mut config = ServerConfig::default();
    config.health_interval = Duration::from_millis(50);
    let server = start(builder_over(Arc::new(store.clone())).build(), config).await;
    let mut client = HealthClient::new(channel(&server));
    let request = HealthCheckRequest { service: SERVICE.to_owned() };
    let mut told = client.watch(request).await.unwrap().into_inner();
    becomes(&mut told, ServingStatus::Serving).await;
    let aside = folder.path().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    becomes(&mut told, ServingStatus::NotServing).await;
    let reason = store.ready().await.unwrap_err().to_string();
    assert!(reason.contains(file.to_str().unwrap()) && reason.contains("removed"), "{reason}");
    std::fs::copy(&aside, &file).unwrap();
    assert!(store.ready().await.is_err(), "it is another file");
    std::fs::rename(&aside, &file).unwrap();
    becomes(&mut told, ServingStatus::Serving).await;
    store.close().await.unwrap();
    becomes(&mut told, ServingStatus::NotServing).await;
}
