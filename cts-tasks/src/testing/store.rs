//! What every [`TaskStore`] must do, one function for each sentence of its
//! contract.
//!
//! Each function gets a store that holds nothing. To prove that what was
//! committed outlives the process, run [`what_was_committed_is_loaded`] and
//! open the store once more.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use cts_tasks::{MemoryStore, testing::store};
//!
//! store::what_was_committed_is_loaded(&MemoryStore::default()).await;
//! store::changes_are_applied_in_order(&MemoryStore::default()).await;
//! # });
//! ```
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a suite fails by panicking")]

use chrono::{DateTime, Local, TimeDelta};
use serde_json::json;
use uuid::Uuid;

use super::task;
use crate::{
    Action, AppliedInputs, Change, Changes, Deletion, DriftCheck, Event, EventConfig, InputsDigest,
    Objection, Plan, PlanId, PlannedResources, ResourceChange, ServiceInstance, State, Task,
    TaskInputs, TaskName, TaskStore, Waiting, store::EVENTS_PER_TASK,
};

/// An empty store loads as an empty state.
pub async fn nothing_is_loaded_at_first(store: &dyn TaskStore) {
    assert_eq!(load(store).await, State::default());
}

/// Checks that every kind of change that was committed is loaded.
pub async fn what_was_committed_is_loaded(store: &dyn TaskStore) {
    let (one, two) = (task("one"), task("two"));
    let batch = [
        put(&one),
        put(&two),
        Change::AddEvent(Box::new(event(&one, 0))),
        Change::PutPlan(one.name.clone(), Box::new(plan())),
        Change::SetApplied(one.name.clone(), applied()),
        Change::SetDrift(one.name.clone(), Box::new(drift())),
    ];
    commit_and_compare(store, &[&batch]).await;
}

/// Changes are applied in order, within a batch and from batch to batch.
pub async fn changes_are_applied_in_order(store: &dyn TaskStore) {
    let one = task("one");
    let mut later = one.clone();
    "later".clone_into(&mut later.description);
    let deleted = Change::DeleteTask(one.name.clone());
    let first = [put(&one), deleted.clone(), put(&later), put(&task("two"))];
    let second = [put(&one), deleted];
    commit_and_compare(store, &[&first]).await;
    commit_and_compare(store, &[&second]).await;
}

/// A task that is put again keeps its place among the others.
pub async fn a_task_put_again_keeps_its_place(store: &dyn TaskStore) {
    let tasks = ["one", "two", "three"].map(task);
    let mut changed = tasks[1].clone();
    changed.enabled = false;
    commit_and_compare(store, &[&tasks.each_ref().map(put), &[put(&changed)]]).await;
    let names: Vec<String> =
        load(store).await.tasks.iter().map(|task| task.name.to_string()).collect();
    assert_eq!(names, ["one", "two", "three"]);
}

/// The newest events of a task are kept, the newest first.
pub async fn only_the_newest_events_are_kept(store: &dyn TaskStore) {
    let one = task("one");
    commit(store, &[put(&one)]).await;
    let count = EVENTS_PER_TASK + 2;
    for number in 0..count {
        commit(store, &[Change::AddEvent(Box::new(event(&one, number)))]).await;
    }
    let kept = load(store).await.events.remove(&one.name).unwrap_or_default();
    let expected: Vec<Event> =
        (0..count).rev().take(EVENTS_PER_TASK).map(|number| event(&one, number)).collect();
    assert_eq!(kept, expected);
}

/// With a task its events, plan, digest and drift go, and nothing of another task.
pub async fn a_deleted_task_leaves_nothing(store: &dyn TaskStore) {
    let (one, two) = (task("one"), task("two"));
    for task in [&one, &two] {
        let batch = [
            put(task),
            Change::AddEvent(Box::new(event(task, 0))),
            Change::PutPlan(task.name.clone(), Box::new(plan())),
            Change::SetApplied(task.name.clone(), applied()),
            Change::SetDrift(task.name.clone(), Box::new(drift())),
            Change::PutDeletion(task.name.clone(), Deletion { spare: true }),
        ];
        commit(store, &batch).await;
    }
    commit(store, &[Change::DeleteTask(one.name.clone())]).await;
    let state = load(store).await;
    assert_eq!(state.tasks, std::slice::from_ref(&two));
    let only_two = [&two.name];
    assert!(state.events.keys().eq(only_two));
    assert!(state.plans.keys().eq(only_two));
    assert!(state.applied.keys().eq(only_two));
    assert!(state.drift.keys().eq(only_two));
    assert!(state.deletions.keys().eq(only_two));
}

