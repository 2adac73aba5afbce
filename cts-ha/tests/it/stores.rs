//! State in Consul KV.

use std::sync::Arc;

use consul_watch::{
    KvStore, QueryOptions, WriteOptions,
    client::{DeleteOptions, PutOptions},
    types::KvOp,
};
use cts_ha::{
    Elector as _, Error, Leadership,
    tasks::{KvTaskStore, StoreOptions},
};
use cts_tasks::{
    Change, Event, EventConfig, EventError, Task, TaskName, TaskStore,
    testing::{store, task},
};

use crate::place::{Place, cases};

/// A cluster's store, and a leader of it.
struct Site<'a> {
    place: &'a Place,
    directory: String,
}

impl<'a> Site<'a> {
    fn new(place: &'a Place) -> Self {
        Self { place, directory: place.name("cluster") }
    }

    async fn lead(&self, id: &str) -> Leadership {
        let key = format!("{}/leader", self.directory);
        let elector = self.place.elector(&self.place.consul(), &key, id);
        tokio::time::timeout(self.place.failover(), elector.campaign()).await.unwrap().unwrap()
    }

    async fn open(&self, leadership: &Leadership) -> KvTaskStore {
        KvTaskStore::open(&self.directory, leadership, StoreOptions::default()).await.unwrap()
    }

    async fn open_with(
        &self,
        leadership: &Leadership,
        configured: Vec<Task>,
        reset: bool,
    ) -> KvTaskStore {
        let mut options = StoreOptions::default();
        (options.configured, options.reset) = (configured, reset);
        KvTaskStore::open(&self.directory, leadership, options).await.unwrap()
    }

    fn follower(&self) -> KvTaskStore {
        KvTaskStore::read_only(&self.place.consul(), &self.directory)
    }

    async fn keys(&self, folder: &str) -> Vec<String> {
        let prefix = format!("{}/{folder}", self.directory);
        let client = &self.place.client;
        client.kv_keys(&prefix, None, &QueryOptions::default()).await.unwrap().value
    }

    async fn value(&self, name: &str) -> serde_json::Value {
        let key = format!("{}/{name}", self.directory);
        let read = self.place.client.kv_get(&key, &QueryOptions::default()).await.unwrap();
        serde_json::from_slice(&read.value.unwrap().value).unwrap()
    }
}

macro_rules! suite {
    ($($name:ident),* ; $($own:ident),* $(,)?) => {
        $(async fn $name(place: &Place) {
            let site = Site::new(place);
            let leadership = site.lead("one").await;
            store::$name(&site.open(&leadership).await).await;
            leadership.resign().await;
        })*
        cases!($($name,)* $($own),*);
    };
}

suite!(
    nothing_is_loaded_at_first,
    what_was_committed_is_loaded,
    changes_are_applied_in_order,
    a_task_put_again_keeps_its_place,
    only_the_newest_events_are_kept,
    a_deleted_task_leaves_nothing,
    a_deletion_waits_with_its_task,
    removing_the_unknown_is_no_error,
    an_empty_batch_does_nothing;
    events_of_other_tasks_are_untouched,
    the_layout_is_the_specified_one,
    the_next_leader_finds_what_was_stored,
    bounds_and_environment_of_a_task_pass_to_the_next_leader,
    stored_tasks_win_over_configured_ones,
    a_deposed_leader_writes_nothing,
    a_reset_happens_at_each_gain,
    a_reset_cut_short_begins_again,
    large_records_are_split,
    large_batches_are_all_or_nothing,
    a_batch_cut_short_is_completed,
    documents_of_a_newer_program_are_refused,
    a_reset_needs_to_read_nothing,
    long_messages_are_cut,
    a_failed_commit_is_made_good_by_the_next,
);

fn put(task: &Task) -> Change {
    Change::PutTask(Box::new(task.clone()))
}

fn event(name: &str, number: u128, message: Option<&str>) -> Change {
    let task = task(name);
    Change::AddEvent(Box::new(
        serde_json::from_value::<Event>(serde_json::json!({
            "id": uuid::Uuid::from_u128(number),
            "success": message.is_none(),
            "start_time": "2026-01-01T00:00:00Z",
            "end_time": "2026-01-01T00:00:01Z",
            "task_name": name,
            "error": message.map(|message| EventError { message: message.to_owned() }),
            "config": EventConfig::of(&task),
        }))
        .unwrap(),
    ))
}

fn name(name: &str) -> TaskName {
    name.to_owned().try_into().unwrap()
}

