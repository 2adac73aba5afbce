//! Guards: what is applied without a person, and what waits for one.

use std::{sync::Arc, time::Duration};

use consul_watch::Watcher;
use cts_tasks::{
    Engine, EngineOptions, Error, FirstRun, Plan, PlanId, Status, Stop, StopReason, Task, TaskName,
    TaskStore,
    testing::{Call, RecordingDriver},
};
use tokio::time::sleep;

use crate::scene::{Scene, ids, on};

fn name() -> TaskName {
    "t".parse().unwrap()
}

/// The task `t`, that may destroy so many.
fn at_most(destroyed: u64) -> Task {
    let mut task = on("t", &["web"]);
    task.guard.max_destroy = Some(destroyed);
    task
}

fn needs_approval() -> Task {
    let mut task = on("t", &["web"]);
    task.guard.require_approval = true;
    task
}

fn put_many(scene: &Scene, count: u16) {
    (1..=count).for_each(|number| scene.put("web", number));
}

fn remove_many(scene: &Scene, count: u16) {
    (1..=count).for_each(|number| scene.consul.remove_instance(&format!("web-{number}")));
}

/// The plan that waits, once there is one other than `last`.
async fn waiting(scene: &Scene, last: Option<&PlanId>) -> Plan {
    loop {
        match scene.engine.waiting_plan(&name()).unwrap() {
            Some(plan) if Some(&plan.id) != last => return plan,
            _ => sleep(Duration::from_millis(1)).await,
        }
    }
}

/// Starts the engine on `task`, without waiting for anything.
async fn begin(scene: &Scene, task: Task) -> tokio::task::JoinHandle<cts_tasks::Result<()>> {
    scene.engine.load(vec![task], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    let running = tokio::spawn(async move { engine.run(&stop).await });
    tokio::task::yield_now().await;
    running
}

/// The ids of the instances that were applied last.
fn applied(driver: &RecordingDriver) -> usize {
    driver.applied("t").map_or(0, |inputs| ids(&inputs).len())
}

/// A second engine on the same store, as after a restart.
fn restarted(scene: &Scene) -> Engine {
    let mut options = EngineOptions::default();
    options.store = Arc::clone(&scene.store) as Arc<dyn TaskStore>;
    let watcher = Watcher::new(scene.consul.client());
    Engine::new(watcher, Arc::new(scene.driver.clone()), options)
}

#[tokio::test(start_paused = true)]
async fn a_guarded_run_within_the_limit_applies_the_very_plan_that_it_made() {
    let scene = Scene::new();
    put_many(&scene, 3);
    let running = begin(&scene, at_most(1)).await;
    let event = scene.wait_for_events("t", 1).await.remove(0);
    assert_eq!((event.success, event.changes.unwrap().add), (true, 3));
    scene.consul.remove_instance("web-1");
    let event = scene.wait_for_events("t", 2).await.remove(0);
    assert_eq!((event.success, event.changes.unwrap().destroy), (true, 1));
    assert_eq!(scene.driver.applies("t").len(), 0, "nothing is applied but plans");
    let applied = scene.driver.calls().into_iter();
    assert_eq!(applied.filter(|call| matches!(call, Call::ApplyPlan(..))).count(), 2);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_destroys_a_hundred_waits_until_it_is_approved_by_its_id() {
    let scene = Scene::new();
    put_many(&scene, 101);
    let mut task = at_most(10);
    let (min, max) = (Duration::from_secs(5), Duration::from_secs(20));
    task.buffer_period = cts_tasks::BufferPeriod::Enabled { min, max };
    let running = begin(&scene, task).await;
    scene.wait_for_events("t", 1).await;
    remove_many(&scene, 100);
    let plan = waiting(&scene, None).await;
    assert_eq!((plan.changes.destroy, plan.changes.add), (100, 0));
    let event = scene.wait_for_events("t", 2).await.remove(0);
    assert_eq!(event.waiting_plan, Some(plan.id.clone()));
    assert_eq!(
        event.error.unwrap().message,
        format!(
            "plan {} was not applied and waits for approval: \
             it would destroy 100 resources, and max_destroy is 10",
            plan.id
        )
    );
    assert_eq!(scene.status("t"), Status::Waiting);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(applied(&scene.driver), 101);

    let other = PlanId::new("other");
    let error = scene.engine.approve(&name(), &other).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "task 't' has no plan other that waits for approval; the one that waits is {}",
            plan.id
        )
    );
    assert_eq!(applied(&scene.driver), 101);

    scene.engine.approve(&name(), &plan.id).await.unwrap();
    assert_eq!(applied(&scene.driver), 1);
    assert_eq!(scene.engine.waiting_plan(&name()).unwrap(), None);
    let event = scene.events("t").remove(0);
    assert_eq!((event.success, event.changes.unwrap().destroy), (true, 100));
    let state = scene.store.load().await.unwrap();
    assert_eq!(state.applied[&name()].digest, plan.waiting.unwrap().inputs);
    let again = scene.engine.approve(&name(), &plan.id).await.unwrap_err();
    assert!(matches!(again, Error::NoSuchPlan { waiting: None, .. }), "{again}");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_plan_invalidates_the_approval_of_an_older_one() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let old = waiting(&scene, None).await;
    scene.put("web", 2);
    let new = waiting(&scene, Some(&old.id)).await;
    let error = scene.engine.approve(&name(), &old.id).await.unwrap_err();
    assert!(
        matches!(&error, Error::NoSuchPlan { waiting: Some(id), .. } if *id == new.id),
        "{error}"
    );
    assert!(scene.driver.calls().contains(&Call::Discard(name(), old.id)));
    scene.engine.approve(&name(), &new.id).await.unwrap();
    assert_eq!(ids(&scene.driver.applied("t").unwrap()), ["web-1", "web-2"]);
    scene.end(running).await;
}

