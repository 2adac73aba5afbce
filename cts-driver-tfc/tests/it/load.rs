//! Many tasks keep within the platform's limits.

use std::{sync::Arc, time::Duration};

use cts_driver_tfc::testing::{Recorded, TestTfc};
use cts_tasks::{ApplyRequest, Driver, Outcome, RunContext};
use serde_json::json;
use tokio::time::Instant;

use crate::scene::{Scene, count, inputs, web};

const TASKS: usize = 100;

/// The most requests that fall into any window of this length.
fn most_within(
    requests: &[Recorded],
    window: Duration,
    counts: impl Fn(&Recorded) -> bool,
) -> usize {
    let moments: Vec<Instant> =
        requests.iter().filter(|request| counts(request)).map(|request| request.at).collect();
    let mut most = 0;
    for (first, start) in moments.iter().enumerate() {
        let within = moments[first..].iter().take_while(|at| **at - *start < window).count();
        most = most.max(within);
    }
    most
}

fn is_list(request: &Recorded) -> bool {
    request.method == "GET" && request.path.ends_with("/runs")
}

/// The limits of HCP Terraform: 30 requests in a second, 30 lists of runs in a minute.
fn within_limits(requests: &[Recorded]) -> (usize, usize) {
    let api = |request: &Recorded| !request.path.starts_with("/_archivist");
    let second = most_within(requests, Duration::from_secs(1), api);
    let lists = most_within(requests, Duration::from_mins(1), is_list);
    assert!(second <= 30, "{second} requests in a second");
    assert!(lists <= 30, "{lists} lists of runs in a minute");
    assert!(requests.iter().all(|request| request.status != 429), "one was turned away");
    (second, lists)
}

async fn drivers(scene: &Scene) -> Vec<Arc<dyn Driver>> {
    let mut drivers = Vec::new();
    for number in 0..TASKS {
        let mut task = web();
        task.name = format!("task-{number:03}").try_into().unwrap();
        drivers.push(scene.driver(&task));
    }
    let prepared = drivers.iter().map(|driver| {
        let driver = Arc::clone(driver);
        tokio::spawn(async move { driver.prepare(&RunContext::default()).await })
    });
    for prepared in prepared.collect::<Vec<_>>() {
        prepared.await.unwrap().unwrap();
    }
    drivers
}

async fn apply_all(drivers: &[Arc<dyn Driver>], ids: &'static [&'static str]) -> Vec<Outcome> {
    let applied = drivers.iter().map(|driver| {
        let driver = Arc::clone(driver);
        tokio::spawn(async move {
            let inputs = inputs(ids);
            driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::default()).await
        })
    });
    let mut outcomes = Vec::new();
    for applied in applied.collect::<Vec<_>>() {
        outcomes.push(applied.await.unwrap().unwrap());
    }
    outcomes
}

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_stay_within_the_limits() {
    let scene = Scene::with(TestTfc::builder().rate_limit(30).build(), json!({})).await;
    let drivers = drivers(&scene).await;
    let outcomes = apply_all(&drivers, &["a"]).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Applied(_))));
    // All at once, as when the agent of Consul comes back.
    let before = scene.tfc.requests().len();
    apply_all(&drivers, &["a", "b"]).await;
    let requests = scene.tfc.requests();
    within_limits(&requests);
    let change = &requests[before..];
    assert_eq!(count(change, "PATCH", "/vars/*"), TASKS);
    assert_eq!(count(change, "POST", "/api/v2/runs"), TASKS);
    assert_eq!(change.iter().filter(|request| is_list(request)).count(), 0);
    let polls = change.len() - 2 * TASKS;
    assert!(polls <= 4 * TASKS, "{polls} polls for {TASKS} runs");
    let before = scene.tfc.requests().len();
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(scene.tfc.requests().len(), before, "idle tasks cost nothing");
}

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_that_find_leftovers_list_runs_in_turn() {
    let tfc = TestTfc::builder().rate_limit(30).build();
    for number in 0..TASKS {
        let name = format!("task-{number:03}");
        tfc.add_workspace(&name, &json!({"auto-apply": false}), &[]);
    }
    let scene = Scene::with(tfc, json!({})).await;
    let first = drivers(&scene).await;
    let waiting = apply_all(&first, &["a"]).await;
    assert!(waiting.iter().all(|outcome| matches!(outcome, Outcome::Waiting { .. })));
    // A new process finds a run that waits in every workspace.
    let next = Scene::with(scene.tfc.clone(), json!({})).await;
    let started = Instant::now();
    apply_all(&drivers(&next).await, &["b"]).await;
    let requests = scene.tfc.requests();
    let (_, lists) = within_limits(&requests);
    assert!(lists > 20, "the limit is used: {lists}");
    assert_eq!(requests.iter().filter(|request| is_list(request)).count(), TASKS);
    assert!(started.elapsed() < Duration::from_mins(6), "{:?}", started.elapsed());
    assert!(scene.tfc.runs("task-042")[0].status == "discarded");
}
