//! Planted secrets are found nowhere but where they have to be.

use std::path::Path;

use consul_watch::testing::Log;
use cts_driver_tfc::{
    Client, ClientOptions, Hostname, HttpPlatform, Settings, TfcFactory, TlsOptions,
    testing::{Fault, TestTfc},
};
use cts_tasks::{
    ApplyRequest, ConfigValue, ConsulConfig, Driver, DriverFactory as _, DriverSettings, Literal,
    PlanPurpose, ProviderBlock, RunContext, Task,
};
use http::Method;
use serde_json::json;

use crate::scene::{ProgressLines, inputs, web};

/// A value of a provider.
const PLANTED: &str = "pl4nted-5ecret";

/// What must not be seen: the token, values of providers, addresses of archives.
const SECRETS: [&str; 3] = [TestTfc::TOKEN, PLANTED, "_archivist"];

fn seen(text: &str) -> Vec<&'static str> {
    SECRETS.into_iter().filter(|secret| text.contains(secret)).collect()
}

/// Settings with a provider that has a secret argument and a secret variable
/// of the environment.
fn settings(hostname: &str, token: &str) -> Settings {
    let body = ConfigValue::from(json!({
        "hostname": hostname, "organization": TestTfc::ORGANIZATION, "token": token,
        "required_providers": {}, "max_retry": 1, "run": {"poll_min": "10ms", "poll_max": "20ms"},
    }));
    let mut block = ProviderBlock::new("local");
    block.arguments.insert("password".to_owned(), Literal::from(PLANTED));
    block.task_env.insert("API_KEY".to_owned(), PLANTED.to_owned().into());
    let providers = [block];
    let consul = ConsulConfig::default();
    let mut settings = DriverSettings::new(&consul, Path::new("/nowhere"));
    settings.body = Some(&body);
    settings.providers = &providers;
    Settings::read_with(settings, &|_| None, &mut Vec::new()).unwrap()
}

fn with_provider() -> Task {
    let mut task = web();
    task.providers = vec!["local".to_owned()];
    task.env.set("TASK_KEY", PLANTED).unwrap();
    task
}

/// Without this the other test could pass by looking at nothing.
#[test]
fn the_control_finds_what_is_planted() {
    let log = Log::start();
    tracing::trace!(token = TestTfc::TOKEN, "planted");
    tracing::error!("see /_archivist/log and {PLANTED}");
    assert_eq!(seen(&log.text()).len(), SECRETS.len());
    assert!(seen("nothing of it").is_empty());
}

/// Returns the texts, in progress and in errors, about logs that a provider filled carelessly, the
/// second of which cannot be read at first.
async fn report_of_careless_logs(tfc: &TestTfc, driver: &dyn Driver) -> Vec<String> {
    let (heard, hearing) = ProgressLines::context();
    let inputs = inputs(&["b"]);
    let mut reported = Vec::new();
    for fault in [None, Some(Fault::Status(410))] {
        tfc.fail_plan("web", &format!("denied for {PLANTED}"));
        if let Some(fault) = fault {
            tfc.inject(Some(Method::GET), "/_archivist/log", fault, 1);
        }
        let error = driver.apply(ApplyRequest::Inputs(&inputs), &hearing).await.unwrap_err();
        reported.push(format!("{error} {error:?} {}", consul_watch::error_chain(&error)));
    }
    assert_eq!(heard.count("denied for (sensitive value)"), 1, "{:#?}", heard.lines());
    assert_eq!(heard.count("cannot be read"), 1, "{:#?}", heard.lines());
    reported.extend(heard.lines());
    reported
}