/// A deletion stays until it is taken back, and concerns only a task that is there.
pub async fn a_deletion_waits_with_its_task(store: &dyn TaskStore) {
    let (one, none) = (task("one"), task("none"));
    let delete = |task: &Task| Change::PutDeletion(task.name.clone(), Deletion { spare: false });
    commit_and_compare(store, &[&[put(&one), delete(&one), delete(&none)]]).await;
    assert!(load(store).await.deletions.keys().eq([&one.name]));
    commit_and_compare(store, &[&[Change::DeleteDeletion(one.name.clone())]]).await;
    commit_and_compare(store, &[&[delete(&one)], &[put(&one)]]).await;
}

/// To remove what is not there is no error.
pub async fn removing_the_unknown_is_no_error(store: &dyn TaskStore) {
    let name = task("none").name;
    let batch = [
        Change::DeleteTask(name.clone()),
        Change::DeleteEvents(name.clone()),
        Change::DeletePlan(name),
    ];
    commit_and_compare(store, &[&batch]).await;
}

/// An empty batch does nothing.
pub async fn an_empty_batch_does_nothing(store: &dyn TaskStore) {
    commit_and_compare(store, &[&[put(&task("one"))], &[]]).await;
}

/// Commits, and compares with what [`State::apply`] says.
async fn commit_and_compare(store: &dyn TaskStore, batches: &[&[Change]]) {
    let mut expected = load(store).await;
    for batch in batches {
        commit(store, batch).await;
        batch.iter().for_each(|change| expected.apply(change));
    }
    assert_eq!(load(store).await, expected);
}

async fn commit(store: &dyn TaskStore, batch: &[Change]) {
    store.commit(batch).await.expect("the store takes the batch");
}

async fn load(store: &dyn TaskStore) -> State {
    store.load().await.expect("the store can be read")
}

fn put(task: &Task) -> Change {
    Change::PutTask(Box::new(task.clone()))
}

fn event(task: &Task, number: usize) -> Event {
    let seconds = TimeDelta::seconds(i64::try_from(number).unwrap_or_default());
    let start_time = DateTime::UNIX_EPOCH.with_timezone(&Local) + seconds;
    Event {
        id: Uuid::from_u128(u128::try_from(number).unwrap_or_default()),
        success: true,
        start_time,
        end_time: start_time + TimeDelta::seconds(1),
        task_name: TaskName::clone(&task.name),
        error: None,
        config: EventConfig::of(task),
        changes: Some(Changes::default()),
        waiting_plan: Some(PlanId::new("digest")),
        notes: vec!["policy checks passed".to_owned()],
    }
}

fn plan() -> Plan {
    let (before, after) = (json!({"port": 80}), json!({"port": 81, "names": ["a"]}));
    let change = ResourceChange::new("lb.web", Action::Update, before, after, &[]);
    let mut plan = Plan::new(PlanId::new("digest"), Changes::default(), "text")
        .with_resources(PlannedResources::from_iter([change]));
    plan.waiting = Some(Waiting {
        objection: Objection::TooManyDestroyed { planned: 3, limit: 2 },
        inputs: digest(),
        since: DateTime::UNIX_EPOCH.with_timezone(&Local),
    });
    plan
}

fn drift() -> DriftCheck {
    let mut check = DriftCheck::new(Err("no answer".to_owned()));
    check.at = DateTime::UNIX_EPOCH.with_timezone(&Local);
    check
}

fn digest() -> InputsDigest {
    InputsDigest::of(&TaskInputs::default())
}

fn applied() -> AppliedInputs {
    let instance = ServiceInstance {
        id: "web-1".to_owned(),
        name: "web".to_owned(),
        ..ServiceInstance::default()
    };
    let services = Some(vec![instance.into()]);
    AppliedInputs::from(&TaskInputs { services, ..TaskInputs::default() })
}
