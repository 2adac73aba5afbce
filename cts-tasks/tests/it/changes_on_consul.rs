//! What changes of services make of tasks, on the double and on a real Consul.

use std::time::Duration;

use consul_watch::{
    Client,
    client::PutOptions,
    types::{
        AgentServiceRegistration, CatalogDeregistration, CatalogRegistration, HealthCheck,
        HealthStatus, Service,
    },
};
use cts_tasks::{
    Condition, Engine, EngineOptions, Error, FirstRun, ServiceSelection, Stop, StopReason, Task,
    TaskName, testing::RecordingDriver,
};
use tokio::time::sleep;

use crate::{
    both::on_both,
    scene::{ids, on},
    triggers_on_consul::{Site, named},
};

on_both! {
    /// Spec: CTS36, CTS59, CTS63, CTS64, CTS66, CTS68
    each_change_is_for_some, each_change_is_for_some_on_the_double,
        each_change_is_for_some_on_a_real_consul;
    /// Spec: CTS66
    filters_of_a_regexp, filters_of_a_regexp_on_the_double, filters_of_a_regexp_on_a_real_consul;
    /// Spec: CTS59, CTS60
    new_names_bring_instances, new_names_bring_instances_on_the_double,
        new_names_bring_instances_on_a_real_consul;
    /// Spec: CTS53, CTS54, CTS57
    a_run_under_way, a_run_under_way_on_the_double, a_run_under_way_on_a_real_consul;
    /// Spec: CTS44, CTS47, CTS52, CTS55
    tasks_come_and_go, tasks_come_and_go_on_the_double, tasks_come_and_go_on_a_real_consul;
    /// Spec: CTS51, CTS67, CTS72
    runs_of_once, runs_of_once_on_the_double, runs_of_once_on_a_real_consul;
}

/// Spec: CTS69
#[tokio::test]
async fn a_restart_and_a_crash_of_a_real_consul_lose_no_change() {
    let case = "a_restart_and_a_crash_of_a_real_consul_lose_no_change";
    for part in crate::both::SUITE.parts("consul", case) {
        let mut consul = consul_watch::testing::real::Consul::start(&part.path).await.unwrap();
        put(&consul.client(), "web-1", HealthStatus::Passing, &[]).await;
        let site = Site::start(consul.client(), vec![on("t", &["web"])]).await;
        crate::both::in_time(restarts(&mut consul, &site)).await;
        site.end().await;
    }
}

/// A server that stops and one that crashes; a change after each.
async fn restarts(consul: &mut consul_watch::testing::real::Consul, site: &Site) {
    for (round, crash) in [(2, false), (3, true)] {
        if crash {
            consul.kill();
        }
        consul.restart().await.unwrap();
        // A task that is created meanwhile gets what there is.
        let late = format!("late-{round}");
        site.engine.create(on(&late, &["web"]), FirstRun::Now).await.unwrap();
        assert_eq!(ids(&site.driver.applies(&late)[0]).len(), round - 1);
        put(&consul.client(), &format!("web-{round}"), HealthStatus::Passing, &[]).await;
        let applies = site.driver.wait_for_applies("t", round).await;
        assert_eq!(ids(&applies[round - 1]).len(), round);
    }
}

/// Puts one instance of the service that the part of its id before the dash names.
async fn put(consul: &Client, id: &str, status: HealthStatus, tags: &[&str]) {
    let name = id.split('-').next().unwrap_or_default();
    let mut service = Service::new(name, id);
    service.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let check = HealthCheck::of_service(id, format!("{id}-check"), status);
    let registration =
        CatalogRegistration::new("node", "10.0.0.1").with_service(service).with_check(check);
    consul.catalog_register(&registration).await.unwrap();
}

async fn remove(consul: &Client, id: &str) {
    consul.catalog_deregister(&CatalogDeregistration::service("node", id)).await.unwrap();
}