/// Over sockets, so that what libraries say is looked at, too.
#[tokio::test]
async fn secrets_stand_in_no_log_error_or_debug_form() {
    let log = Log::start();
    let tfc = TestTfc::new();
    let mut served = tfc.serve().await.unwrap();
    let mut reported: Vec<String> = Vec::new();
    // A token that the platform does not know is still one.
    let wrong = format!("{}x", TestTfc::TOKEN);
    let refused = TfcFactory::new(settings(&served.hostname(), &wrong), None);
    let error = refused.start().await.unwrap_err();
    reported.push(format!("{error} {error:?} {refused:?}"));

    let settings = settings(&served.hostname(), TestTfc::TOKEN);
    reported.push(format!("{settings:?} {:?}", settings.client_options()));
    let factory = TfcFactory::new(settings, None);
    factory.start().await.unwrap();
    let driver = factory.driver(&with_provider()).unwrap();
    let context = RunContext::default();
    driver.prepare(&context).await.unwrap();
    assert!(tfc.variable("web", "local").unwrap().contains(PLANTED), "it got where it has to be");
    let (first, second) = (inputs(&["a"]), inputs(&["b"]));
    driver.apply(ApplyRequest::Inputs(&first), &context).await.unwrap();
    reported.extend(report_of_careless_logs(&tfc, &*driver).await);
    let plan = driver.plan(&second, PlanPurpose::Inspect, &context).await.unwrap();
    reported.push(format!("{plan:?}"));
    let plan = driver.plan(&second, PlanPurpose::Apply, &context).await.unwrap();
    driver.discard(&plan.id, &context).await.unwrap();
    reported.push(format!("{plan:?} {driver:?} {factory:?}"));

    // Each of these fails for good: a plan, its log, a variable, a plan as JSON,
    // an upload, and everything when the platform is away.
    tfc.fail_plan("web", "no");
    let mut failed = vec![driver.apply(ApplyRequest::Inputs(&second), &context).await.unwrap_err()];
    for (method, path) in [
        (Method::GET, "/_archivist/log"),
        (Method::PATCH, "/vars/"),
        (Method::GET, "/_archivist/json"),
        (Method::PUT, "/_archivist/cv"),
    ] {
        tfc.inject(Some(method.clone()), path, Fault::Status(500), 2);
        failed.push(match path {
            "/_archivist/log" => {
                tfc.fail_plan("web", "no");
                driver.apply(ApplyRequest::Inputs(&second), &context).await.unwrap_err()
            }
            "/vars/" => {
                let third = inputs(&["c"]);
                driver.apply(ApplyRequest::Inputs(&third), &context).await.unwrap_err()
            }
            "/_archivist/json" => {
                driver.plan(&first, PlanPurpose::Inspect, &context).await.unwrap_err()
            }
            _ => {
                let mut other = with_provider();
                other.name = "other".to_owned().try_into().unwrap();
                factory.driver(&other).unwrap().prepare(&context).await.unwrap_err()
            }
        });
    }
    served.pause().await;
    failed.push(driver.prepare(&context).await.unwrap_err());
    for error in &failed {
        reported.push(format!("{error} {error:?} {}", consul_watch::error_chain(error)));
    }
    served.resume().await.unwrap();

    // The client by itself.
    let client = tfc.client();
    let workspace = client.workspace_named("my-org", "web").await.unwrap();
    let options = cts_driver_tfc::types::NewConfigurationVersion::default();
    let version = client.create_configuration_version(&workspace.id, options).await.unwrap();
    let variables = client.variables(&workspace.id).await.unwrap();
    let run = client.newest_runs(&workspace.id).await.unwrap().remove(0);
    let report = client.run(&run.id).await.unwrap();
    let bare = Client::new(ClientOptions::default(), TestTfc::TOKEN.to_owned().into()).unwrap();
    let platform = HttpPlatform::new(&Hostname::default(), &TlsOptions::default()).unwrap();
    reported
        .push(format!("{client:?} {bare:?} {platform:?} {workspace:?} {version:?} {variables:?}"));
    reported.push(format!("{run:?} {report:?}"));

    let log = log.text();
    for line in ["run created", "configuration uploaded", "a request failed, trying again"] {
        assert!(log.contains(line), "{line} is logged");
    }
    assert!(failed[1].to_string().contains("its log cannot be read"), "{}", failed[1]);
    reported.push(log);
    for text in reported {
        assert_eq!(seen(&text), [""; 0], "{text}");
    }
}
