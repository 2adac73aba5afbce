//! The typed client: the same program over every way to a service.

use std::{sync::Arc, time::Duration};

use futures::{Stream, StreamExt as _};
use resource_store::{
    Api, ApiError, ApiEvent, Code, LocalClient, Resource, ResourceClient, ResourceService, Store,
    backend::memory::MemoryBackend,
    demo::v2::{Album, Artist},
    pb::{self, Tenancy},
};

use crate::support::*;

async fn event(
    events: &mut (impl Stream<Item = Result<ApiEvent<Artist>, ApiError>> + Unpin),
) -> ApiEvent<Artist> {
    tokio::time::timeout(Duration::from_secs(20), events.next()).await.unwrap().unwrap().unwrap()
}

fn named(name: &str) -> Artist {
    Artist { name: name.to_owned(), ..Artist::default() }
}

/// What a user does, over any client.
async fn program(client: Arc<dyn ResourceClient>) {
    let artists = Api::<Artist>::new(Arc::clone(&client));
    assert_eq!(artists.get("korn").await.unwrap(), None);
    let missing = artists.modify("korn", |_| ()).await.unwrap_err();
    assert!(missing.is_not_found());
    assert_eq!(missing.to_string(), "cannot change demo.v2.Artist/default.default/korn");
    let cause = std::error::Error::source(&missing).unwrap().to_string();
    assert!(cause.contains("there is none of that name"), "{cause}");

    let (store, mut changes) = Store::of(&artists);
    assert_eq!(event(&mut changes).await, ApiEvent::Complete);
    store.wait_until_complete().await;
    assert!(store.is_empty());

    let first = artists.create(&artists.resource("korn", named("Korn"))).await.unwrap();
    assert_eq!(event(&mut changes).await, ApiEvent::Applied(Arc::new(first.clone())));
    assert_eq!(store.get("korn").as_deref(), Some(&first));
    let twice = artists.create(&artists.resource("korn", named("Korn"))).await.unwrap_err();
    assert_eq!(twice.code(), Some(Code::AlreadyExists));

    // What others wrote into it stays.
    let marked = artists
        .modify("korn", |artist| {
            artist.metadata.insert("from".to_owned(), "Bakersfield".to_owned());
        })
        .await
        .unwrap();
    let applied = artists.apply("korn", named("KoRn")).await.unwrap();
    assert_eq!((&applied.metadata, applied.data.name.as_str()), (&marked.metadata, "KoRn"));
    let again = artists.apply("korn", named("KoRn")).await.unwrap();
    assert_eq!(again.version, applied.version, "nothing to write");
    assert!(artists.replace(&first).await.unwrap_err().is_conflict());
    assert!(artists.delete_version(&first).await.unwrap_err().is_conflict());

    let status =
        pb::Status { observed_generation: applied.generation.clone(), ..pb::Status::default() };
    let reported = artists.patch_status(&applied, "test", status.clone()).await.unwrap();
    assert_eq!(reported.generation, applied.generation);
    let same = artists.patch_status(&reported, "test", status.clone()).await.unwrap();
    assert_eq!(same.version, reported.version);
    assert!(artists.patch_status(&applied, "other", status).await.unwrap_err().is_conflict());

    // A status that somebody wrote meanwhile is a conflict, too, and no mistake of the caller.
    let status =
        pb::Status { observed_generation: reported.generation.clone(), ..pb::Status::default() };
    let newer = artists.patch_status(&reported, "other", status).await.unwrap();
    assert!(artists.replace(&reported).await.unwrap_err().is_conflict());
    let (reported, kept) = (artists.replace(&newer).await.unwrap(), newer);
    assert_eq!(reported.status, kept.status);

    let albums = artists.of::<Album>();
    albums.create(&albums.resource("one", Album::default()).owned_by(&reported)).await.unwrap();
    albums.create(&albums.resource("two", Album::default())).await.unwrap();
    let owned = albums.list_owned(&reported).await.unwrap();
    assert_eq!(owned.iter().map(Resource::name).collect::<Vec<_>>(), ["one"]);
    assert!(artists.list_owned(&reported).await.unwrap().is_empty(), "albums are no artists");
    assert_eq!(albums.list_prefix("t").await.unwrap().len(), 1);
    let everywhere = albums.clone().everywhere();
    assert_eq!(everywhere.list().await.unwrap().len(), 2);
    let elsewhere = albums.clone().in_tenancy(Tenancy::new("default", "none"));
    assert!(elsewhere.list().await.is_ok_and(|found| found.is_empty()));

    // Marked while a finalizer holds it, and gone with the last one.
    artists
        .modify("korn", |artist| {
            artist.metadata.insert("finalizers".to_owned(), "test".to_owned());
        })
        .await
        .unwrap();
    artists.delete("korn").await.unwrap();
    let held = artists.get("korn").await.unwrap().unwrap();
    assert!(held.is_marked_for_deletion());
    artists.release(&held, "test").await.unwrap();
    assert_eq!(artists.get("korn").await.unwrap(), None);
    artists.delete("korn").await.unwrap();
    assert!(artists.replace(&kept).await.unwrap_err().is_conflict(), "it is gone");
    while !matches!(event(&mut changes).await, ApiEvent::Deleted(_)) {}
    assert!(store.is_empty());
}

