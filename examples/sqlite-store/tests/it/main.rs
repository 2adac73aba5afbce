//! The suite for stores, and an engine that is started again.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use consul_watch::{Watcher, testing::TestConsul, types::HealthStatus};
use cts_tasks::{
    Engine, EngineOptions, Stop, TaskStore as _,
    testing::{RecordingDriver, store, task},
};
use sqlite_store::SqliteStore;

macro_rules! cases {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let folder = tempfile::tempdir().unwrap();
            store::$case(&SqliteStore::open(&folder.path().join("state.db")).unwrap()).await;
        }
    )*};
}

cases! {
    nothing_is_loaded_at_first,
    what_was_committed_is_loaded,
    changes_are_applied_in_order,
    a_task_put_again_keeps_its_place,
    only_the_newest_events_are_kept,
    a_deleted_task_leaves_nothing,
    a_deletion_waits_with_its_task,
    removing_the_unknown_is_no_error,
    an_empty_batch_does_nothing,
}

#[tokio::test]
async fn what_an_engine_did_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
    let store = SqliteStore::open(&path).unwrap();
    let mut options = EngineOptions::default();
    options.store = Arc::new(store);
    let driver = Arc::new(RecordingDriver::default());
    let engine = Engine::new(Watcher::new(consul.client()), driver, options);
    let stop = Stop::new();
    engine.load(vec![task("web")], &stop).await.unwrap();
    engine.once(&stop).await.unwrap();
    let state = engine.state(Clone::clone);
    assert_eq!(state.events.len(), 1);

    let refused = SqliteStore::open(&path).unwrap_err();
    assert!(consul_watch::error_chain(&refused).to_string().contains("locked"));
    drop(engine);
    let again = SqliteStore::open(&path).unwrap();
    assert_eq!(again.load().await.unwrap(), state);
}
