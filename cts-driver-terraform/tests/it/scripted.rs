//! The driver over a tool that follows a script.

use std::{path::Path, sync::Arc, time::Duration};

use cts_driver_terraform::{
    ApplyOptions, Invocation, PlanOptions, RetryOnLock, Settings, Step, Terraform as _,
    TerraformDriver, ToolDiagnostic, testing::ScriptedTerraform,
};
use cts_tasks::{
    Action, ApplyRequest, Changes, ConsulConfig, Driver as _, DriverSettings, Outcome, PlanPurpose,
    Silent, Stop, StopReason, TaskInputs,
};
use serde_json::json;

use crate::{fixtures::task, site::context};

struct Scripted {
    directory: tempfile::TempDir,
    terraform: Arc<ScriptedTerraform>,
    driver: TerraformDriver,
}

fn scripted() -> Scripted {
    let directory = tempfile::tempdir().unwrap();
    let terraform = Arc::new(ScriptedTerraform::new("1.11.4".parse().unwrap()));
    let consul = ConsulConfig::default();
    let settings = Settings::read(DriverSettings::new(&consul, directory.path())).unwrap();
    let tool = Arc::clone(&terraform);
    let driver = TerraformDriver::new(task(&json!({})), Arc::new(settings), tool).unwrap();
    Scripted { directory, terraform, driver }
}

fn remember_workspace(directory: &Path, name: &str) {
    let place = directory.join("sync-tasks/test/.terraform");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("environment"), name).unwrap();
}

fn problem(detail: &str) -> ToolDiagnostic {
    ToolDiagnostic::error("problem", detail)
}

/// Spec: CTS38
#[tokio::test]
async fn init_is_tried_again_once_when_a_workspace_was_remembered() {
    let scripted = scripted();
    remember_workspace(scripted.directory.path(), "test");
    scripted.terraform.fail(Step::Init, problem("Currently selected workspace does not exist"));
    scripted.driver.prepare(&context()).await.unwrap();
    let calls = scripted.terraform.calls();
    assert_eq!(calls, ["init", "workspace new test", "init", "workspace select test", "validate"]);
}

#[tokio::test]
async fn a_second_failure_of_init_is_final() {
    let scripted = scripted();
    remember_workspace(scripted.directory.path(), "test");
    for step in ["first", "workspace", "second"] {
        scripted.terraform.fail(Step::Init, problem(step));
    }
    let error = scripted.driver.prepare(&context()).await.unwrap_err().to_string();
    assert_eq!(error, "error tf-init for 'test': init failed: error: problem\nsecond");
}

#[tokio::test]
async fn a_workspace_that_exists_is_no_error() {
    let scripted = scripted();
    scripted.terraform.fail(Step::Init, problem("no"));
    let error = scripted.driver.prepare(&context()).await.unwrap_err();
    assert!(error.to_string().ends_with("problem\nno"), "{error}");
    scripted.driver.prepare(&context()).await.unwrap();
}

/// Spec: CTS40
#[tokio::test]
async fn warnings_do_not_stop_a_task() {
    let scripted = scripted();
    let mut warning = problem("deprecated");
    warning.severity = "warning".into();
    scripted.terraform.set_validation(vec![warning]);
    scripted.driver.prepare(&context()).await.unwrap();
    scripted.terraform.set_validation(vec![problem("one"), problem("two")]);
    let error = scripted.driver.prepare(&context()).await.unwrap_err();
    assert_eq!(error.to_string(), "error: problem\none\nerror: problem\ntwo");
}

#[tokio::test]
async fn drift_is_told_apart_from_what_an_apply_would_do() {
    let scripted = scripted();
    scripted.driver.prepare(&context()).await.unwrap();
    let mut drift = Changes::default();
    drift.record("a.b", Action::Update);
    scripted.terraform.set_drift(drift.clone());
    let inputs = TaskInputs::default();
    let plan = scripted.driver.plan(&inputs, PlanPurpose::Drift, &context()).await.unwrap();
    assert_eq!(plan.changes, drift);
    let plan = scripted.driver.plan(&inputs, PlanPurpose::Inspect, &context()).await.unwrap();
    assert!(plan.changes.is_empty());
}