/// The change is known, but its buffer period has not ended.
#[tokio::test(start_paused = true)]
async fn an_approval_that_comes_after_newer_inputs_applies_nothing_and_plans_anew() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = needs_approval();
    let (min, max) = (Duration::from_mins(5), Duration::from_mins(20));
    task.buffer_period = cts_tasks::BufferPeriod::Enabled { min, max };
    let running = begin(&scene, task).await;
    let old = waiting(&scene, None).await;
    scene.put("web", 2);
    sleep(Duration::from_secs(10)).await;
    let error = scene.engine.approve(&name(), &old.id).await.unwrap_err();
    let new = waiting(&scene, Some(&old.id)).await;
    assert!(
        matches!(&error, Error::PlanSuperseded { waiting: Some(id), .. } if *id == new.id),
        "{error}"
    );
    assert_eq!(scene.driver.applied("t"), None);
    scene.engine.approve(&name(), &new.id).await.unwrap();
    assert_eq!(ids(&scene.driver.applied("t").unwrap()), ["web-1", "web-2"]);
    sleep(Duration::from_hours(1)).await;
    assert_eq!(scene.events("t").len(), 3, "the buffered change was part of the plan");
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_plan_that_no_longer_fits_is_not_applied_and_made_anew() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let old = waiting(&scene, None).await;
    // Somebody else applies meanwhile: the driver refuses the plan.
    let driver = cts_tasks::DriverFactory::driver(&scene.driver, &needs_approval()).unwrap();
    driver.destroy(&cts_tasks::RunContext::default()).await.unwrap();
    let error = scene.engine.approve(&name(), &old.id).await.unwrap_err();
    assert!(matches!(error, Error::PlanSuperseded { waiting: Some(_), .. }), "{error}");
    assert_eq!(scene.driver.applied("t"), None);
    let new = waiting(&scene, Some(&old.id)).await;
    scene.engine.approve(&name(), &new.id).await.unwrap();
    assert_eq!(applied(&scene.driver), 1);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn inputs_that_come_back_to_what_was_applied_leave_nothing_to_approve() {
    let scene = Scene::new();
    put_many(&scene, 3);
    let running = begin(&scene, at_most(0)).await;
    scene.wait_for_events("t", 1).await;
    scene.consul.remove_instance("web-3");
    waiting(&scene, None).await;
    scene.put("web", 3);
    let event = scene.wait_for_events("t", 3).await.remove(0);
    assert_eq!((event.success, event.changes.unwrap().is_empty()), (true, true));
    assert_eq!(scene.engine.waiting_plan(&name()).unwrap(), None);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_discarded_is_made_anew_by_the_next_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let plan = waiting(&scene, None).await;
    let other = PlanId::new("other");
    assert!(scene.engine.discard_plan(&name(), &other).await.is_err());
    scene.engine.discard_plan(&name(), &plan.id).await.unwrap();
    assert_eq!(scene.engine.waiting_plan(&name()).unwrap(), None);
    assert_eq!(scene.events("t").len(), 1);
    scene.engine.run_now(&name()).await.unwrap();
    let again = waiting(&scene, None).await;
    assert_eq!(again.id, plan.id, "the same plan has the same id");
    assert_eq!(scene.driver.applied("t"), None);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn an_approved_plan_that_fails_is_an_event_and_is_not_applied_again() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let plan = waiting(&scene, None).await;
    scene.driver.fail_next("t", "half of it", true);
    let error = scene.engine.approve(&name(), &plan.id).await.unwrap_err();
    assert_eq!(error.to_string(), "half of it");
    assert_eq!(scene.events("t")[0].error.as_ref().unwrap().message, "half of it");
    assert_eq!(scene.engine.waiting_plan(&name()).unwrap(), None);
    scene.put("web", 2);
    waiting(&scene, Some(&plan.id)).await;
    scene.end(running).await;
}