/// A task on the instances of `web` that a filter selects.
fn filtered(name: &str, filter: &str) -> Task {
    let mut task = on(name, &["web"]);
    if let Condition::Services { services: ServiceSelection::Named(named), .. } =
        &mut task.condition
    {
        for service in named {
            filter.clone_into(&mut service.filter);
        }
    }
    task
}

fn name(text: &str) -> TaskName {
    text.parse().unwrap()
}

/// Each step changes one thing. Every task that it is for runs once, and the
/// runs are counted in the end: no other one did.
async fn each_change_is_for_some(consul: Client) {
    put(&consul, "web-1", HealthStatus::Passing, &[]).await;
    let catalog = "\"catalog-services\" { regexp = \"^(web|db)$\" }";
    let keys = "\"consul-kv\" { path = \"k\" }\nmodule_input \"services\" { names = [\"web\"] }";
    let tasks = vec![
        on("one", &["web"]),
        on("other", &["web"]),
        filtered("any", "Checks.Status != \"\""),
        filtered("tagged", "\"a=b\" in Service.Tags"),
        named("names", catalog),
        named("key", keys),
    ];
    let site = Site::start(consul.clone(), tasks).await;
    let mut runs = std::collections::BTreeMap::from([
        ("one", 1),
        ("other", 1),
        ("any", 1),
        ("tagged", 1),
        ("names", 1),
        ("key", 1),
    ]);
    let (one, any) = (["one", "other"], ["one", "other", "any"]);
    let (passing, critical) = (HealthStatus::Passing, HealthStatus::Critical);
    // Steps that register, by what runs then.
    let steps: [(&str, &HealthStatus, &[&str], &[&str]); 5] = [
        ("db-1", &passing, &[], &["names"]),
        ("web-2", &passing, &[], &any),
        ("web-3", &critical, &[], &["any"]),
        ("web-3", &passing, &[], &any),
        ("web-2", &passing, &["a=b"], &["one", "other", "any", "tagged"]),
    ];
    for (id, status, tags, expected) in steps {
        put(&consul, id, status.clone(), tags).await;
        wait(&site, &mut runs, expected).await;
    }
    assert_eq!(last(&site, "any"), ["web-1", "web-2", "web-3"]);
    assert_eq!(last(&site, "tagged"), ["web-2"]);
    let steps: [(&str, &[&str]); 3] = [
        ("web-2", &["one", "other", "any", "tagged"]),
        ("web-3", &any),
        ("web-1", &["one", "other", "any", "names"]),
    ];
    for (id, expected) in steps {
        remove(&consul, id).await;
        wait(&site, &mut runs, expected).await;
    }
    for task in one {
        assert_eq!(last(&site, task), Vec::<String>::new());
    }
    put(&consul, "web-4", passing, &[]).await;
    wait(&site, &mut runs, &["one", "other", "any", "names"]).await;
    assert!(consul.kv_put("k", "v", &PutOptions::default()).await.unwrap());
    wait(&site, &mut runs, &["key"]).await;
    assert_eq!(last(&site, "key"), ["web-4"], "no run of its own, and fresh all the same");
    for (task, count) in runs {
        assert_eq!(site.driver.applies(task).len(), count, "{task}");
    }
    site.end().await;
}

/// Services by regular expression are passing ones, whatever the filter says;
/// by name, a filter that speaks of check states decides alone.
async fn filters_of_a_regexp(consul: Client) {
    put(&consul, "web-1", HealthStatus::Passing, &[]).await;
    put(&consul, "web-2", HealthStatus::Critical, &[]).await;
    let filter = r#"filter = "Checks.Status != \"\"""#;
    let site = Site::start(
        consul.clone(),
        vec![
            named("matching", &format!("\"services\" {{ regexp = \"^web\"\n{filter} }}")),
            named("listed", &format!("\"services\" {{ names = [\"web\"]\n{filter} }}")),
        ],
    )
    .await;
    assert_eq!(last(&site, "matching"), ["web-1"]);
    assert_eq!(last(&site, "listed"), ["web-1", "web-2"]);
    put(&consul, "web-2", HealthStatus::Passing, &[]).await;
    site.driver.wait_for_applies("matching", 2).await;
    assert_eq!(last(&site, "matching"), ["web-1", "web-2"]);
    site.end().await;
}

