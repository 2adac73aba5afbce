//! Values of providers that come from the environment, from Consul and from Vault.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use consul_watch::{client::PutOptions, testing::real::Consul};
use cts_driver_terraform::{
    Error, Result, Settings, TerraformFactory, Version,
    dynamic::{LiveValues, Reference, ValueSource, Values, resolve},
    testing::ScriptedTerraform,
};
use cts_tasks::{
    ApplyRequest, ConsulConfig, DriverFactory as _, DriverSettings, Outcome, PlanPurpose,
    ProviderBlock, config::VaultConfig,
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    bao::{Bao, ROOT},
    fixtures::provider,
    site::{SUITE, Site, context, module, services, tools},
};

/// Where values come from in a test: nothing but what is given here.
fn live(consul: &ConsulConfig, vault: Option<&VaultConfig>) -> LiveValues {
    let mut settings = DriverSettings::new(consul, Path::new("/"));
    settings.vault = vault;
    LiveValues::new(settings)
        .with_environment(BTreeMap::from([("REGION".to_owned(), "eu ${x} \"1\"".to_owned())]))
}

fn block(arguments: &[(&str, &str)]) -> ProviderBlock {
    let arguments: serde_json::Map<_, _> =
        arguments.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    provider("cloud", None, &arguments.into())
}

async fn resolved(block: ProviderBlock, values: &LiveValues) -> Result<serde_json::Value> {
    let blocks = resolve(&[block], values).await?;
    Ok(serde_json::to_value(&blocks.first().unwrap().arguments).unwrap())
}

async fn consuls(case: &str) -> Vec<(Consul, ConsulConfig)> {
    let mut consuls = Vec::new();
    for part in SUITE.parts("consul", case) {
        let consul = Consul::start(&part.path).await.unwrap();
        let mut config = ConsulConfig::default();
        config.address = consul.address();
        consuls.push((consul, config));
    }
    consuls
}

async fn put(consul: &Consul, key: &str, value: &[u8]) {
    let value = bytes::Bytes::copy_from_slice(value);
    assert!(consul.client().kv_put(key, value, &PutOptions::default()).await.unwrap());
}

