//! Runs of real tools over local state.

use std::sync::{Arc, Mutex};

use cts_tasks::{ApplyRequest, Error, Outcome, PlanId, PlanPurpose, Progress, RunContext};
use serde_json::json;

use crate::site::{Site, context, counts, module, services, tools};

#[tokio::test]
async fn a_task_follows_its_services_and_is_destroyed() {
    for tool in tools("a_task_follows_its_services_and_is_destroyed") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();

        let two = services(&[("a", 80), ("b", 81)]);
        let applied = driver.apply(ApplyRequest::Inputs(&two), &context()).await.unwrap();
        assert_eq!(counts(&applied), (2, 0, 0));
        assert_eq!(site.rules(), ["a=10.0.0.1:80", "b=10.0.0.1:81"]);

        let again = driver.apply(ApplyRequest::Inputs(&two), &context()).await.unwrap();
        assert_eq!(again, Outcome::Unchanged);

        let changed = services(&[("b", 8081), ("c", 82)]);
        let applied = driver.apply(ApplyRequest::Inputs(&changed), &context()).await.unwrap();
        assert_eq!(counts(&applied), (2, 0, 2));
        assert_eq!(site.rules(), ["b=10.0.0.1:8081", "c=10.0.0.1:82"]);

        let none = services(&[]);
        let applied = driver.apply(ApplyRequest::Inputs(&none), &context()).await.unwrap();
        assert_eq!(counts(&applied), (0, 0, 2));

        driver.apply(ApplyRequest::Inputs(&two), &context()).await.unwrap();
        let destroyed = driver.destroy(&context()).await.unwrap();
        assert_eq!(counts(&destroyed), (0, 0, 2));
        assert!(site.rules().is_empty());
        assert_eq!(driver.destroy(&context()).await.unwrap(), Outcome::Unchanged);
    }
}

/// Keeps the lines of progress.
#[derive(Debug, Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Progress for Told {
    fn report(&self, line: &str) {
        self.0.lock().unwrap().push(line.to_owned());
    }
}

/// Messages of the tool are left out, because they can repeat what a provisioner printed.
#[tokio::test]
async fn an_apply_tells_which_resources_it_changes() {
    for tool in tools("an_apply_tells_which_resources_it_changes") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let told = Told::default();
        let context = RunContext::default().with_progress(Arc::new(told.clone()));
        let rule = "module.test.terraform_data.rule[\"a.n\"]";
        let runs = [
            (services(&[("a", 80)]), "create", "1 added, 0 changed, 0 destroyed"),
            (services(&[]), "delete", "0 added, 0 changed, 1 destroyed"),
        ];
        for (services, action, counts) in runs {
            driver.apply(ApplyRequest::Inputs(&services), &context).await.unwrap();
            let lines = std::mem::take(&mut *told.0.lock().unwrap());
            assert_eq!(
                lines,
                [
                    "applying".to_owned(),
                    format!("{action} {rule}: started"),
                    format!("{action} {rule}: done"),
                    format!("applied: {counts}"),
                ],
                "{} {}",
                tool.name,
                tool.version
            );
        }
    }
}

/// Spec: CTS37
#[tokio::test]
async fn a_restart_finds_its_workspace() {
    for tool in tools("a_restart_finds_its_workspace") {
        let site = Site::new(&tool);
        let inputs = services(&[("a", 80)]);
        let first = site.driver(&json!({}));
        first.prepare(&context()).await.unwrap();
        first.prepare(&context()).await.unwrap();
        first.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();

        let second = site.driver(&json!({}));
        second.prepare(&context()).await.unwrap();
        let applied = second.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(applied, Outcome::Unchanged);
    }
}

/// Spec: CTS38
#[tokio::test]
async fn a_remembered_workspace_whose_state_is_gone_is_made_again() {
    for tool in tools("a_remembered_workspace_whose_state_is_gone_is_made_again") {
        for other_workspaces in [false, true] {
            let site = Site::new(&tool);
            let driver = site.driver(&json!({}));
            driver.prepare(&context()).await.unwrap();
            let states = site.task_dir().join("terraform.tfstate.d");
            std::fs::remove_dir_all(states.join("test")).unwrap();
            if other_workspaces {
                std::fs::create_dir(states.join("other")).unwrap();
            }
            driver.prepare(&context()).await.unwrap();
            let remembered = site.task_dir().join(".terraform/environment");
            assert_eq!(std::fs::read_to_string(remembered).unwrap(), "test");
            let inputs = services(&[("a", 80)]);
            driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
            assert!(states.join("test/terraform.tfstate").is_file());
        }
    }
}

/// Spec: CTS39
#[tokio::test]
async fn a_module_without_the_variable_fails_with_the_specified_words() {
    for tool in tools("a_module_without_the_variable_fails_with_the_specified_words") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({"module": module("no_services")}));
        let error = driver.prepare(&context()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "module for task \"test\" is missing the \"services\" variable"
        );
        assert!(!error.is_retryable());

        let condition = crate::fixtures::catalog_condition("", false, true);
        let site = Site::new(&tool);
        let driver = site.driver(&json!({"condition": condition}));
        assert_eq!(
            driver.prepare(&context()).await.unwrap_err().to_string(),
            "module for task \"test\" is missing the \"catalog_services\" variable, add to module \
             or set \"use_as_module_input\" to false"
        );
    }
}

/// Spec: CTS40
#[tokio::test]
async fn a_module_with_warnings_only_is_accepted() {
    for tool in tools("a_module_with_warnings_only_is_accepted") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({"module": module("warns")}));
        driver.prepare(&context()).await.unwrap();
    }
}