/// Values of `env` stand in Consul's KV, for the next leader runs the task with them.
async fn bounds_and_environment_of_a_task_pass_to_the_next_leader(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    let mut stored = task("a");
    stored.timeout = Some(std::time::Duration::from_mins(10));
    stored.shutdown_timeout = Some(std::time::Duration::from_secs(90));
    stored.retry = Some(cts_tasks::Retry::TASK.with_limit(Some(4)));
    stored.env.set("TOKEN", "v4lue").unwrap();
    site.open(&leadership).await.commit(&[put(&stored)]).await.unwrap();
    leadership.resign().await;
    let next = site.lead("two").await;
    let state = site.open(&next).await.load().await.unwrap();
    assert_eq!(state.tasks, [stored.clone()]);
    stored.env.set("TOKEN", "another").unwrap();
    assert_ne!(state.tasks, [stored], "values count, too");
    next.resign().await;
}

/// Case HA34: of six events of a task the five newest stay, and other tasks keep theirs.
async fn events_of_other_tasks_are_untouched(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    let store = site.open(&leadership).await;
    store.commit(&[put(&task("a")), put(&task("b")), event("b", 100, None)]).await.unwrap();
    for number in 1..=6 {
        store.commit(&[event("a", number, None)]).await.unwrap();
    }
    let state = site.follower().load().await.unwrap();
    let ids: Vec<u128> = state.events[&name("a")].iter().map(|event| event.id.as_u128()).collect();
    assert_eq!(ids, [6, 5, 4, 3, 2]);
    assert_eq!(state.events[&name("b")].len(), 1);
    leadership.resign().await;
}

async fn the_layout_is_the_specified_one(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("cts-02").await;
    let store = site.open_with(&leadership, vec![task("a")], false).await;
    store.commit(&[put(&task("b")), event("b", 1, None)]).await.unwrap();
    let term = leadership.token().get();
    let leader = site.value("leader").await;
    assert_eq!((leader["v"].as_u64(), leader["id"].as_str()), (Some(1), Some("cts-02")));
    let meta = site.value("meta").await;
    for (key, expected) in [("v", 1), ("schema", 1), ("created_term", term), ("term", term)] {
        assert_eq!(meta[key].as_u64(), Some(expected), "{key}: {meta}");
    }
    for (task, seq, source) in [("a", 0, "config"), ("b", 1, "api")] {
        let record = site.value(&format!("tasks/{task}")).await;
        assert_eq!(record["seq"].as_u64(), Some(seq), "{record}");
        assert_eq!(record["source"].as_str(), Some(source));
        assert_eq!(record["term"].as_u64(), Some(term));
        assert_eq!(record["task"]["name"].as_str(), Some(task));
    }
    assert_eq!(site.value("events/b").await["events"].as_array().unwrap().len(), 1);
    leadership.resign().await;
}

async fn the_next_leader_finds_what_was_stored(place: &Place) {
    let site = Site::new(place);
    let mut before = None;
    for id in ["one", "two", "three", "one"] {
        let leadership = site.lead(id).await;
        let store = site.open(&leadership).await;
        let state = store.load().await.unwrap();
        if let Some(before) = before.replace(state.clone()) {
            assert_eq!(state, before);
        }
        let number = u128::try_from(state.tasks.len()).unwrap();
        let task = task(&format!("task-{number}"));
        store.commit(&[put(&task), event(task.name.as_str(), number, None)]).await.unwrap();
        before = Some(store.load().await.unwrap());
        leadership.resign().await;
    }
    assert_eq!(before.unwrap().tasks.len(), 4);
}

async fn stored_tasks_win_over_configured_ones(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    let store = site.open_with(&leadership, vec![task("a"), task("b")], false).await;
    store.commit(&[Change::DeleteTask(name("b"))]).await.unwrap();
    leadership.resign().await;
    let leadership = site.lead("two").await;
    let mut changed = task("a");
    changed.module = "./another".into();
    let store = site.open_with(&leadership, vec![changed, task("b"), task("c")], false).await;
    assert_eq!(store.load().await.unwrap().tasks, [task("a")]);
    // All of them deleted through the API is not the same as never used.
    store.commit(&[Change::DeleteTask(name("a"))]).await.unwrap();
    leadership.resign().await;
    let leadership = site.lead("one").await;
    let store = site.open_with(&leadership, vec![task("a")], false).await;
    assert_eq!(store.load().await.unwrap().tasks, []);
    leadership.resign().await;
}

