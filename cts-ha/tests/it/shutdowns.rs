//! Candidates and holders that leave before their time.

use std::time::Duration;

use consul_watch::{QueryOptions, WriteOptions, testing::TestConsul, types::SessionRequest};
use cts_ha::{
    Candidate, Consul, ConsulElector, Elector as _, ElectorExt as _, Lock, LockOptions, Loss,
};
use tokio::time::timeout;

use crate::place::{Place, cases, eventually};

cases!(
    a_candidate_that_leaves_takes_its_session_along,
    a_grant_that_nobody_waits_for_is_returned,
    a_leader_that_is_dropped_leaves_nothing_behind
);

const PATIENCE: Duration = Duration::from_secs(30);

/// How many sessions of this name there are.
async fn sessions(place: &Place, name: &str) -> usize {
    let sessions = place.client.session_list(&QueryOptions::default()).await.unwrap();
    sessions.value.iter().filter(|session| session.name == name).count()
}

fn named(place: &Place, consul: &Consul, key: &str, name: &str) -> ConsulElector {
    let mut options = place.election();
    options.session_name = Some(name.to_owned());
    ConsulElector::new(consul, key, Candidate::new("candidate"), options).unwrap()
}

async fn a_candidate_that_leaves_takes_its_session_along(place: &Place) {
    let (key, name) = (place.name("leader"), place.name("waiting"));
    let leader = place.elector(&place.consul(), &key, "leader").campaign().await.unwrap();
    let waiting = named(place, &place.consul(), &key, &name);
    let seen = eventually("it waits", PATIENCE, async || {
        waiting.leader().is_some() && sessions(place, &name).await == 1
    });
    tokio::select! {
        _led = waiting.campaign() => unreachable!("another leads"),
        () = seen => {}
    }
    waiting.shutdown().await;
    assert_eq!(sessions(place, &name).await, 0, "long before its TTL");
    assert!(leader.check().is_ok());
    leader.resign().await;
}

/// The future is dropped when Consul has granted the lock, and before the
/// candidate has the answer.
async fn a_grant_that_nobody_waits_for_is_returned(place: &Place) {
    let (key, name) = (place.name("leader"), place.name("leaving"));
    let (client, trouble) = place.troubled();
    let leaving = named(place, &Consul::new(client), &key, &name);
    let next = place.elector(&place.consul(), &key, "next");
    let asked = eventually("it has the lock", PATIENCE, async || trouble.held_back() > 0);
    trouble.hold_answers("PUT /v1/txn");
    tokio::select! {
        _led = leaving.campaign() => unreachable!("it has no answer"),
        () = asked => {}
    }
    leaving.shutdown().await;
    let leadership = timeout(Duration::from_secs(3), next.campaign())
        .await
        .expect("no TTL and no lock-delay passes")
        .unwrap();
    assert_eq!(sessions(place, &name).await, 0);
    leadership.resign().await;
}

/// Its work may be dropped where it stands: the shutdown is all that has to be awaited.
async fn a_leader_that_is_dropped_leaves_nothing_behind(place: &Place) {
    let (key, name) = (place.name("leader"), place.name("working"));
    let leader = named(place, &place.consul(), &key, &name);
    let (leads, led) = tokio::sync::oneshot::channel();
    let mut leads = Some(leads);
    tokio::select! {
        _done = leader.run(|_leadership| {
            leads.take().map_or(Ok(()), |leads| leads.send(())).unwrap();
            std::future::pending::<()>()
        }) => unreachable!("the work has no end"),
        led = led => led.unwrap(),
    }
    leader.shutdown().await;
    assert_eq!(sessions(place, &name).await, 0);
    let next = place.elector(&place.consul(), &key, "next");
    let leadership = timeout(Duration::from_secs(3), next.campaign())
        .await
        .expect("no TTL and no lock-delay passes")
        .unwrap();
    // Who leads still is not waited for.
    timeout(Duration::from_secs(3), next.shutdown()).await.expect("nothing to wait for");
    assert!(leadership.check().is_ok());
    leadership.resign().await;
}

/// A lock under a session of the caller's has no clock that would end it.
#[test]
fn a_lock_ends_with_its_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (lease, _lock) = runtime.block_on(async {
        let consul = TestConsul::new();
        let session = consul
            .client()
            .session_create(&SessionRequest::default(), &WriteOptions::default())
            .await
            .unwrap();
        let mut options = LockOptions::default();
        options.session = Some(session);
        let lock = Lock::new(&Consul::new(consul.client()), "lock", options);
        let lease = lock.lock().await.unwrap().unwrap();
        assert!(lease.check().is_ok());
        (lease, lock)
    });
    drop(runtime);
    assert_eq!(lease.check(), Err(Loss::Abandoned));
}
