//! What handlers of providers get to do after an apply.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cts_driver_terraform::{
    Error, Handler, Settings, Step, TerraformDriver, ToolDiagnostic, testing::ScriptedTerraform,
};
use cts_tasks::{
    Action, ApplyRequest, Changes, ConsulConfig, Driver as _, DriverSettings, Outcome, PlanId,
    PlanPurpose, ProviderBlock, Stop, TaskInputs,
};
use serde_json::json;

use crate::{
    fixtures::{provider, task},
    site::context,
};

/// Remembers what it was called with, and ends as told.
#[derive(Debug, Default)]
struct Remembering {
    calls: Mutex<Vec<String>>,
    fails: bool,
}

#[async_trait]
impl Handler for Remembering {
    fn provider(&self) -> &'static str {
        "panos"
    }

    fn check(&self, provider: &ProviderBlock) -> cts_driver_terraform::Result<()> {
        if provider.arguments.contains_key("username") {
            return Ok(());
        }
        Err(Error::Invalid { problems: vec!["no username".to_owned()] })
    }

    async fn applied(&self, block: &ProviderBlock, _: &Stop) -> cts_driver_terraform::Result<()> {
        self.calls.lock().unwrap().push(block.id());
        if self.fails {
            let (provider, problem) = (block.name.clone(), "no answer".to_owned());
            return Err(Error::Handler { provider, problem, retryable: true });
        }
        Ok(())
    }
}

struct Scene {
    _directory: tempfile::TempDir,
    terraform: Arc<ScriptedTerraform>,
    handler: Arc<Remembering>,
    driver: TerraformDriver,
}

/// A task that uses these blocks, which are `panos`, and a handler for that.
fn scene(block: ProviderBlock, fails: bool) -> cts_driver_terraform::Result<Scene> {
    let directory = tempfile::tempdir().unwrap();
    let terraform = Arc::new(ScriptedTerraform::new("1.11.4".parse().unwrap()));
    let handler = Arc::new(Remembering { fails, ..Remembering::default() });
    let consul = ConsulConfig::default();
    let task = task(&json!({"providers": [block.id()]}));
    let blocks = [block];
    let mut settings = DriverSettings::new(&consul, directory.path());
    settings.providers = &blocks;
    let settings = Arc::new(Settings::read(settings).unwrap());
    let tool = Arc::clone(&terraform);
    let own: Arc<dyn Handler> = Arc::clone(&handler) as _;
    let driver = TerraformDriver::new(task, settings, tool)?.with_handler(own)?;
    Ok(Scene { _directory: directory, terraform, handler, driver })
}

fn committed() -> ProviderBlock {
    let mut block = provider("panos", Some("fw"), &json!({"username": "cts"}));
    block.auto_commit = true;
    block
}

impl Scene {
    fn calls(&self) -> Vec<String> {
        self.handler.calls.lock().unwrap().clone()
    }

    async fn apply(&self) -> cts_tasks::Result<Outcome> {
        let inputs = TaskInputs::default();
        self.driver.apply(ApplyRequest::Inputs(&inputs), &context()).await
    }
}

/// Spec: CTS48
#[tokio::test]
async fn a_handler_follows_an_apply_that_succeeded_and_no_other() {
    let scene = scene(committed(), false).unwrap();
    scene.driver.prepare(&context()).await.unwrap();
    assert!(scene.calls().is_empty(), "nothing is applied yet");
    scene.terraform.fail(Step::Apply, ToolDiagnostic::error("no quota", ""));
    scene.apply().await.unwrap_err();
    assert!(scene.calls().is_empty(), "the apply failed");
    assert_eq!(scene.apply().await.unwrap(), Outcome::Unchanged);
    assert_eq!(scene.calls(), ["panos.fw"], "an earlier run may have left it to do");
    scene.driver.destroy(&context()).await.unwrap();
    assert_eq!(scene.calls().len(), 2);
}

#[tokio::test]
async fn a_handler_follows_a_plan_that_was_applied_and_no_other() {
    let scene = scene(committed(), false).unwrap();
    scene.driver.prepare(&context()).await.unwrap();
    let mut changes = Changes::default();
    changes.record("a.b", Action::Create);
    scene.terraform.set_changes(changes.clone());
    let inputs = TaskInputs::default();
    let plan = scene.driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
    let unknown = PlanId::new("abcdef");
    let outcome = scene.driver.apply(ApplyRequest::Plan(&unknown), &context()).await.unwrap();
    assert_eq!(outcome, Outcome::Superseded);
    assert!(scene.calls().is_empty());
    let outcome = scene.driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap();
    assert_eq!(outcome, Outcome::Applied(changes));
    assert_eq!(scene.calls(), ["panos.fw"]);
}

#[tokio::test]
async fn the_failure_of_a_handler_is_the_failure_of_the_run() {
    let scene = scene(committed(), true).unwrap();
    scene.driver.prepare(&context()).await.unwrap();
    let error = scene.apply().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "error tf-apply for 'test': applied, but the handler of provider panos failed: no answer"
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn only_a_provider_that_asks_for_it_is_handled_and_checked() {
    let mut block = provider("panos", None, &json!({}));
    let scene = scene(block.clone(), false).unwrap();
    scene.driver.prepare(&context()).await.unwrap();
    scene.apply().await.unwrap();
    assert!(scene.calls().is_empty());
    block.auto_commit = true;
    let refused = self::scene(block, false).err().unwrap();
    assert_eq!(refused.to_string(), "no username");
}
