//! Conditions other than listed services, on an in-process Consul.

use std::{collections::BTreeMap, time::Duration};

use cts_tasks::{
    CatalogServicesSelection, Condition, KvSelection, ModuleInput, ServiceSelection, Task,
    testing::task,
};
use tokio::time::sleep;

use crate::scene::{Scene, ids, on};

fn keys(path: &str, recurse: bool) -> KvSelection {
    KvSelection { path: path.into(), recurse, datacenter: String::new(), namespace: String::new() }
}

fn on_keys(name: &str, path: &str, recurse: bool) -> Task {
    let mut task = task(name);
    task.condition = Condition::ConsulKv { keys: keys(path, recurse), use_as_module_input: true };
    task
}

fn on_names(name: &str, regexp: &str) -> Task {
    let mut task = task(name);
    let services = CatalogServicesSelection {
        regexp: regexp.into(),
        datacenter: String::new(),
        namespace: String::new(),
        node_meta: BTreeMap::new(),
    };
    task.condition = Condition::CatalogServices { services, use_as_module_input: true };
    task
}

fn every(name: &str, cron: &str) -> Task {
    let mut task = task(name);
    task.condition = Condition::Schedule { cron: cron.into() };
    task
}

/// Spec: CTS59
#[tokio::test(start_paused = true)]
async fn names_that_come_and_go_trigger_also_when_there_are_none_at_first() {
    let scene = Scene::new();
    let running = scene.start(vec![on_names("a", "^web"), on_names("b", "^(web|db)$")]).await;
    scene.put("web", 1);
    let applies = scene.driver.wait_for_applies("a", 2).await;
    let names: Vec<&String> = applies[1].catalog_services.as_ref().unwrap().keys().collect();
    assert_eq!(names, ["web"]);
    scene.driver.wait_for_applies("b", 2).await;

    scene.put("web", 2); // a second instance is no new name
    scene.put("db", 1);
    scene.driver.wait_for_applies("b", 3).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("a").len(), 2);

    scene.consul.remove_instance("web-1");
    scene.consul.remove_instance("web-2");
    scene.driver.wait_for_applies("a", 3).await;
    scene.end(running).await;
}

/// Spec: CTS63
#[tokio::test(start_paused = true)]
async fn what_is_only_an_input_is_fresh_at_the_next_run() {
    let scene = Scene::new();
    scene.put("web", 1);
    let mut task = on_keys("t", "color", false);
    let services = match on("x", &["web"]).condition {
        Condition::Services { services: ServiceSelection::Named(named), .. } => named,
        other => panic!("{other:?}"),
    };
    task.module_inputs = vec![ModuleInput::Services(ServiceSelection::Named(services))];
    let running = scene.start(vec![task]).await;
    scene.put("web", 2);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(scene.driver.applies("t").len(), 1);
    scene.consul.kv_put("color", "red");
    assert_eq!(ids(&scene.driver.wait_for_applies("t", 2).await[1]), ["web-1", "web-2"]);
    scene.end(running).await;
}

/// Spec: CTS27
#[tokio::test(start_paused = true)]
async fn tasks_with_deprecated_names_run_in_once_mode() {
    let config = crate::config::support::load(
        "service {\n id = \"web-id\"\n name = \"web\"\n cts_user_defined_meta { a = \"b\" }\n}\n\
         task {\n name = \"t\"\n source = \"./m\"\n services = [\"web-id\"]\n}\n\
         task {\n name = \"u\"\n source = \"./m\"\n\
         condition \"catalog-services\" {\n regexp = \"^web\"\n source_includes_var = true\n}\n\
         source_input \"consul-kv\" { path = \"k\" }\n}\n",
    );
    assert_eq!(config.warnings.len(), 6);
    let scene = Scene::new();
    scene.put("web", 1);
    scene.consul.kv_put("k", "v");
    scene.engine.load(config.tasks, &scene.stop).await.unwrap();
    scene.engine.once(&scene.stop).await.unwrap();
    let (t, u) = (scene.driver.applies("t"), scene.driver.applies("u"));
    assert_eq!((t.len(), u.len()), (1, 1));
    assert_eq!(ids(&t[0]), ["web-1"]);
    assert_eq!(t[0].services.as_ref().unwrap()[0].cts_user_defined_meta["a"], "b");
    assert!(u[0].catalog_services.as_ref().unwrap().contains_key("web"));
    assert_eq!(u[0].consul_kv.as_ref().unwrap()[0].path, "k");
}

/// Spec: CTS49
#[tokio::test(start_paused = true)]
async fn once_runs_scheduled_tasks_once_too() {
    let scene = Scene::new();
    let tasks = vec![every("second", "* * * * * * *"), every("five", "*/5 * * * * * *")];
    scene.engine.load(tasks, &scene.stop).await.unwrap();
    scene.engine.once(&scene.stop).await.unwrap();
    for task in ["second", "five"] {
        assert_eq!(scene.driver.applies(task).len(), 1);
        assert_eq!(scene.events(task).len(), 1);
    }
}