/// A guard looks at each try anew.
#[tokio::test(start_paused = true)]
async fn a_failed_apply_is_planned_anew_before_it_is_tried_again() {
    let scene = Scene::new();
    put_many(&scene, 3);
    let running = begin(&scene, at_most(1)).await;
    scene.wait_for_events("t", 1).await;
    scene.driver.fail_next("t", "busy", true);
    scene.consul.remove_instance("web-3");
    let second_try = |calls: &[Call]| {
        calls.iter().filter(|call| matches!(call, Call::ApplyPlan(..))).count() == 2
    };
    scene.driver.wait_until(second_try).await;
    // Between the tries another one goes, which is one too many.
    scene.consul.remove_instance("web-2");
    let plan = waiting(&scene, None).await;
    assert_eq!(plan.changes.destroy, 2);
    assert_eq!(applied(&scene.driver), 3);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_waits_survives_a_restart_and_is_not_made_twice() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let plan = waiting(&scene, None).await;
    scene.end(running).await;

    let engine = restarted(&scene);
    let stop = Stop::new();
    engine.load(Vec::new(), &stop).await.unwrap();
    let (clone, ended) = (engine.clone(), stop.clone());
    let running = tokio::spawn(async move { clone.run(&ended).await });
    sleep(Duration::from_mins(1)).await;
    assert_eq!(engine.waiting_plan(&name()).unwrap(), Some(plan.clone()));
    let plans = scene.driver.calls().into_iter().filter(|call| matches!(call, Call::Plan(..)));
    assert_eq!(plans.count(), 1);
    engine.approve(&name(), &plan.id).await.unwrap();
    assert_eq!(applied(&scene.driver), 1);
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_only_a_lost_instance_could_apply_is_made_anew() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let plan = waiting(&scene, None).await;
    scene.end(running).await;
    scene.driver.lose_plans();

    let engine = restarted(&scene);
    let stop = Stop::new();
    engine.load(Vec::new(), &stop).await.unwrap();
    engine.once(&stop).await.unwrap();
    let again = engine.waiting_plan(&name()).unwrap().unwrap();
    assert!(again.waiting.unwrap().since > plan.waiting.unwrap().since);
    let plans = scene.driver.calls().into_iter().filter(|call| matches!(call, Call::Plan(..)));
    assert_eq!(plans.count(), 2);
    assert_eq!(scene.driver.applied("t"), None);
}

