//! What the crate offers to tests of users.

use std::time::Duration;

use resource_store::{
    LocalClient, Registry, Resource, ResourceData as _,
    acl::{Access, StaticRules},
    controller::Manager,
    demo::{self, v1, v2},
    pb::{self, condition::State},
    testing::{AclCase, Expected, TestClient, check_acls},
};
use tokio_util::sync::CancellationToken;

use crate::support::*;

fn client() -> TestClient<LocalClient> {
    TestClient::new(LocalClient::new(service()))
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_when_it_comes_true_or_takes_too_long() {
    let client = client();
    let id = demo::artist("korn").id;
    let late = async {
        tokio::time::sleep(Duration::from_secs(6)).await;
        client.publish(demo::artist("korn").encode()).await.unwrap()
    };
    let (found, stored) = tokio::join!(client.wait_for_resource(&id), late);
    assert_eq!(found.unwrap(), stored);
    client.require_version(&id, &stored.version).await.unwrap();
    let error = client.wait_for_new_version(&id, &stored.version).await.unwrap_err();
    let version = &stored.version;
    let expected = format!("still has version {version:?}");
    assert!(error.to_string().ends_with(&expected), "{error}");
    assert!(client.require_not_found(&id).await.is_err());
    let error = client.wait_for_deletion(&id).await.unwrap_err();
    assert!(error.to_string().ends_with("is still there"), "{error}");
    client.clean_up().await.unwrap();
    client.wait_for_deletion(&id).await.unwrap();
    client.require_not_found(&id).await.unwrap();
    assert!(client.require_found(&id).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn owners_are_published_first_in_whatever_order() {
    let mut orders = std::collections::BTreeSet::new();
    for seed in 0..10 {
        let client = client().with_delays(seed);
        let names = ["a", "b", "c"];
        let artists = names.map(|name| demo::artist(name).encode());
        // Without uids, so that the service refuses an album before its artist.
        let albums =
            names.map(|name| demo::album(&format!("{name}-x"), &demo::artist(name).id).encode());
        let all = albums.into_iter().chain(artists).collect();
        let stored = client.publish_all(all).await.unwrap();
        assert_eq!(stored.len(), 6);
        orders.insert(stored.iter().map(|r| r.name().to_owned()).collect::<Vec<_>>());
    }
    assert!(orders.len() > 1, "the order depends on the seed");
}

#[tokio::test(start_paused = true)]
async fn conditions_of_controllers_can_be_waited_for() {
    let service = service();
    let client = TestClient::new(LocalClient::new(service.clone()));
    let mut manager = Manager::new(LocalClient::new(service));
    manager.register(demo::controller()).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.child_token()));
    let id = client.publish(demo::artist("korn").encode()).await.unwrap().id.unwrap();
    let key = "consul.io/artist-controller";
    let accepted = |condition: &pb::Condition| condition.state() == State::True;
    client.wait_for_condition(&id, key, "Accepted", accepted).await.unwrap();
    let never = client.wait_for_condition(&id, key, "Refused", accepted).await;
    assert!(never.is_err());
    stop.cancel();
    running.await.unwrap().unwrap();
}

#[test]
fn rules_are_judged_by_the_hooks_of_a_type() {
    let registry: Registry = demo_registry();
    let none = StaticRules::none("a");
    let read = StaticRules::none("a").with_key_prefix("resource/", Access::Read);
    let write = StaticRules::none("a").with_key_prefix("resource/", Access::Write);
    let case = |name, rules, read, write, list| AclCase { name, rules, read, write, list };
    let (allow, deny) = (Expected::Allow, Expected::Deny);
    let artist = registry.resolve(&v2::Artist::resource_type()).unwrap();
    let korn = demo::artist("korn").encode();
    let cases = [
        case("none", &none, deny, deny, deny),
        case("read", &read, allow, deny, deny),
        case("write", &write, allow, allow, allow),
    ];
    check_acls(artist, &korn, &cases).unwrap();
    let error = check_acls(artist, &korn, &[case("wrong", &read, allow, allow, deny)]).unwrap_err();
    assert_eq!(error, "wrong: write: Deny, expected Allow");
    // This hook wants to see the resource.
    let label = registry.resolve(&v1::RecordLabel::resource_type()).unwrap();
    let roadrunner = Resource::new(
        pb::Tenancy::new("default", ""),
        "roadrunner",
        v1::RecordLabel { name: "roadrunner".to_owned(), ..v1::RecordLabel::default() },
    );
    check_acls(label, &roadrunner.encode(), &[case("read", &read, allow, deny, deny)]).unwrap();
}
