//! What stands on top of watches: stores, many watches as one stream, parts and mappings.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use consul_watch::{
    Query as _, Watcher,
    client::Request,
    query::{CatalogServices, HealthService, KvGet, KvList, Polled},
    testing::{Fault, TestConsul},
    types::HealthStatus::{Critical, Passing},
    watch::{AllEvent, Liveness},
};
use futures::StreamExt as _;

fn key(name: &str) -> String {
    name.to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_store_keeps_what_did_not_change_and_outlives_failures() {
    let consul = TestConsul::new();
    consul.kv_put("a", "1");
    consul.kv_put("b", "1");
    let watcher = Watcher::new(consul.client());
    let mut watch = watcher.watch(KvList::new(""));
    let store = watch.clone().store();
    assert!(!store.is_ready() && store.is_empty());
    store.ready().await.unwrap();
    let (a, b, old) = (store.get(&key("a")), store.get(&key("b")), store.contents());
    assert_eq!(store.len(), 2);

    watch.changed().await.unwrap();
    consul.kv_put("b", "2");
    watch.changed().await.unwrap();
    let reader = store.clone();
    let changed = async {
        while reader.get(&key("b")) == b {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    changed.await;
    assert!(Arc::ptr_eq(&a.unwrap(), &store.get(&key("a")).unwrap()), "it did not change");
    assert_eq!(old[&key("b")].text(), Some("1"), "a moment stays as it was");
    assert!(store.find(|pair| pair.text() == Some("2")).is_some());

    consul.inject(&Fault::Drop, 1);
    assert!(watch.changed().await.is_err());
    while store.failure().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.len(), 2, "the last state stays");
    assert!(store.is_ready() && store.ready().await.is_ok());
    drop((watch, reader, store));
    while watcher.active() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// A recovery without a change is no item of the watch.
#[tokio::test(start_paused = true)]
async fn a_store_is_current_again_when_its_watch_is() {
    let consul = TestConsul::new();
    consul.kv_put("a", "1");
    let watcher = Watcher::new(consul.client());
    let mut watch = watcher.watch(KvList::new(""));
    let store = watch.clone().store();
    store.ready().await.unwrap();
    watch.changed().await.unwrap();
    consul.inject(&Fault::Drop, 1);
    assert!(watch.changed().await.is_err());
    assert!(store.failure().is_some());
    while watch.state().liveness != Liveness::Live {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(store.failure().is_none(), "{:?}", store.failure());
}

#[tokio::test(start_paused = true)]
async fn a_store_of_many_watches_has_each_by_its_key() {
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.7", 80, Passing);
    let watcher = Watcher::new(consul.client());
    let query = |name: &str| HealthService::new(name);
    let mut api = watcher.watch(query("api"));
    let store = watcher.watch_all(["web", "api"].map(query)).store();
    assert!(!store.is_ready());
    store.ready().await.unwrap();
    let (web, before) = (store.get(&query("web").key()).unwrap(), store.contents());
    assert_eq!((web.len(), store.len()), (1, 2));

    api.changed().await.unwrap();
    consul.set_instance("api", "api-1", "10.0.0.8", 80, Passing);
    while store.get(&query("api").key()).unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(before[&query("api").key()].is_empty(), "a moment stays as it was");
    assert!(Arc::ptr_eq(&web, &store.get(&query("web").key()).unwrap()));

    consul.inject(&Fault::Drop, 1);
    while store.failure().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(store.failure().unwrap().key().is_some());
    while store.failure().is_some() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    drop((api, store));
    while watcher.active() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_of_many_watches_says_which_can_never_be() {
    let watcher = Watcher::new(TestConsul::new().client());
    let store = watcher.watch_all([KvGet::new("a"), KvGet::new("/x")]).store();
    let error = store.ready().await.unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("/x"), "{error}");
    while !store.is_ready() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(store.len(), 1, "the others go on");
    assert!(store.failure().unwrap().to_string().contains("/x"));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_can_never_be_ready_says_so() {
    let watcher = Watcher::new(TestConsul::new().client());
    let store = watcher.watch(KvList::new("/x")).store();
    let error = store.ready().await.unwrap_err();
    assert!(error.is_fatal() && error.key().is_some(), "{error}");
    let store = watcher.watch(KvList::new("a")).store();
    store.ready().await.unwrap();
    watcher.shutdown().await;
    while store.failure().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(store.failure().unwrap().is_fatal());
}

#[tokio::test(start_paused = true)]
async fn one_stream_begins_when_the_last_watch_is_ready() {
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.7", 80, Passing);
    // Passing failures before that are waited out.
    consul.inject(&Fault::Drop, 2);
    let watcher = Watcher::new(consul.client());
    let names = ["web", "api", "web"];
    let mut all = watcher.watch_all(names.map(HealthService::new));
    let Some(Ok(AllEvent::Ready(found))) = all.next().await else { panic!("not ready") };
    let counts: Vec<_> = found.iter().map(|(_, snapshot)| snapshot.data.len()).collect();
    assert_eq!(counts, [1, 0], "in the order of the queries, each once");
    assert!(found[1].0.as_str().contains("api"));

    consul.set_instance("api", "api-1", "10.0.0.8", 80, Passing);
    let Some(Ok(AllEvent::Changed { key, snapshot })) = all.next().await else { panic!() };
    assert_eq!((key.as_str(), snapshot.data.len()), (found[1].0.as_str(), 1));
    consul.inject(&Fault::Drop, 1);
    let error = all.next().await.unwrap().unwrap_err();
    assert!(error.key().is_some() && !error.is_fatal(), "{error}");
    watcher.shutdown().await;
    while let Some(item) = all.next().await {
        assert!(item.is_err_and(|error| !error.is_fatal()));
    }
}

#[tokio::test(start_paused = true)]
async fn one_stream_goes_on_without_the_watch_that_cannot_be() {
    let watcher = Watcher::new(TestConsul::new().client());
    let mut all = watcher.watch_all([KvGet::new("a"), KvGet::new("/x")]);
    let error = all.next().await.unwrap().unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("/x"), "{error}");
    let Some(Ok(AllEvent::Ready(found))) = all.next().await else { panic!("not ready") };
    assert_eq!(found.len(), 1);
    let mut none = watcher.watch_all(Vec::<CatalogServices>::new());
    assert!(matches!(none.next().await, Some(Ok(AllEvent::Ready(found))) if found.is_empty()));
    assert!(none.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn irrelevant_changes_are_dropped_and_failures_are_not() {
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.7", 80, Passing);
    let watcher = Watcher::new(consul.client());
    let mut watch = watcher.watch(HealthService::new("web"));
    let mut ids = watch.clone().changed_by(|entries| {
        entries.iter().map(|entry| entry.service.id.clone()).collect::<Vec<_>>()
    });
    assert_eq!(ids.next().await.unwrap().unwrap().data.len(), 1);
    watch.changed().await.unwrap();
    consul.set_instance("web", "web-1", "10.0.0.7", 80, Critical);
    watch.changed().await.unwrap();
    consul.inject(&Fault::Drop, 1);
    assert!(ids.next().await.unwrap().is_err());
    consul.set_instance("web", "web-2", "10.0.0.8", 80, Passing);
    assert_eq!(ids.next().await.unwrap().unwrap().data.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_mapped_once_for_all() {
    let consul = TestConsul::new();
    let watcher = Watcher::new(consul.client());
    let mapped = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&mapped);
    let one = watcher.watch(KvList::new("")).map_shared(move |pairs| {
        counter.fetch_add(1, Ordering::Relaxed);
        pairs.len()
    });
    let mut all: Vec<_> = (0..10).map(|_| one.clone()).collect();
    for round in 0..3 {
        let mut seen = Vec::new();
        for each in &mut all {
            seen.push(each.changed().await.unwrap().data);
        }
        assert!(seen.iter().all(|data| Arc::ptr_eq(data, &seen[0]) && **data == round));
        assert_eq!(mapped.load(Ordering::Relaxed), round + 1);
        consul.kv_put(&format!("k{round}"), "x");
    }
}

/// A query of one's own names itself in errors, too.
#[tokio::test(start_paused = true)]
async fn an_error_names_its_watch() {
    let watcher = Watcher::new(TestConsul::new().client());
    let query = Polled::new("my.read", &("x",), Duration::from_secs(1), |client| async move {
        client.read::<String>(Request::get("my.read", "/v1/no-such-path")).await
    });
    let error = watcher.watch(query).changed().await.unwrap_err();
    let key = error.key().unwrap();
    assert_eq!(key.operation(), "my.read");
    assert!(error.to_string().starts_with(r#"the watch of my.read(("x",)"#), "{error}");
}