/// Case HA39: a leader that was stopped for three TTLs writes nothing and applies nothing
/// afterwards.
async fn a_deposed_leader_writes_nothing(place: &Place) {
    let site = Site::new(place);
    let first = site.lead("one").await;
    let store = site.open(&first).await;
    store.commit(&[put(&task("a"))]).await.unwrap();
    // The operator's hand, and nobody has told the leader yet.
    let key = format!("{}/leader", site.directory);
    let holder = place.client.kv_get(&key, &QueryOptions::default()).await.unwrap().value.unwrap();
    let session = holder.session.unwrap();
    place.client.session_destroy(&session, &WriteOptions::default()).await.unwrap();
    let error = store.commit(&[put(&task("b"))]).await.unwrap_err();
    assert!(matches!(error, cts_tasks::Error::Fenced { .. }), "{error}");
    assert!(first.check().is_err());
    let second = site.lead("two").await;
    let error = store.commit(&[put(&task("c"))]).await.unwrap_err();
    assert!(matches!(error, cts_tasks::Error::Fenced { .. }) && !error.is_retryable());
    // Nor does what was under way when another began to lead.
    let late = [
        KvOp::check_session(&key, session),
        KvOp::set(format!("{}/tasks/late", site.directory), "x"),
    ];
    let outcome =
        KvStore::kv_transact(&place.client, &late, &WriteOptions::default()).await.unwrap();
    assert!(!outcome.is_committed());
    assert_eq!(site.open(&second).await.load().await.unwrap().tasks, [task("a")]);
    let follower = site.follower().commit(&[put(&task("d"))]).await.unwrap_err();
    assert!(matches!(follower, cts_tasks::Error::Fenced { .. }));
    second.resign().await;
}

/// Case HA35: with `-reset-storage` each gain of leadership resets the state.
async fn a_reset_happens_at_each_gain(place: &Place) {
    let site = Site::new(place);
    for gain in 0..3 {
        let leadership = site.lead("one").await;
        let store = site.open_with(&leadership, vec![task("a")], true).await;
        let state = store.load().await.unwrap();
        assert_eq!(state.tasks, [task("a")], "gain {gain}");
        assert!(state.events.is_empty());
        let reset_at = site.value("meta").await["reset_at"].as_u64();
        assert_eq!(reset_at, (gain > 0).then_some(leadership.token().get()));
        store.commit(&[put(&task("b")), event("a", 1, None)]).await.unwrap();
        leadership.resign().await;
    }
}

async fn a_reset_cut_short_begins_again(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    site.open_with(&leadership, vec![task("a"), task("b")], false).await;
    leadership.resign().await;
    // As a leader leaves it that dies in the middle.
    let mut meta = site.value("meta").await;
    meta["resetting"] = true.into();
    let put = |name: &str, value: String| {
        let key = format!("{}/{name}", site.directory);
        let client = place.client.clone();
        async move { client.kv_put(&key, value, &PutOptions::default()).await.unwrap() }
    };
    assert!(put("meta", meta.to_string()).await);
    let key = format!("{}/tasks/a", site.directory);
    assert!(place.client.kv_delete(&key, &DeleteOptions::default()).await.unwrap());
    let leadership = site.lead("two").await;
    let store = site.open_with(&leadership, vec![task("c")], false).await;
    assert_eq!(store.load().await.unwrap().tasks, [task("c")]);
    assert!(site.value("meta").await.get("resetting").is_none());
    leadership.resign().await;
}

/// A task whose description does not shrink when it is packed.
fn large(name: &str, bytes: usize) -> Task {
    let mut task = task(name);
    let mut random = fastrand::Rng::with_seed(7);
    task.description = (0..bytes).map(|_| random.alphanumeric()).collect();
    task
}

async fn large_records_are_split(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    let store = site.open(&leadership).await;
    let task = large("a", 1_400_000);
    store.commit(&[put(&task)]).await.unwrap();
    assert!(site.keys("blobs/").await.len() >= 4);
    assert_eq!(site.follower().load().await.unwrap().tasks, [task]);
    // What no record names any more is taken away.
    store.commit(&[put(&large("a", 10))]).await.unwrap();
    leadership.resign().await;
    let leadership = site.lead("two").await;
    let store = site.open(&leadership).await;
    assert_eq!(site.keys("blobs/").await, Vec::<String>::new());
    assert_eq!(store.load().await.unwrap().tasks, [large("a", 10)]);
    leadership.resign().await;
}

async fn large_batches_are_all_or_nothing(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    let store = site.open(&leadership).await;
    let tasks: Vec<Task> = (0..200).map(|number| large(&format!("t{number}"), 3_000)).collect();
    let batch: Vec<Change> = tasks.iter().map(put).collect();
    store.commit(&batch).await.unwrap();
    assert_eq!(site.follower().load().await.unwrap().tasks, tasks);
    assert_eq!(site.keys("journal").await, Vec::<String>::new());
    leadership.resign().await;
}

