//! Answers that are lost, permits that end, tokens that change, and runs of others.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use cts_driver_terraform::dynamic::{Reference, ValueSource, Values};
use cts_driver_tfc::{
    Client, ClientOptions, Error, ExchangeError, Platform, Result, Settings, TfcFactory,
    TokenSource,
    testing::{Fault, TestTfc},
};
use cts_tasks::{
    ApplyRequest, ConfigValue, ConsulConfig, Driver, DriverFactory as _, DriverSettings,
    Error as TaskError, Outcome, Permit, PlanPurpose, ProviderBlock, RunContext, Task,
};
use http::{Method, Request, Response, StatusCode};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::scene::{Scene, inputs, web};

/// A task whose provider has a secret, which becomes a sensitive variable.
fn secretive(token: &str) -> (Task, ProviderBlock) {
    let mut task = web();
    task.providers = vec!["cloud".to_owned()];
    let mut block = ProviderBlock::new("cloud");
    block.arguments.insert("token".to_owned(), token.into());
    (task, block)
}

/// Settings with this provider; `more` stands over what every test needs.
fn settings(more: &Value, block: ProviderBlock) -> Settings {
    let mut body =
        json!({"organization": "my-org", "token": TestTfc::TOKEN, "required_providers": {}});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let (body, consul, providers) = (ConfigValue::from(body), ConsulConfig::default(), [block]);
    let mut settings = DriverSettings::new(&consul, Path::new("/nowhere"));
    settings.body = Some(&body);
    settings.providers = &providers;
    Settings::read_with(settings, &|_| None, &mut Vec::new()).unwrap()
}

/// A platform that loses one exchange: the request, or only its answer.
#[derive(Debug, Clone)]
struct Lossy {
    tfc: TestTfc,
    seen: Arc<AtomicUsize>,
    at: usize,
    loss: Loss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// No answer, and no effect.
    Request,
    /// An effect, and no answer.
    Answer,
    /// 503, and no effect.
    Refused,
    /// Nothing is lost.
    Nothing,
}

#[async_trait]
impl Platform for Lossy {
    async fn exchange(
        &self,
        request: Request<Bytes>,
    ) -> std::result::Result<Response<Bytes>, ExchangeError> {
        let number = self.seen.fetch_add(1, Ordering::SeqCst);
        let lost = || ExchangeError::Failed { source: "the connection was cut".into() };
        match self.loss {
            Loss::Nothing => {}
            _ if number != self.at => {}
            Loss::Request => return Err(lost()),
            Loss::Refused => {
                let mut answer = Response::new(Bytes::new());
                *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                return Ok(answer);
            }
            Loss::Answer => {
                drop(self.tfc.exchange(request).await?);
                return Err(lost());
            }
        }
        self.tfc.exchange(request).await
    }
}

/// Does a step until it succeeds, as the engine does; a failure that no retry
/// cures is one of the test.
macro_rules! insist {
    ($what:expr, $step:expr) => {{
        let mut tries = 0;
        loop {
            match $step.await {
                Ok(done) => break done,
                Err(error) if error.is_retryable() && tries < 5 => tries += 1,
                Err(error) => panic!("{}: {error}", $what),
            }
        }
    }};
}

/// A whole life of a task: made, changed, planned and approved, destroyed.
async fn live(platform: &Lossy, what: &str) {
    let context = RunContext::default();
    let (task, block) = secretive("s3cret");
    let settings = settings(&json!({}), block);
    let factory = TfcFactory::new(settings, Some(Arc::new(platform.clone())));
    insist!(what, factory.start());
    let driver = factory.driver(&task).unwrap();
    insist!(what, driver.prepare(&context));
    let one = inputs(&["a"]);
    insist!(what, driver.apply(ApplyRequest::Inputs(&one), &context));
    check(&platform.tfc, what, "\"a", None);

    let two = inputs(&["b"]);
    let plan = insist!(what, driver.plan(&two, PlanPurpose::Apply, &context));
    let approved = insist!(what, driver.apply(ApplyRequest::Plan(&plan.id), &context));
    if approved == Outcome::Superseded {
        insist!(what, driver.apply(ApplyRequest::Inputs(&two), &context));
    }
    check(&platform.tfc, what, "\"b", Some("\"a"));

    insist!(what, driver.destroy(&context));
    check(&platform.tfc, what, "\"b", None);
}