#[tokio::test]
async fn a_stale_plan_is_superseded_and_another_failure_is_not() {
    let scripted = scripted();
    scripted.driver.prepare(&context()).await.unwrap();
    let mut changes = Changes::default();
    changes.record("a.b", Action::Create);
    scripted.terraform.set_changes(changes.clone());
    let inputs = TaskInputs::default();
    let plan = scripted.driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
    scripted.terraform.fail(Step::Apply, ToolDiagnostic::error("Saved plan is stale", ""));
    let outcome = scripted.driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap();
    assert_eq!(outcome, Outcome::Superseded);

    let plan = scripted.driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
    scripted.terraform.fail(Step::Apply, problem("quota"));
    scripted.driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap_err();

    let plan = scripted.driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
    let outcome = scripted.driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap();
    assert_eq!(outcome, Outcome::Applied(changes));
}

/// Spec: CTS43
#[tokio::test]
async fn preparing_applies_nothing() {
    let scripted = scripted();
    scripted.driver.prepare(&context()).await.unwrap();
    assert!(!scripted.directory.path().join("sync-tasks/test/terraform.tfvars").exists());
    assert!(!scripted.terraform.calls().contains(&"apply".to_owned()));
}

#[tokio::test]
async fn nobody_is_followed() {
    let error = scripted().driver.follow("ticket", &context()).await.unwrap_err();
    assert!(!error.is_retryable());
}

fn run(stop: Stop) -> Invocation {
    Invocation {
        backend_config: None,
        masked: Vec::new(),
        directory: "/".into(),
        environment: std::collections::BTreeMap::new(),
        stop,
        input: None,
        progress: Arc::new(Silent),
    }
}

fn locked() -> ToolDiagnostic {
    problem("failed to lock state in Consul: Lock Info:\n  ID:   1\n  Who:  root@elsewhere\n")
}

#[tokio::test(start_paused = true)]
async fn a_locked_state_is_waited_for() {
    let terraform = Arc::new(ScriptedTerraform::new("1.11.4".parse().unwrap()));
    for _ in 0..40 {
        terraform.fail(Step::Apply, locked());
    }
    let patient = RetryOnLock::new(Arc::clone(&terraform), Duration::from_mins(1));
    patient.apply(&ApplyOptions::default(), &run(Stop::new())).await.unwrap();
    assert_eq!(terraform.calls().len(), 41);
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_lock_has_a_limit_and_ends_at_a_stop() {
    let terraform = Arc::new(ScriptedTerraform::new("1.11.4".parse().unwrap()));
    for _ in 0..100 {
        terraform.fail(Step::Apply, locked());
    }
    let patient = RetryOnLock::new(Arc::clone(&terraform), Duration::from_secs(10));
    let error = patient.apply(&ApplyOptions::default(), &run(Stop::new())).await.unwrap_err();
    assert_eq!(error.lock_holder().unwrap(), "ID: 1, Who: root@elsewhere");
    assert_eq!(terraform.calls().len(), 11);

    let stop = Stop::new();
    stop.stop(StopReason::Shutdown);
    patient.apply(&ApplyOptions::default(), &run(stop)).await.unwrap_err();

    terraform.fail(Step::Plan, problem("something else"));
    patient.plan(&PlanOptions::default(), &run(Stop::new())).await.unwrap_err();
    assert_eq!(terraform.calls().last().unwrap(), "plan", "another failure is not waited for");
}

#[test]
fn an_auto_commit_that_is_not_made_is_told() {
    use cts_tasks::DriverKind as _;

    let consul = ConsulConfig::default();
    let mut block = cts_tasks::ProviderBlock::new("fortios");
    block.auto_commit = true;
    let blocks = [block];
    let mut settings = DriverSettings::new(&consul, Path::new("/"));
    settings.providers = &blocks;
    let mut warnings = Vec::new();
    cts_driver_terraform::TerraformKind::default().configure(settings, &mut warnings).unwrap();
    let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 1);
    assert!(
        warnings.iter().all(|text| text.contains("auto_commit of provider fortios: nothing is")),
        "{warnings:?}"
    );
}