async fn a_batch_cut_short_is_completed(place: &Place) {
    let site = Site::new(place);
    let (client, trouble) = place.troubled();
    let key = format!("{}/leader", site.directory);
    let elector = place.elector(&cts_ha::Consul::new(client), &key, "one");
    let leadership = elector.campaign().await.unwrap();
    let store = site.open(&leadership).await;
    store.commit(&[put(&task("old"))]).await.unwrap();
    let tasks: Vec<Task> = (0..100).map(|number| task(&format!("t{number}"))).collect();
    let batch: Vec<Change> =
        tasks.iter().map(put).chain([Change::DeleteTask(name("old"))]).collect();
    // The journal is written and a piece of it carried out, and then Consul is
    // heard of no more.
    trouble.cut_after("PUT /v1/txn", 2);
    let error = store.commit(&batch).await.unwrap_err();
    assert!(matches!(error, cts_tasks::Error::Fenced { .. }), "the lease has ended: {error}");
    assert!(!site.keys("journal").await.is_empty());
    drop(leadership);
    assert_eq!(site.follower().load().await.unwrap().tasks, tasks, "followers see the whole batch");
    let leadership = site.lead("two").await;
    let store = site.open(&leadership).await;
    assert_eq!(store.load().await.unwrap().tasks, tasks);
    assert_eq!(site.keys("journal").await, Vec::<String>::new());
    assert_eq!(site.keys("tasks/").await.len(), 100);
    leadership.resign().await;
}

async fn documents_of_a_newer_program_are_refused(place: &Place) {
    for (document, value) in [
        ("meta", r#"{"v":1,"schema":2,"created_term":1,"term":1,"reset_at":null}"#),
        ("tasks/a", r#"{"v":2,"anything":true}"#),
        ("tasks/a", "no document"),
    ] {
        let site = Site::new(place);
        let leadership = site.lead("one").await;
        site.open_with(&leadership, vec![task("a")], false).await;
        let key = format!("{}/{document}", site.directory);
        place.client.kv_put(&key, value, &PutOptions::default()).await.unwrap();
        let error = KvTaskStore::open(&site.directory, &leadership, StoreOptions::default())
            .await
            .unwrap_err();
        assert!(matches!(&error, Error::Data { key: at, .. } if *at == key), "{error}");
        assert!(!error.is_retryable());
        leadership.resign().await;
    }
}

async fn a_reset_needs_to_read_nothing(place: &Place) {
    for document in ["meta", "journal", "tasks/a", "events/a"] {
        let site = Site::new(place);
        let leadership = site.lead("one").await;
        site.open_with(&leadership, vec![task("a")], false).await;
        let key = format!("{}/{document}", site.directory);
        place.client.kv_put(&key, "no document", &PutOptions::default()).await.unwrap();
        let store = site.open_with(&leadership, vec![task("b")], true).await;
        assert_eq!(store.load().await.unwrap().tasks, [task("b")], "{document}");
        assert_eq!(site.keys("journal").await, Vec::<String>::new());
        assert_eq!(site.follower().load().await.unwrap().tasks, [task("b")], "{document}");
        leadership.resign().await;
    }
}

async fn long_messages_are_cut(place: &Place) {
    let site = Site::new(place);
    let leadership = site.lead("one").await;
    let store = site.open(&leadership).await;
    let message = "ü".repeat(20_000);
    store.commit(&[put(&task("a")), event("a", 1, Some(&message))]).await.unwrap();
    let state = site.follower().load().await.unwrap();
    let kept = &state.events[&name("a")][0].error.as_ref().unwrap().message;
    assert!(kept.len() < 17_000 && kept.ends_with("(cut for storage)"), "{}", kept.len());
    leadership.resign().await;
}

async fn a_failed_commit_is_made_good_by_the_next(place: &Place) {
    let site = Site::new(place);
    let (client, trouble) = place.troubled();
    let key = format!("{}/leader", site.directory);
    let elector = place.elector(&cts_ha::Consul::new(client), &key, "one");
    let leadership = elector.campaign().await.unwrap();
    let store = Arc::new(site.open(&leadership).await);
    trouble.answer("PUT /v1/txn", 1, 500, "trouble");
    let error = store.commit(&[put(&task("a"))]).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    // It might have been written all the same.
    let record = serde_json::json!({
        "v": 1, "term": 1, "seq": 0, "source": "api", "task": task("a"),
    });
    let stray = format!("{}/tasks/a", site.directory);
    place.client.kv_put(&stray, record.to_string(), &PutOptions::default()).await.unwrap();
    store.commit(&[put(&task("b"))]).await.unwrap();
    assert_eq!(site.follower().load().await.unwrap().tasks, [task("b")]);
    leadership.resign().await;
}