/// A name that comes brings the instances with it that become healthy within a
/// second; one that goes takes them away. Each is one run.
async fn new_names_bring_instances(consul: Client) {
    put(&consul, "db-1", HealthStatus::Passing, &[]).await;
    let on = |selection: &str| {
        format!(
            "\"catalog-services\" {{ regexp = \"^web\" }}\nmodule_input \"services\" {{ {selection} }}"
        )
    };
    let names: Vec<String> = (0..8).map(|number| format!("\"web{number}\"")).collect();
    let listed = on(&format!("names = [\"db\", {}]", names.join(", ")));
    let site = Site::start(
        consul.clone(),
        vec![named("listed", &listed), named("matching", &on("regexp = \"^(web|db)\""))],
    )
    .await;
    let mut expected = vec!["db-1".to_owned()];
    for number in 0..8 {
        let id = format!("web{number}-1");
        put(&consul, &id, HealthStatus::Critical, &[]).await;
        sleep(Duration::from_millis(400)).await;
        put(&consul, &id, HealthStatus::Passing, &[]).await;
        expected.push(id);
        for task in ["listed", "matching"] {
            site.driver.wait_for_applies(task, 2 + number).await;
            assert_eq!(last(&site, task), expected, "{task}");
        }
    }
    // One that never becomes healthy is waited for a second.
    put(&consul, "web-never-1", HealthStatus::Critical, &[]).await;
    for task in ["listed", "matching"] {
        let applies = site.driver.wait_for_applies(task, 10).await;
        assert_eq!(ids(&applies[9]).len(), 9, "{task}");
    }
    remove(&consul, "web0-1").await;
    for task in ["listed", "matching"] {
        let applies = site.driver.wait_for_applies(task, 11).await;
        assert_eq!(ids(&applies[10]).len(), 8, "{task}");
    }
    site.end().await;
}