#[tokio::test(start_paused = true)]
async fn changes_made_while_no_engine_ran_replace_the_plan_that_waits() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let plan = waiting(&scene, None).await;
    scene.end(running).await;
    scene.put("web", 2);

    let engine = restarted(&scene);
    let stop = Stop::new();
    engine.load(Vec::new(), &stop).await.unwrap();
    engine.once(&stop).await.unwrap();
    let new = engine.waiting_plan(&name()).unwrap().unwrap();
    assert_ne!(new.id, plan.id);
    assert!(scene.driver.calls().contains(&Call::Discard(name(), plan.id)));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_disabled_or_deleted_leaves_no_plan_to_approve() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = begin(&scene, needs_approval()).await;
    let plan = waiting(&scene, None).await;
    scene.engine.set_enabled(&name(), false, FirstRun::WhenTriggered).await.unwrap();
    assert_eq!(scene.engine.waiting_plan(&name()).unwrap(), None);
    let error = scene.engine.approve(&name(), &plan.id).await.unwrap_err();
    assert!(matches!(error, Error::TaskDisabled { .. }), "{error}");

    scene.engine.set_enabled(&name(), true, FirstRun::Now).await.unwrap();
    let plan = waiting(&scene, None).await;
    scene.engine.delete(&name()).await.unwrap();
    while scene.engine.waiting_plan(&name()).is_ok() {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(scene.driver.calls().last(), Some(&Call::Discard(name(), plan.id)));
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_created_with_a_first_run_is_kept_when_its_plan_waits() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    scene.engine.create(needs_approval(), FirstRun::Now).await.unwrap();
    let plan = scene.engine.waiting_plan(&name()).unwrap().unwrap();
    assert_eq!(scene.events("t").len(), 1);
    scene.engine.approve(&name(), &plan.id).await.unwrap();
    assert_eq!(applied(&scene.driver), 1);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_does_not_plan_again_what_waits_already() {
    let scene = Scene::scheduled();
    scene.put("web", 1);
    let mut task = needs_approval();
    let services = match task.condition {
        cts_tasks::Condition::Services { services, .. } => services,
        other => panic!("{other:?}"),
    };
    task.module_inputs = vec![cts_tasks::ModuleInput::Services(services)];
    task.condition = cts_tasks::Condition::Schedule { cron: "* * * * *".to_owned() };
    let running = begin(&scene, task).await;
    let plan = waiting(&scene, None).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.engine.waiting_plan(&name()).unwrap().unwrap().id, plan.id);
    assert_eq!(scene.events("t").len(), 1);
    scene.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn what_differs_from_the_last_apply_is_known_after_a_restart() {
    let scene = Scene::new();
    put_many(&scene, 3);
    let running = begin(&scene, at_most(0)).await;
    scene.wait_for_events("t", 1).await;
    scene.end(running).await;
    scene.consul.remove_instance("web-1");

    let (second, stop) = (restarted(&scene), Stop::new());
    second.load(Vec::new(), &stop).await.unwrap();
    let (engine, ended) = (second.clone(), stop.clone());
    let running = tokio::spawn(async move { engine.run(&ended).await });
    let now = loop {
        sleep(Duration::from_millis(1)).await;
        let inputs = second.inputs(&name()).unwrap();
        if let Some(now) = inputs.now {
            break (now, inputs.applied.unwrap());
        }
    };
    let ((now, digest), applied) = now;
    assert_eq!(ids(&now), ["web-2", "web-3"]);
    assert_ne!(applied.digest, digest);
    let before: Vec<String> = applied.inputs.unwrap().into_values().map(|it| it.line).collect();
    assert!(before.len() == 3 && before[0].contains("web-1 at 10.0.0.1:8001"), "{before:?}");
    stop.stop(StopReason::Shutdown);
    running.await.unwrap().unwrap();
}