fn over(service: &ResourceService) -> Arc<dyn ResourceClient> {
    Arc::new(LocalClient::new(service.clone()))
}

#[tokio::test]
async fn the_typed_client_over_memory() {
    program(over(&builder_over(Arc::new(MemoryBackend::new())).build())).await;
}

#[cfg(feature = "durable")]
#[tokio::test]
async fn the_typed_client_over_a_file() {
    use resource_store::backend::durable::{DurableBackend, DurableOptions};

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resources.redb");
    let store = DurableBackend::open(path, DurableOptions::default()).await.unwrap();
    program(over(&builder_over(Arc::new(store)).build())).await;
}

#[cfg(all(feature = "grpc", feature = "client"))]
#[tokio::test]
async fn the_typed_client_over_grpc() {
    use resource_store::{
        GrpcClient, GrpcClientConfig,
        server::{Server, ServerConfig},
    };

    let mut config = ServerConfig::default();
    "127.0.0.1:0".clone_into(&mut config.address);
    let server = Server::bind(service(), config).await.unwrap();
    let address = format!("http://{}", server.local_addr().unwrap());
    let stop = tokio_util::sync::CancellationToken::new();
    let served = tokio::spawn(server.run(stop.clone()));
    program(Arc::new(GrpcClient::new(&GrpcClientConfig::new(&address)).unwrap())).await;
    stop.cancel();
    served.await.unwrap().unwrap();
}

#[cfg(all(feature = "grpc", feature = "http", feature = "http-client"))]
#[tokio::test]
async fn the_typed_client_over_http() {
    use resource_store::{
        HttpClient, HttpClientConfig,
        server::{Server, ServerConfig},
    };

    let mut config = ServerConfig::default();
    "127.0.0.1:0".clone_into(&mut config.address);
    let server = Server::bind(service(), config).await.unwrap();
    let config = HttpClientConfig::new(&format!("http://{}", server.local_addr().unwrap()));
    let stop = tokio_util::sync::CancellationToken::new();
    let served = tokio::spawn(server.run(stop.clone()));
    program(Arc::new(HttpClient::new(&config, demo_registry()).unwrap())).await;
    stop.cancel();
    served.await.unwrap().unwrap();
}

/// Two writers change one resource; neither loses what the other wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_at_the_same_time_are_all_kept() {
    let artists = Api::<Artist>::new(LocalClient::new(service()));
    artists.apply("korn", named("Korn")).await.unwrap();
    let writers = (0..4).map(|writer| {
        let artists = artists.clone();
        tokio::spawn(async move {
            for number in 0..5 {
                let key = format!("{writer}-{number}");
                artists
                    .modify("korn", |artist| {
                        artist.metadata.insert(key.clone(), String::new());
                    })
                    .await
                    .unwrap();
            }
        })
    });
    futures::future::try_join_all(writers).await.unwrap();
    assert_eq!(artists.get("korn").await.unwrap().unwrap().metadata.len(), 20);
}
