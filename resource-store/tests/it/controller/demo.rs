//! The demo controller, by hand.

use resource_store::{
    LocalClient, Resource, ResourceData as _,
    controller::{Outcome, Request},
    demo::{
        self,
        v2::{Album, Artist, Genre},
    },
    testing::TestController,
};

use crate::support::*;

/// Spec: RS80
#[tokio::test]
async fn artists_get_their_albums() {
    let service = service();
    let kit = TestController::new(demo::controller(), LocalClient::new(service.clone())).unwrap();
    let mut artist = demo::artist("muddy");
    artist.data.set_genre(Genre::Blues);
    let stored = service.put(artist.encode()).await.unwrap();
    let request = Request::new(id(&stored));
    let albums = async || service.all::<Album>("muddy-").await.unwrap();

    assert_eq!(kit.reconcile(&request).await.unwrap(), Outcome::Done);
    let first = albums().await;
    assert_eq!(first.len(), 10);
    let observed = service.get(&request.id).await.unwrap();
    let status = &observed.status[demo::STATUS_KEY];
    assert_eq!(status.conditions.len(), 11);
    assert_eq!(status.conditions[0].r#type, "Accepted");
    assert_eq!(status.conditions[0].message, "Artist 'muddy' accepted");
    assert_eq!(status.observed_generation, observed.generation);

    service.remove(&id(&first[3]), "").await.unwrap();
    kit.reconcile(&request).await.unwrap();
    let again = albums().await;
    assert_eq!(again.len(), 10);
    assert_eq!(again[3].data, first[3].data, "the same album again");

    let mut changed = Resource::<Artist>::decode(&service.get(&request.id).await.unwrap()).unwrap();
    changed.data.set_genre(Genre::Disco);
    changed.version.clear();
    service.put(changed.encode()).await.unwrap();
    kit.reconcile(&request).await.unwrap();
    assert_eq!(albums().await.len(), 3);
    kit.reconcile(&request).await.unwrap();
}

#[tokio::test]
async fn albums_map_to_their_artist() {
    let service = service();
    let kit = TestController::new(demo::controller(), LocalClient::new(service.clone())).unwrap();
    let artist = service.put(artist("korn")).await.unwrap();
    let album = demo::album("issues", &id(&artist)).encode();
    assert_eq!(kit.dry_run_mapper(&album).await.unwrap(), [Request::new(id(&artist))]);
    assert_eq!(kit.dry_run_mapper(&artist).await.unwrap(), []);
    let error = kit.dry_run_mapper(&label("roadrunner")).await.unwrap_err();
    assert_eq!(error.to_string(), "no mapper for type: demo.v1.RecordLabel");
    assert_eq!(Artist::resource_type().to_string(), "demo.v2.Artist");
}
