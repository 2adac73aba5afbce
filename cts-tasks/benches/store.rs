//! Cost of a commit to the file store, by the number of tasks in it.
//!
//! Each task has five events, as after some days, and every tenth a plan that waits. A commit
//! is an event, as after each run. Printed are the file's size and the median of a commit with
//! the syncs of this machine's disk, and, measured in turn with it, without them: in a folder
//! in memory, where syncing costs nothing.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints")]

use std::{path::Path, time::Duration};

use chrono::{DateTime, Local};
use cts_tasks::{
    Change, Changes, Event, FileStore, Plan, PlanId, State, Task, TaskStore as _, testing,
};
use tokio::time::Instant;

const COMMITS: usize = 40;

/// An event, made from its serialised form as a store reads it.
fn event(task: &Task, number: u128) -> Event {
    let time = DateTime::UNIX_EPOCH.with_timezone(&Local).to_rfc3339();
    serde_json::from_value(serde_json::json!({
        "id": uuid::Uuid::from_u128(number), "success": true, "start_time": time, "end_time": time,
        "task_name": task.name, "error": null,
        "config": {"providers": ["aws", "null"], "services": [], "source": "/srv/modules/lb"},
        "changes": Changes::default(),
    }))
    .unwrap()
}

async fn filled(path: &Path, count: usize) -> (FileStore, Vec<Task>) {
    let store = FileStore::new(path);
    let mut batch = Vec::new();
    let mut tasks = Vec::new();
    for number in 0..count {
        let task = testing::task(&format!("task-{number}"))
            .with_variable("region", "eu-central-1")
            .with_variable("size", 3);
        batch.push(Change::PutTask(Box::new(task.clone())));
        batch.extend(
            (0..5).map(|event_number| Change::AddEvent(Box::new(event(&task, event_number)))),
        );
        if number % 10 == 0 {
            let text = "  + resource \"null_resource\" \"web\" {}\n".repeat(40);
            let plan = Plan::new(PlanId::of(&number), Changes::default(), text);
            batch.push(Change::PutPlan(task.name.clone(), Box::new(plan)));
        }
        tasks.push(task);
    }
    store.commit(&batch).await.unwrap();
    (store, tasks)
}

async fn commit(store: &FileStore, task: &Task, number: usize) -> Duration {
    let batch = [Change::AddEvent(Box::new(event(task, number as u128)))];
    let begun = Instant::now();
    store.commit(&batch).await.unwrap();
    begun.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    println!("tasks  file/KiB  commit/ms  in memory/ms  ratio");
    for count in [10, 100, 1_000] {
        let disk = tempfile::tempdir_in(".").unwrap();
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        let (on_disk, tasks) = filled(&disk.path().join("state.json"), count).await;
        let (in_memory, _) = filled(&memory.path().join("state.json"), count).await;
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (number, task) in tasks.iter().cycle().take(COMMITS).enumerate() {
            with.push(commit(&on_disk, task, number).await);
            without.push(commit(&in_memory, task, number).await);
        }
        let size = std::fs::metadata(disk.path().join("state.json")).unwrap().len() / 1024;
        let (with, without) =
            (median(with).as_secs_f64() * 1e3, median(without).as_secs_f64() * 1e3);
        println!("{count:>5}  {size:>8}  {with:>9.2}  {without:>12.2}  {:>5.1}", with / without);
        let state: State = on_disk.load().await.unwrap();
        assert_eq!(state.tasks.len(), count);
    }
}