/// Spec: CTS41
#[tokio::test]
async fn local_state_lies_where_the_backend_says() {
    for tool in tools("local_state_lies_where_the_backend_says") {
        for (backend, expected) in [
            (json!({}), "sync-tasks/test/terraform.tfstate.d/test"),
            (json!({"workspace_dir": "test-workspace"}), "sync-tasks/test/test-workspace/test"),
            (json!({"workspace_dir": "../shared"}), "sync-tasks/shared/test"),
            (json!({"path": "elsewhere.tfstate"}), "sync-tasks/test/terraform.tfstate.d/test"),
        ] {
            let mut site = Site::new(&tool);
            site.driver_block = json!({"backend": {"local": backend}});
            let driver = site.driver(&json!({}));
            driver.prepare(&context()).await.unwrap();
            let inputs = services(&[("a", 80)]);
            driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
            assert!(site.path().join(expected).join("terraform.tfstate").is_file(), "{backend}");
            assert!(!site.task_dir().join("elsewhere.tfstate").exists());
        }
    }
}

#[tokio::test]
async fn a_plan_is_applied_by_its_id_or_not_at_all() {
    for tool in tools("a_plan_is_applied_by_its_id_or_not_at_all") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80), ("b", 81)]);

        let inspected = driver.plan(&inputs, PlanPurpose::Inspect, &context()).await.unwrap();
        assert_eq!((inspected.changes.add, inspected.changes.destroy), (2, 0));
        assert!(inspected.text.contains("2 to add"), "{}", inspected.text);
        assert!(site.rules().is_empty(), "an inspection changes nothing");
        let inspected = ApplyRequest::Plan(&inspected.id);
        let kept = driver.apply(inspected, &context()).await.unwrap();
        assert_eq!(kept, Outcome::Superseded, "nothing of an inspection is kept");

        let plan = driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
        let same = driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
        assert_eq!(plan.id, same.id, "the same changes have the same id");
        let other = services(&[("a", 80)]);
        let newer = driver.plan(&other, PlanPurpose::Apply, &context()).await.unwrap();
        assert_ne!(plan.id, newer.id);
        let older = driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap();
        assert_eq!(older, Outcome::Superseded, "a newer plan stands in its place");

        let applied = driver.apply(ApplyRequest::Plan(&newer.id), &context()).await.unwrap();
        assert_eq!(counts(&applied), (1, 0, 0));
        assert_eq!(site.rules(), ["a=10.0.0.1:80"]);
        let twice = driver.apply(ApplyRequest::Plan(&newer.id), &context()).await.unwrap();
        assert_eq!(twice, Outcome::Superseded);

        let waiting = driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
        driver.discard(&waiting.id, &context()).await.unwrap();
        driver.discard(&PlanId::new("unknown"), &context()).await.unwrap();
        let discarded = driver.apply(ApplyRequest::Plan(&waiting.id), &context()).await.unwrap();
        assert_eq!(discarded, Outcome::Superseded);
    }
}

#[tokio::test]
async fn a_plan_is_superseded_when_the_state_changed() {
    for tool in tools("a_plan_is_superseded_when_the_state_changed") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        let plan = driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
        let other = services(&[("b", 81)]);
        driver.apply(ApplyRequest::Inputs(&other), &context()).await.unwrap();
        let stale = driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap();
        assert_eq!(stale, Outcome::Superseded);
        assert_eq!(site.rules(), ["b=10.0.0.1:81"]);
    }
}

#[tokio::test]
async fn a_drift_plan_changes_nothing() {
    for tool in tools("a_drift_plan_changes_nothing") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        let other = services(&[]);
        let plan = driver.plan(&other, PlanPurpose::Drift, &context()).await.unwrap();
        assert!(plan.changes.is_empty(), "{plan:?}");
        assert_eq!(site.rules(), ["a=10.0.0.1:80"]);
    }
}

#[tokio::test]
async fn a_failing_apply_tells_what_terraform_said() {
    for tool in tools("a_failing_apply_tells_what_terraform_said") {
        let site = Site::new(&tool);
        let rules = json!({"variables": {"directory": site.path().join("no/such/place")}});
        let driver = site.driver(&rules);
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        let error = driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap_err();
        let message = error.to_string();
        assert!(
            message.starts_with("error tf-apply for 'test': apply failed: error: "),
            "{message}"
        );
        assert!(message.contains("local-exec provisioner error"), "{message}");
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn a_module_that_is_not_there_fails_the_initialisation() {
    for tool in tools("a_module_that_is_not_there_fails_the_initialisation") {
        let site = Site::new(&tool);
        let driver = site.driver(&json!({"module": "./no/such/module"}));
        let error = driver.prepare(&context()).await.unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("error tf-init for 'test': init failed: "), "{message}");
        assert!(matches!(error, Error::Driver { .. }));
    }
}

/// Several tasks are initialised at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_prepared_and_applied_in_parallel() {
    for tool in tools("tasks_are_prepared_and_applied_in_parallel") {
        let site = Site::new(&tool);
        let factory = site.factory();
        factory.start().await.unwrap();
        let mut running = tokio::task::JoinSet::new();
        for number in 0..4 {
            let name = format!("task{number}");
            let overrides = json!({"name": name, "working_dir": format!("sync-tasks/{name}")});
            let driver = factory.driver(&site.task(&overrides)).unwrap();
            running.spawn(async move {
                driver.prepare(&context()).await.unwrap();
                let inputs = services(&[(&name, 80)]);
                driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap()
            });
        }
        while let Some(applied) = running.join_next().await {
            assert_eq!(counts(&applied.unwrap()), (1, 0, 0));
        }
        assert_eq!(site.rules().len(), 4);
    }
}
