//! Pages of a deployment with 1,000 tasks and 5,000 events, from the daemon's side.
//!
//! `cargo bench -p cts-tasks --bench ui [-- TASKS ROUNDS]` prints how long a page takes from the
//! request to its last byte, over loopback, beside the same data as the API gives it.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints, and stops at what it did not expect"
)]

use std::{sync::Arc, time::Duration};

use consul_watch::{Watcher, testing::TestConsul};
use cts_tasks::{
    ApiServer, Change, Engine, EngineOptions, Event, MemoryStore, Single, Stop, StopReason,
    TaskStore as _, status_page,
    testing::{RecordingDriver, task},
};
use serde_json::json;
use tokio::time::Instant;

#[tokio::main]
async fn main() {
    // `cargo test --benches` asks for a run that measures nothing.
    if std::env::args().any(|argument| argument == "--test" || argument == "--list") {
        return;
    }
    let numbers: Vec<usize> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    let (tasks, rounds) =
        (numbers.first().copied().unwrap_or(1_000), numbers.get(1).copied().unwrap_or(50));
    let stop = Stop::new();
    let server =
        ApiServer::bind("127.0.0.1:0".parse().unwrap(), engine(tasks).await, Arc::new(Single));
    let server = server.await.unwrap().with_pages(status_page());
    let base = format!("http://{}", server.local_addr().unwrap());
    tokio::spawn(server.serve(stop.clone()));
    println!("{tasks} tasks, {} events, {rounds} rounds", tasks * 5);
    for path in [
        "/ui/",
        "/ui/?page=10",
        "/ui/?q=task-0999",
        "/ui/tasks/task-0500",
        "/v1/status/tasks?include=events",
    ] {
        let mut times = Vec::new();
        let mut bytes = 0;
        let client = reqwest::Client::new();
        for _ in 0..rounds {
            let begun = Instant::now();
            let answer = client.get(format!("{base}{path}")).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{path}");
            bytes = answer.bytes().await.unwrap().len();
            times.push(begun.elapsed());
        }
        times.sort();
        let (median, worst) = (
            times.get(times.len() / 2).copied().unwrap_or_default(),
            times.last().copied().unwrap_or_default(),
        );
        println!("{path}: {bytes} bytes, median {median:?}, worst {worst:?}");
        if path.starts_with("/ui") {
            let share = median.as_secs_f64() / Duration::from_millis(300).as_secs_f64();
            println!("    {:.1} % of 300 ms", 100.0 * share);
        }
    }
    stop.stop(StopReason::Shutdown);
}

/// An engine whose store holds so many tasks, with five events of each.
async fn engine(tasks: usize) -> Engine {
    let store = Arc::new(MemoryStore::default());
    let mut batch = Vec::new();
    for number in 0..tasks {
        let name = format!("task-{number:04}");
        batch.push(Change::PutTask(Box::new(task(&name))));
        for event in 0..5 {
            let event: Event = serde_json::from_value(json!({
                "id": "00000000-0000-0000-0000-000000000000",
                "success": event != 0,
                "start_time": format!("2026-01-01T00:00:0{event}Z"),
                "end_time": format!("2026-01-01T00:00:1{event}Z"),
                "task_name": name,
                "error": if event == 0 { json!({"message": "it failed"}) } else { json!(null) },
                "config": {"providers": ["local"], "services": [], "source": "./module"},
            }))
            .unwrap();
            batch.push(Change::AddEvent(Box::new(event)));
        }
    }
    store.commit(&batch).await.unwrap();
    let mut options = EngineOptions::default();
    options.store = store;
    let watcher = Watcher::new(TestConsul::new().client());
    let engine = Engine::new(watcher, Arc::new(RecordingDriver::default()), options);
    engine.load(Vec::new(), &Stop::new()).await.unwrap();
    engine
}