/// The last run that can apply is applied, no other goes on or waits, and the
/// variables are those of the last inputs.
fn check(tfc: &TestTfc, what: &str, holds: &str, lacks: Option<&str>) {
    let runs = tfc.runs("web");
    let real: Vec<_> = runs.iter().filter(|run| !run.plan_only).collect();
    let ended = ["applied", "planned_and_finished", "discarded", "canceled"];
    for run in &real {
        assert!(ended.contains(&run.status.as_str()), "{what}: an orphan: {runs:#?}");
    }
    let last = real.last().unwrap();
    assert!(
        ["applied", "planned_and_finished"].contains(&last.status.as_str()),
        "{what}: {runs:#?}"
    );
    let services = tfc.variable("web", "services").unwrap();
    assert!(services.contains(holds), "{what}: {services}");
    if let Some(lacks) = lacks {
        assert!(!services.contains(lacks), "{what}: {services}");
    }
    let secret = tfc.variable("web", "cloud").unwrap();
    assert!(secret.contains("s3cret"), "{what}: {secret}");
}

fn lossy(at: usize, loss: Loss) -> Lossy {
    Lossy { tfc: TestTfc::new(), seen: Arc::default(), at, loss }
}

/// Every call fails once, before and after it took effect, in turn.
#[tokio::test(start_paused = true)]
async fn one_lost_exchange_anywhere_leaves_one_current_run_and_no_orphan() {
    let whole = lossy(0, Loss::Nothing);
    live(&whole, "nothing lost").await;
    let exchanges = whole.seen.load(Ordering::SeqCst);
    assert!(exchanges > 20, "{exchanges}");
    for at in 0..exchanges {
        for loss in [Loss::Request, Loss::Answer, Loss::Refused] {
            let platform = lossy(at, loss);
            live(&platform, &format!("{loss:?} of exchange {at}")).await;
            assert!(platform.seen.load(Ordering::SeqCst) > at);
        }
    }
}

/// The write of B takes effect, and nobody learns that.
#[tokio::test(start_paused = true)]
async fn a_sensitive_value_that_goes_back_is_written_back() {
    let tfc = TestTfc::new();
    let context = RunContext::default();
    let values = Arc::new(Mutex::new("value-A".to_owned()));
    let (task, block) = secretive("{{ env \"TOKEN\" }}");
    let settings = settings(&json!({"max_retry": 0}), block);
    let settings = settings.with_values(Arc::new(Changing(Arc::clone(&values))));
    let factory = TfcFactory::new(settings, Some(Arc::new(tfc.clone())));
    factory.start().await.unwrap();
    let driver = factory.driver(&task).unwrap();
    driver.prepare(&context).await.unwrap();
    let one = inputs(&["a"]);
    driver.apply(ApplyRequest::Inputs(&one), &context).await.unwrap();
    assert!(tfc.variable("web", "cloud").unwrap().contains("value-A"));

    "value-B".clone_into(&mut values.lock().unwrap());
    tfc.inject(Some(Method::PATCH), "/vars/", Fault::AnswerLost, 1);
    driver.apply(ApplyRequest::Inputs(&one), &context).await.unwrap_err();
    assert!(tfc.variable("web", "cloud").unwrap().contains("value-B"));

    "value-A".clone_into(&mut values.lock().unwrap());
    driver.apply(ApplyRequest::Inputs(&one), &context).await.unwrap();
    assert!(tfc.variable("web", "cloud").unwrap().contains("value-A"));
}

/// The environment with one variable, which changes.
#[derive(Debug)]
struct Changing(Arc<Mutex<String>>);

#[async_trait]
impl ValueSource for Changing {
    async fn look_up(&self, wanted: &BTreeSet<Reference>) -> cts_driver_terraform::Result<Values> {
        let value = self.0.lock().unwrap().clone();
        Ok(wanted.iter().map(|wanted| (wanted.clone(), value.clone().into())).collect())
    }
}

/// Allows so many questions, and no more.
#[derive(Debug)]
struct Ending {
    left: AtomicUsize,
}

#[async_trait]
impl Permit for Ending {
    fn check(&self) -> cts_tasks::Result<()> {
        let taken =
            self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        taken
            .map(drop)
            .map_err(|_none| TaskError::NotPermitted { reason: "another leads".to_owned() })
    }
}

