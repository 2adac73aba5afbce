//! The state that a failed command could not save, in its file `errored.tfstate`.

use std::{fs, path::PathBuf, sync::Arc};

use consul_watch::{
    QueryOptions, WriteOptions,
    testing::{parts::Part, real::Consul},
};
use cts_tasks::{ApplyRequest, Driver, Error, Outcome, PlanPurpose};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value as Json, json};

use crate::{
    commands::processes_in,
    site::{SUITE, Site, context, counts, eventually, services, tools},
};

fn file(site: &Site) -> PathBuf {
    site.task_dir().join("errored.tfstate")
}

/// A task whose state is in Consul, under a path of its own.
fn site(consul: &Consul, tool: &Part) -> Site {
    let mut site = Site::new(tool);
    site.driver_block = json!({});
    site.consul.address = consul.address();
    let folder = site.path().display().to_string();
    folder.trim_matches('/').clone_into(&mut site.consul.kv_path);
    site
}

fn slow(site: &Site) -> Arc<dyn Driver> {
    site.driver(&json!({"variables": {"directory": site.path().join("rules"), "pause": 600}}))
}

/// Lets a provisioner go on that waits.
fn end_pause(site: &Site) {
    let command = |id| fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
    let all = processes_in(&site.task_dir()).into_iter();
    for id in all.filter(|id| command(*id).starts_with(b"sleep\0")) {
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
    }
}

/// Waits until all tasks are in the middle of their apply, and takes Consul
/// away until the applies have ended.
async fn fail_to_save(consul: &mut Consul, sites: &[Site]) {
    let mut running = Vec::new();
    for site in sites {
        let driver = slow(site);
        running.push(tokio::spawn(async move {
            driver.apply(ApplyRequest::Inputs(&services(&[("a", 81)])), &context()).await
        }));
        eventually("the apply", || site.provisions()).await;
    }
    consul.kill();
    sites.iter().for_each(end_pause);
    for running in running {
        let error = running.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("Failed to save state"), "{error}");
    }
    consul.restart().await.unwrap();
    // Those who held them have ended; Consul would wait for their time to live.
    let sessions = consul.client().session_list(&QueryOptions::default()).await.unwrap().value;
    for session in sessions {
        consul.client().session_destroy(&session.id, &WriteOptions::default()).await.unwrap();
    }
}

/// The backend is away while an apply ends, and the inputs go back to what they
/// were: compared with the state before that apply, there is nothing to do.
#[tokio::test]
async fn a_state_that_could_not_be_saved_is_pushed_before_anything_is_compared_with_it() {
    let case = "a_state_that_could_not_be_saved_is_pushed_before_anything_is_compared_with_it";
    for part in SUITE.parts("consul", case) {
        let mut consul = Consul::start(&part.path).await.unwrap();
        // Of each tool: one whose driver goes on, and one that is started again.
        let found = tools(case);
        let sites: Vec<_> =
            found.iter().flat_map(|tool| [site(&consul, tool), site(&consul, tool)]).collect();
        let first = services(&[("a", 80)]);
        let mut drivers = Vec::new();
        for site in &sites {
            let driver = site.driver(&json!({}));
            driver.prepare(&context()).await.unwrap();
            let applied = driver.apply(ApplyRequest::Inputs(&first), &context()).await.unwrap();
            assert_eq!(counts(&applied), (1, 0, 0));
            drivers.push(driver);
        }
        fail_to_save(&mut consul, &sites).await;

        for (number, (site, mut driver)) in sites.iter().zip(drivers).enumerate() {
            assert_eq!(site.rules(), ["a=10.0.0.1:81"]);
            assert!(file(site).is_file(), "the tool leaves the state there");
            if number % 2 == 1 {
                driver = site.driver(&json!({}));
                driver.prepare(&context()).await.unwrap();
                let plan = driver.plan(&first, PlanPurpose::Inspect, &context()).await.unwrap();
                assert_eq!((plan.changes.add, plan.changes.destroy), (1, 1));
            }
            let applied = driver.apply(ApplyRequest::Inputs(&first), &context()).await.unwrap();
            assert_eq!(counts(&applied), (1, 0, 1));
            assert_eq!(site.rules(), ["a=10.0.0.1:80"]);
            assert!(!file(site).exists());
            let again = driver.apply(ApplyRequest::Inputs(&first), &context()).await.unwrap();
            assert_eq!(again, Outcome::Unchanged);
        }
    }
}

async fn apply(driver: &Arc<dyn Driver>, port: i64) -> Result<Outcome, Error> {
    driver.apply(ApplyRequest::Inputs(&services(&[("a", port)])), &context()).await
}

/// Somebody may have saved another state since; which one is right, a person says.
#[tokio::test]
async fn a_state_that_is_older_or_foreign_is_left_and_nothing_is_applied() {
    for tool in tools("a_state_that_is_older_or_foreign_is_left_and_nothing_is_applied") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        apply(&driver, 80).await.unwrap();
        let current = site.task_dir().join("terraform.tfstate.d/test/terraform.tfstate");
        let older = fs::read(&current).unwrap();
        apply(&driver, 81).await.unwrap();
        let newer = fs::read(&current).unwrap();

        let mut foreign: Json = serde_json::from_slice(&newer).unwrap();
        foreign["lineage"] = json!("1b4e28ba-2fa1-11d2-883f-0016d3cca427");
        for (left, word) in [(older, "serial"), (foreign.to_string().into_bytes(), "lineage")] {
            fs::write(file(&site), &left).unwrap();
            let path = file(&site).display().to_string();
            let begun_again = site.driver(&json!({}));
            for error in [
                apply(&driver, 82).await.unwrap_err(),
                driver.plan(&services(&[]), PlanPurpose::Inspect, &context()).await.unwrap_err(),
                begun_again.prepare(&context()).await.unwrap_err(),
                begun_again.destroy(&context()).await.unwrap_err(),
            ] {
                let told = error.to_string();
                let begin = format!("error tf-state for 'test': cannot push {path}, ");
                assert!(told.starts_with(&begin), "{told}");
                assert!(told.contains(" state push -force`") && told.contains(word), "{told}");
            }
            assert_eq!(fs::read(file(&site)).unwrap(), left);
            assert_eq!(fs::read(&current).unwrap(), newer);
            assert_eq!(site.rules(), ["a=10.0.0.1:81"]);
        }

        // Pushed already by a run that was killed before it removed the file.
        fs::write(file(&site), &newer).unwrap();
        assert_eq!(apply(&driver, 81).await.unwrap(), Outcome::Unchanged);
        assert!(!file(&site).exists());
        assert_eq!(counts(&apply(&driver, 82).await.unwrap()), (1, 0, 1));
    }
}