#[tokio::test]
async fn variables_of_the_process_are_read_and_a_missing_one_is_empty() {
    let values = live(&ConsulConfig::default(), None);
    let block = block(&[("a", r#"{{ env "REGION" }}"#), ("b", r#"<{{ env "NOT_SET" }}>"#)]);
    let found = resolved(block, &values).await.unwrap();
    assert_eq!(found, json!({"a": "eu ${x} \"1\"", "b": "<>"}));
}

#[tokio::test]
async fn a_key_is_read_and_one_to_come_is_waited_for() {
    let case = "a_key_is_read_and_one_to_come_is_waited_for";
    for (consul, config) in consuls(case).await {
        let values = live(&config, None);
        put(&consul, "net/é key", "vålue\n".as_bytes()).await;
        let there = block(&[("k", r#"{{ key "/net/é key" }}"#)]);
        assert_eq!(resolved(there, &values).await.unwrap(), json!({"k": "vålue\n"}));

        let to_come = block(&[("k", r#"{{ key "net/later" }}"#)]);
        let (found, ()) = tokio::join!(resolved(to_come, &values), put(&consul, "net/later", b"5"));
        assert_eq!(found.unwrap(), json!({"k": "5"}));

        put(&consul, "net/bytes", b"s3cret\xff").await;
        let error =
            resolved(block(&[("k", r#"{{ key "net/bytes" }}"#)]), &values).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the Consul key \"net/bytes\" for provider cloud: it is not UTF-8 text"
        );
        assert!(!error.is_retryable());
    }
}

#[tokio::test]
async fn a_key_that_never_comes_fails_by_name() {
    for (_consul, config) in consuls("a_key_that_never_comes_fails_by_name").await {
        let values = live(&config, None).with_limit(Duration::from_millis(300));
        let error = resolved(block(&[("k", r#"{{ key "none" }}"#)]), &values).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the Consul key \"none\" for provider cloud: no such key within 0.3 s"
        );
        assert!(error.is_retryable());
    }
}

/// Something between that drops the index makes every answer come at once.
#[tokio::test]
async fn a_key_that_is_not_there_is_not_asked_for_in_a_tight_loop() {
    let server = wiremock::MockServer::start().await;
    wiremock::Mock::given(wiremock::matchers::path("/v1/kv/none"))
        .respond_with(wiremock::ResponseTemplate::new(404))
        .mount(&server)
        .await;
    let mut config = ConsulConfig::default();
    config.address = server.uri();
    let values = live(&config, None).with_limit(Duration::from_millis(500));
    let error = resolved(block(&[("k", r#"{{ key "none" }}"#)]), &values).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let asked = server.received_requests().await.unwrap().len();
    assert!((1..=6).contains(&asked), "{asked} requests in half a second");
}

async fn bao(case: &str) -> Option<Bao> {
    let part = SUITE.part("bao", case)?;
    Some(Bao::start(&part.path).await)
}

const USER: &str = r#"{{ with secret "secret/my/path" }}{{ .Data.data.user }}{{ end }}"#;

#[tokio::test]
async fn secrets_are_read_with_and_without_the_part_that_the_api_wants() {
    let case = "secrets_are_read_with_and_without_the_part_that_the_api_wants";
    let Some(bao) = bao(case).await else { return };
    bao.write_secret("my/path", json!({"user": "rôot", "port": 5432})).await;
    bao.call("POST", "sys/mounts/first", json!({"type": "kv", "options": {"version": "1"}})).await;
    bao.call("POST", "first/a", json!({"x": "one"})).await;
    let values = live(&ConsulConfig::default(), Some(&bao.config(ROOT)));
    let block = block(&[
        ("a", USER),
        ("b", r#"{{ with secret "/secret/data/my/path" }}{{ .Data.data.port }}{{ end }}"#),
        ("c", r#"{{ with secret "first/a" }}{{ .Data.x }}{{ end }}"#),
    ]);
    let found = resolved(block, &values).await.unwrap();
    assert_eq!(found, json!({"a": "rôot", "b": "5432", "c": "one"}));
}

#[tokio::test]
async fn what_vault_refuses_is_told_without_a_secret() {
    let Some(bao) = bao("what_vault_refuses_is_told_without_a_secret").await else { return };
    bao.write_secret("my/path", json!({"other": "pl4nted"})).await;
    let expect = async |token: &str, template: &str, expected: &str, retryable: bool| {
        let values = live(&ConsulConfig::default(), Some(&bao.config(token)));
        let error = resolved(block(&[("k", template)]), &values).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("pl4nted") && !text.contains(token), "{text}");
        assert_eq!(error.is_retryable(), retryable, "{text}");
        assert!(!format!("{error:?} {values:?}").contains(token));
    };
    expect(ROOT, USER, "the secret has no member \"user\"", false).await;
    let none = r#"{{ with secret "secret/none" }}{{ .Data.data.x }}{{ end }}"#;
    expect(ROOT, none, "there is no such secret", true).await;
    expect("n0-token", USER, "Vault answered 403 Forbidden: permission denied", false).await;
    let mut nowhere = VaultConfig::new("http://127.0.0.1:1");
    nowhere.token = Some(ROOT.into());
    let values = live(&ConsulConfig::default(), Some(&nowhere));
    let error = resolved(block(&[("k", USER)]), &values).await.unwrap_err();
    assert!(error.to_string().contains("Vault at http://127.0.0.1:1"), "{error}");
    assert!(error.is_retryable());
}

/// A token of its own, which lives for `ttl`.
async fn token(bao: &Bao, ttl: &str) -> String {
    let made = bao.call("POST", "auth/token/create", json!({"ttl": ttl, "no_parent": true})).await;
    made.pointer("/auth/client_token").and_then(serde_json::Value::as_str).unwrap().to_owned()
}

#[tokio::test]
async fn a_wrapped_token_is_unwrapped_once() {
    let Some(bao) = bao("a_wrapped_token_is_unwrapped_once").await else { return };
    bao.write_secret("my/path", json!({"user": "root"})).await;
    let inner = token(&bao, "1h").await;
    let wrapped = bao.call_wrapped("sys/wrapping/wrap", json!({"token": inner})).await;
    let mut config = bao.config(&wrapped);
    config.unwrap_token = true;
    let values = live(&ConsulConfig::default(), Some(&config));
    for _ in 0..2 {
        let found = resolved(block(&[("k", USER)]), &values).await.unwrap();
        assert_eq!(found, json!({"k": "root"}));
    }
    let again = live(&ConsulConfig::default(), Some(&config));
    let error = resolved(block(&[("k", USER)]), &again).await.unwrap_err().to_string();
    assert!(error.contains("cannot unwrap the token: Vault answered 400"), "{error}");
}

#[tokio::test]
async fn the_token_of_an_agents_file_is_read_anew() {
    let Some(bao) = bao("the_token_of_an_agents_file_is_read_anew").await else { return };
    bao.write_secret("my/path", json!({"user": "root"})).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let mut config = bao.config("an old one");
    config.agent_token_file = Some(file.clone());
    let values = live(&ConsulConfig::default(), Some(&config));
    std::fs::write(&file, "n0-token").unwrap();
    assert!(resolved(block(&[("k", USER)]), &values).await.is_err());
    std::fs::write(&file, format!("{ROOT}\n")).unwrap();
    assert_eq!(resolved(block(&[("k", USER)]), &values).await.unwrap(), json!({"k": "root"}));
}

#[tokio::test]
async fn a_token_is_kept_alive_only_when_it_is_to_be() {
    let Some(bao) = bao("a_token_is_kept_alive_only_when_it_is_to_be").await else { return };
    let (kept, left) = (token(&bao, "3s").await, token(&bao, "3s").await);
    let mut config = bao.config(&kept);
    config.renew_token = true;
    let keeping = live(&ConsulConfig::default(), Some(&config));
    let not_kept = live(&ConsulConfig::default(), Some(&bao.config(&left)));
    let deadline = Instant::now() + Duration::from_mins(1);
    tokio::select! {
        () = keeping.keep_alive() => panic!("a token that can be renewed is kept"),
        () = not_kept.keep_alive() => panic!("there may be leases to keep"),
        // The one that is not renewed tells when the time of both is over.
        () = async {
            while bao.lives(&left).await {
                assert!(Instant::now() < deadline, "a token outlives its time");
                sleep(Duration::from_millis(50)).await;
            }
        } => {}
    }
    assert!(bao.lives(&kept).await);
}

/// Answers with what was put in.
#[derive(Debug, Default)]
struct Stored(Mutex<BTreeMap<Reference, String>>);

impl Stored {
    fn put(&self, name: &str, value: &str) {
        let reference = Reference::Environment { name: name.to_owned() };
        self.0.lock().unwrap().insert(reference, value.to_owned());
    }
}

#[async_trait]
impl ValueSource for Stored {
    async fn look_up(&self, wanted: &BTreeSet<Reference>) -> Result<Values> {
        let stored = self.0.lock().unwrap();
        let value = |one: &Reference| match stored.get(one) {
            Some(value) => Ok((one.clone(), value.clone().into())),
            None => Err(Error::Value {
                reference: one.to_string(),
                provider: None,
                problem: "not stored".to_owned(),
                retryable: true,
            }),
        };
        wanted.iter().map(value).collect()
    }
}

fn scripted(site: &Site, stored: &Arc<Stored>) -> TerraformFactory {
    let body = crate::site::body(&site.driver_block);
    let mut settings = DriverSettings::new(&site.consul, site.path());
    settings.body = Some(&body);
    settings.providers = &site.providers;
    let settings = Settings::read(settings).unwrap().with_values(Arc::clone(stored) as _);
    let version: Version = "1.11.4".parse().unwrap();
    TerraformFactory::new(settings, Arc::new(ScriptedTerraform::new(version)))
}

#[tokio::test]
async fn a_changed_value_is_used_at_the_next_run_and_ends_a_waiting_plan() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::at(root.path());
    site.providers = vec![block(&[("password", r#"{{ env "P" }}"#)])];
    let stored = Arc::new(Stored::default());
    let factory = scripted(&site, &stored);
    let error = factory.start().await.unwrap_err().to_string();
    assert!(
        error.contains("cannot read the environment variable \"P\" for provider cloud"),
        "{error}"
    );

    stored.put("P", "first");
    factory.start().await.unwrap();
    let driver = factory.driver(&site.task(&json!({"providers": ["cloud"]}))).unwrap();
    driver.prepare(&context()).await.unwrap();
    let written =
        || std::fs::read_to_string(site.task_dir().join("providers.auto.tfvars")).unwrap();
    assert!(written().contains("password = \"first\""));
    let main = std::fs::read_to_string(site.task_dir().join("main.tf")).unwrap();
    assert!(main.contains("var.cloud.password") && !main.contains("first"), "{main}");

    let inputs = services(&[("a", 80)]);
    let plan = driver.plan(&inputs, PlanPurpose::Apply, &context()).await.unwrap();
    stored.put("P", "second");
    let outcome = driver.apply(ApplyRequest::Plan(&plan.id), &context()).await.unwrap();
    assert_eq!(outcome, Outcome::Superseded);

    driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
    assert!(written().contains("password = \"second\""));
    stored.put("P", "third");
    driver.destroy(&context()).await.unwrap();
    assert!(written().contains("password = \"third\""));
}

/// A provider that is not there does not stop tasks that use none.
#[tokio::test]
async fn only_the_values_of_the_tasks_own_providers_are_looked_up() {
    let root = tempfile::tempdir().unwrap();
    let mut site = Site::at(root.path());
    site.providers = vec![block(&[("password", r#"{{ env "P" }}"#)])];
    let factory = scripted(&site, &Arc::new(Stored::default()));
    factory.driver(&site.task(&json!({}))).unwrap().prepare(&context()).await.unwrap();
}

/// From Vault to the process that a module starts, through a real tool.
#[tokio::test]
async fn a_secret_reaches_the_task_by_its_environment_and_no_file() {
    let case = "a_secret_reaches_the_task_by_its_environment_and_no_file";
    let Some(bao) = bao(case).await else { return };
    for tool in tools(case) {
        let mut site = Site::new(&tool);
        let mut block = ProviderBlock::new("terraform");
        block.task_env.insert("GREETING".into(), USER.into());
        site.providers = vec![block];
        site.vault = Some(bao.config(ROOT));
        bao.write_secret("my/path", json!({"user": "hello 1"})).await;
        let factory = site.factory();
        factory.start().await.unwrap();
        let task = json!({"module": module("environment"), "providers": ["terraform"]});
        let driver = factory.driver(&site.task(&task)).unwrap();
        driver.prepare(&context()).await.unwrap();
        driver.apply(ApplyRequest::Inputs(&services(&[("a", 80)])), &context()).await.unwrap();
        bao.write_secret("my/path", json!({"user": "hello 2"})).await;
        let inputs = services(&[("a", 80), ("b", 81)]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(site.rules(), ["a=hello 1", "b=hello 2"]);
        for file in std::fs::read_dir(site.task_dir()).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                let text = std::fs::read(&file).unwrap();
                assert!(!String::from_utf8_lossy(&text).contains("hello"), "{}", file.display());
            }
        }
    }
}

#[tokio::test]
async fn a_value_from_vault_needs_a_vault() {
    let values = live(&ConsulConfig::default(), None);
    let mut block = ProviderBlock::new("cloud");
    block.task_env.insert("T".into(), USER.into());
    let error = resolve(&[block], &values).await.unwrap_err().to_string();
    assert!(error.ends_with("there is no vault block"), "{error}");
    let plain = resolve(&[ProviderBlock::new("cloud")], &values).await.unwrap();
    assert!(plain[0].task_env.values().all(|value| value.expose_secret().is_empty()));
}