/// However many questions were answered with yes, nothing is written after a no.
#[tokio::test(start_paused = true)]
async fn no_write_reaches_the_platform_without_the_permit() {
    let mut finished = false;
    for allowed in 0..100 {
        let scene = Scene::new().await;
        let driver = scene.driver(&web());
        let permit = Arc::new(Ending { left: AtomicUsize::new(allowed) });
        let context = RunContext::default().with_permit(Arc::clone(&permit) as Arc<dyn Permit>);
        let ended = async {
            driver.prepare(&context).await?;
            driver.apply(ApplyRequest::Inputs(&inputs(&["a"])), &context).await
        };
        let ended = ended.await;
        let writes = scene.tfc.requests();
        let writes = writes.iter().filter(|request| request.method != "GET").count();
        assert!(writes <= allowed, "{writes} writes with {allowed} permissions");
        match ended {
            Err(TaskError::NotPermitted { .. }) => {}
            Ok(Outcome::Applied(_)) => {
                finished = true;
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(finished);
}

/// What somebody else manages is not taken over, whatever it lacks of marks.
#[tokio::test(start_paused = true)]
async fn a_workspace_with_resources_or_runs_of_somebody_else_is_left_alone() {
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({"resource-count": 7, "source-name": "somebody"}), &["own"]);
    let scene = Scene::with(tfc, json!({})).await;
    let error = scene.refused(&web()).await;
    assert!(error.contains("manages 7 resources"), "{error}");
    assert!(error.contains("add the tag \"source:cts\""), "{error}");
    let requests = scene.tfc.requests();
    assert!(requests.iter().all(|request| request.method == "GET"), "{requests:?}");
    assert_eq!(scene.tfc.tags("web"), ["own"]);

    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({"resource-count": 7}), &["source:cts"]);
    Scene::with(tfc, json!({})).await.prepared(&web()).await;
}

/// A run that somebody else left waiting for confirmation in the task's workspace.
async fn somebody_elses_run(scene: &Scene, driver: &Arc<dyn Driver>) -> String {
    // A first run of the task, so that there is an upload to run.
    let context = RunContext::default();
    driver.apply(ApplyRequest::Inputs(&inputs(&["a"])), &context).await.unwrap();
    let client = scene.tfc.client();
    let workspace = client.workspace_named("my-org", "web").await.unwrap();
    let mut new = cts_driver_tfc::types::NewRun::new(workspace.id);
    new.message = "a person tries something".into();
    new.auto_apply = Some(false);
    new.is_destroy = Some(true);
    let run = client.create_run(&new).await.unwrap();
    let id = run.id.to_string();
    scene
        .tfc
        .wait_until(|tfc| tfc.runs("web").iter().any(|run| run.id == id && run.status == "planned"))
        .await;
    id
}

#[tokio::test(start_paused = true)]
async fn a_task_behind_a_run_of_somebody_else_says_so_and_goes_on_by_itself() {
    let scene = Scene::new().await;
    let driver = scene.prepared(&web()).await;
    let other = somebody_elses_run(&scene, &driver).await;
    let context = RunContext::default();
    let two = inputs(&["b"]);
    let waiting = driver.apply(ApplyRequest::Inputs(&two), &context).await.unwrap();
    let Outcome::Waiting { ticket, url } = waiting else { panic!("{waiting:?}") };
    assert!(url.unwrap().ends_with(&other));
    let following = {
        let (driver, ticket) = (Arc::clone(&driver), ticket.clone());
        tokio::spawn(async move { driver.follow(&ticket, &RunContext::default()).await })
    };
    assert!(scene.tfc.discard(&other));
    assert!(matches!(following.await.unwrap().unwrap(), Outcome::Applied(_)));

    // A plan cannot wait there: nobody could approve it.
    let other = somebody_elses_run(&scene, &driver).await;
    let error = driver.plan(&inputs(&["c"]), PlanPurpose::Apply, &context).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains(&other), "{error}");
    let left = scene.tfc.runs("web").into_iter().filter(|run| run.status == "pending").count();
    assert_eq!(left, 0);
}

#[tokio::test(start_paused = true)]
async fn runs_of_others_are_discarded_where_that_is_configured() {
    let scene = Scene::with(TestTfc::new(), json!({"run": {"discard_others": true}})).await;
    let driver = scene.prepared(&web()).await;
    let other = somebody_elses_run(&scene, &driver).await;
    let two = inputs(&["b"]);
    let applied = driver.apply(ApplyRequest::Inputs(&two), &RunContext::default()).await.unwrap();
    assert!(matches!(applied, Outcome::Applied(_)), "{applied:?}");
    let runs = scene.tfc.runs("web");
    assert_eq!(runs.iter().find(|run| run.id == other).unwrap().status, "discarded");
}

/// Gives the platform's token from the second question on.
#[derive(Debug)]
struct Rotated(AtomicUsize);

#[async_trait]
impl TokenSource for Rotated {
    async fn token(&self) -> Result<SecretString> {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => Err(Error::Setting { setting: "token", problem: "not there yet".to_owned() }),
            1 => Ok("an-older-token".into()),
            _ => Ok(TestTfc::TOKEN.into()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_replaced_is_read_again() {
    let tfc = TestTfc::new();
    let platform: Arc<dyn Platform> = Arc::new(tfc.clone());
    let client = Client::with_platform(platform, ClientOptions::default(), "an-older-token".into());
    let client = client.with_token_source(Arc::new(Rotated(AtomicUsize::new(0))));
    for _neither_there_nor_new in 0..2 {
        let error = client.has_organization("my-org").await.unwrap_err();
        assert_eq!(error.status(), Some(StatusCode::UNAUTHORIZED));
    }
    assert!(client.has_organization("my-org").await.unwrap());
    let before = tfc.requests().len();
    assert!(client.has_organization("my-org").await.unwrap());
    assert_eq!(tfc.requests().len(), before + 1, "the new token stays");
}