/// Waits until each of these tasks has run once more.
async fn wait(
    site: &Site,
    runs: &mut std::collections::BTreeMap<&'static str, usize>,
    expected: &[&'static str],
) {
    for task in expected {
        let count = runs.entry(task).or_default();
        *count += 1;
        site.driver.wait_for_applies(task, *count).await;
    }
}

/// The instances of a task's newest run.
fn last(site: &Site, task: &str) -> Vec<String> {
    let applies = site.driver.applies(task);
    ids(&applies[applies.len() - 1]).into_iter().map(str::to_owned).collect()
}

/// Changes during a run make exactly one more, and hold up nobody else.
async fn a_run_under_way(consul: Client) {
    put(&consul, "web-1", HealthStatus::Passing, &[]).await;
    let yearly =
        "\"schedule\" { cron = \"@yearly\" }\nmodule_input \"services\" { names = [\"web\"] }";
    let tasks = vec![on("slow", &["web"]), on("quick", &["web"]), named("yearly", yearly)];
    let site = Site::start(consul.clone(), tasks).await;
    let gate = site.driver.hold("slow");
    for number in 2..=4 {
        put(&consul, &format!("web-{number}"), HealthStatus::Passing, &[]).await;
        site.driver.wait_for_applies("quick", number).await;
        site.driver.wait_for_applies("slow", 2).await;
    }
    assert_eq!(site.driver.applies("slow").len(), 2);
    drop(gate);
    assert_eq!(ids(&site.driver.wait_for_applies("slow", 3).await[2]).len(), 4);
    put(&consul, "web-5", HealthStatus::Passing, &[]).await;
    site.driver.wait_for_applies("slow", 4).await;
    site.driver.wait_for_applies("quick", 5).await;
    while site.events("slow") < 4 {
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!((site.driver.applies("slow").len(), site.events("slow")), (4, 4));
    assert_eq!(site.driver.applies("yearly").len(), 1);
    site.end().await;
}

/// Tasks that are created, enabled or created again follow what they are on.
async fn tasks_come_and_go(consul: Client) {
    put(&consul, "web-1", HealthStatus::Passing, &[]).await;
    let site = Site::start(consul.clone(), Vec::new()).await;
    let mut off = on("off", &["web"]);
    off.enabled = false;
    site.engine.create(off, FirstRun::Now).await.unwrap();
    for round in 1..=2 {
        site.engine.create(on("t", &["web"]), FirstRun::Now).await.unwrap();
        let runs = site.driver.applies("t").len();
        put(&consul, &format!("web-{round}1"), HealthStatus::Passing, &[]).await;
        site.driver.wait_for_applies("t", runs + 1).await;
        assert_eq!(site.driver.applies("off").len(), round - 1, "disabled");

        // Deleted while it runs, it ends its run and is gone then.
        let gate = site.driver.hold("t");
        put(&consul, &format!("web-{round}2"), HealthStatus::Passing, &[]).await;
        site.driver.wait_for_applies("t", runs + 2).await;
        site.engine.delete(&name("t")).await.unwrap();
        assert!(site.has("t"));
        drop(gate);
        while site.has("t") {
            sleep(Duration::from_millis(5)).await;
        }

        let engine = &site.engine;
        engine.set_enabled(&name("off"), true, FirstRun::WhenTriggered).await.unwrap();
        put(&consul, &format!("web-{round}3"), HealthStatus::Passing, &[]).await;
        let applies = site.driver.wait_for_applies("off", round).await;
        assert_eq!(ids(&applies[round - 1]).len(), 1 + 3 * round);
        while let Err(error) =
            engine.set_enabled(&name("off"), false, FirstRun::WhenTriggered).await
        {
            assert!(matches!(error, Error::TaskActive { .. }), "{error}");
            sleep(Duration::from_millis(5)).await;
        }
    }
    site.end().await;
}

/// The only run of once mode sees everything there is, ends with Consul's
/// error, and ends with a stop.
async fn runs_of_once(consul: Client) {
    let services: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
    for service in &services {
        consul.agent_register_service(&AgentServiceRegistration::new(service)).await.unwrap();
    }
    let services: Vec<&str> = services.iter().map(String::as_str).collect();
    let engine = |tasks: Vec<Task>| {
        let driver = RecordingDriver::default();
        let mut options = EngineOptions::default();
        options.stop_grace = Duration::ZERO;
        let watcher = consul_watch::Watcher::new(consul.clone());
        (Engine::new(watcher, std::sync::Arc::new(driver.clone()), options), driver, tasks)
    };
    let stop = Stop::new();
    let (all, driver, tasks) = engine(vec![on("all", &services)]);
    all.load(tasks, &stop).await.unwrap();
    all.once(&stop).await.unwrap();
    assert_eq!(ids(&driver.applies("all")[0]).len(), 30);

    let (refused, driver, tasks) =
        engine(vec![filtered("bad", "Service.Nope == 1"), on("good", &services)]);
    refused.load(tasks, &stop).await.unwrap();
    for error in [
        refused.once(&stop).await.unwrap_err(),
        refused.inspect(&[], &stop).await.map(drop).unwrap_err(),
    ] {
        assert!(consul_watch::error_chain(&error).contains("Selector"), "{error}");
    }
    assert_eq!(driver.calls(), Vec::new(), "the next one is not begun");

    let (stopped, driver, tasks) = engine(vec![on("all", &services)]);
    stopped.load(tasks, &stop).await.unwrap();
    let _gate = driver.hold("all");
    let (ended, ()) = tokio::join!(stopped.once(&stop), async {
        driver.wait_for_applies("all", 1).await;
        stop.stop(StopReason::Shutdown);
    });
    assert!(matches!(ended, Err(Error::Stopped { .. })), "{ended:?}");
    let inspected = stopped.inspect(&[], &stop).await;
    assert!(matches!(inspected, Err(Error::Stopped { .. })), "{inspected:?}");
    assert!(stopped.state(|state| state.events.is_empty()), "no event of a stop");
}
