//! The reaper, by hand.

use std::{sync::Arc, time::Duration};

use resource_store::{
    Code, LocalClient, Resource, ResourceService,
    backend::{Backend, Error, memory::MemoryBackend},
    controller::{Outcome, Request, reaper},
    demo::{self, v1},
    pb::{self, Id, ListRequest, Tenancy},
    registry::tombstone_type,
    testing::{ManualClock, TestController},
};

use crate::support::*;

struct Kit {
    service: ResourceService,
    clock: ManualClock,
    reaper: TestController,
}

impl Kit {
    fn new() -> Self {
        Self::over(Arc::new(MemoryBackend::new()))
    }

    fn over(backend: Arc<dyn Backend>) -> Self {
        let clock = ManualClock::default();
        let service = builder_over(backend).clock(clock.clone()).build();
        let client = LocalClient::new(service.clone());
        let reaper =
            TestController::new(reaper::controller_with_clock(clock.clone()), client).unwrap();
        Self { service, clock, reaper }
    }

    async fn tombstones(&self) -> Vec<Id> {
        let request = ListRequest {
            r#type: Some(tombstone_type()),
            tenancy: Some(Tenancy::new("*", "*")),
            name_prefix: String::new(),
        };
        let found = self.service.list(&anonymous(), request).await.unwrap();
        found.iter().map(|r| id(r)).collect()
    }

    async fn reconcile(&self, tombstone: &Id) -> Outcome {
        self.reaper.reconcile(&Request::new(tombstone.clone())).await.unwrap()
    }
}

const LATER: Outcome = Outcome::RequeueAfter(Duration::from_secs(30));

/// Spec: RS60, RS62
#[tokio::test]
async fn a_tombstone_goes_after_two_passes() {
    let kit = Kit::new();
    let stored = kit.service.put(artist("korn")).await.unwrap();
    kit.service.remove(&id(&stored), "").await.unwrap();
    let tombstone = kit.tombstones().await.remove(0);

    assert_eq!(kit.reconcile(&tombstone).await, LATER);
    let status = kit.service.get(&tombstone).await.unwrap().status[reaper::NAME].clone();
    assert_eq!(status.conditions.len(), 1);
    let condition = &status.conditions[0];
    assert_eq!(condition.r#type, "FirstPassCompleted");
    assert_eq!(condition.state(), pb::condition::State::True);
    assert_eq!(condition.reason, "Success");
    assert_eq!(condition.message, "First pass of child resource deletion completed");

    kit.clock.advance(Duration::from_secs(29));
    assert_eq!(kit.reconcile(&tombstone).await, LATER, "too early");
    kit.clock.advance(Duration::from_secs(2));
    assert_eq!(kit.reconcile(&tombstone).await, Outcome::Done);
    assert!(kit.tombstones().await.is_empty());
    assert_eq!(kit.reconcile(&tombstone).await, Outcome::Done, "already gone");
}

/// The tombstone of a long name has a name longer than others may be.
#[tokio::test]
async fn children_of_the_longest_name_go_too() {
    let kit = Kit::new();
    let owner = kit.service.put(artist(&"x".repeat(63))).await.unwrap();
    kit.service.put(demo::album("one", &id(&owner)).encode()).await.unwrap();
    kit.service.remove(&id(&owner), "").await.unwrap();
    let tombstone = kit.tombstones().await.remove(0);
    assert_eq!(tombstone.name.len(), 100);
    assert_eq!(kit.reconcile(&tombstone).await, LATER);
    assert!(kit.service.children(&id(&owner)).await.unwrap().is_empty());
    kit.clock.advance(Duration::from_secs(31));
    assert_eq!(kit.reconcile(&tombstone).await, Outcome::Done);
    assert!(!kit.tombstones().await.contains(&tombstone));
}

/// Spec: RS61
#[tokio::test]
async fn children_go_with_their_owner() {
    let kit = Kit::new();
    let owner = kit.service.put(artist("korn")).await.unwrap();
    for name in ["one", "two", "three"] {
        kit.service.put(demo::album(name, &id(&owner)).encode()).await.unwrap();
    }
    kit.service.remove(&id(&owner), "").await.unwrap();
    let tombstone = kit.tombstones().await.remove(0);
    assert_eq!(kit.reconcile(&tombstone).await, LATER);
    assert!(kit.service.children(&id(&owner)).await.unwrap().is_empty());
    kit.clock.advance(Duration::from_secs(31));
    assert_eq!(kit.reconcile(&tombstone).await, Outcome::Done);
    let left = kit.tombstones().await;
    assert_eq!(left.len(), 3, "one for each child");
    assert!(!left.contains(&tombstone));
}

/// A delete writes the tombstone first. Where the delete itself then fails, as
/// by another writer or a lost leader, the owner lives, and so do its children.
///
/// Spec: 5.2
#[tokio::test]
async fn an_owner_that_lives_keeps_its_children() {
    let backend = Faulty::new();
    let kit = Kit::over(backend.clone());
    let owner = kit.service.put(artist("korn")).await.unwrap();
    let child = kit.service.put(demo::album("one", &id(&owner)).encode()).await.unwrap();
    backend.fail(|method| (method == "delete").then_some(Error::CasFailure));
    assert_fails(kit.service.remove(&id(&owner), &owner.version).await, Code::Aborted, CAS_FAILED);
    backend.mend();

    let tombstone = kit.tombstones().await.remove(0);
    for _ in 0..3 {
        assert_eq!(kit.reconcile(&tombstone).await, LATER, "the owner lives");
        assert_eq!(kit.service.children(&id(&owner)).await.unwrap(), [Arc::clone(&child)]);
        kit.clock.advance(Duration::from_secs(31));
    }
    // The same incarnation, stored under another version of its group.
    let data = v1::Artist { name: "Korn".to_owned(), ..v1::Artist::default() };
    let older = Resource::new(demo::default_tenancy(), "korn", data).encode();
    let older = kit.service.put(older).await.unwrap();
    assert_eq!(older.uid(), owner.uid());
    assert_eq!(kit.reconcile(&tombstone).await, LATER, "the owner lives");
    assert_eq!(kit.service.children(&id(&owner)).await.unwrap(), [child]);

    // The next delete finds the tombstone there, which now counts.
    kit.service.remove(&id(&older), "").await.unwrap();
    assert_eq!(kit.reconcile(&tombstone).await, LATER);
    assert_eq!(kit.service.children(&id(&owner)).await.unwrap(), []);
    kit.clock.advance(Duration::from_secs(31));
    assert_eq!(kit.reconcile(&tombstone).await, Outcome::Done);
}
