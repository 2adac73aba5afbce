//! The token, read again where it came from when the platform refuses it.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use cts_driver_tfc::{Settings, TfcFactory, testing::TestTfc};
use cts_tasks::{
    ConfigValue, ConsulConfig, DriverFactory as _, DriverSettings, RunContext, Source,
    config::ValueKind,
};

use crate::scene::web;

/// An environment that a test can change.
#[derive(Clone, Default)]
struct Environment(Arc<Mutex<BTreeMap<String, String>>>);

impl Environment {
    fn set(&self, name: &str, value: impl Into<String>) {
        self.0.lock().unwrap().insert(name.to_owned(), value.into());
    }

    fn get(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap().get(name).cloned()
    }
}

/// The driver's body in a configuration file.
fn body_of(path: &Path) -> ConfigValue {
    let source = Source { path: path.to_owned(), text: fs::read_to_string(path).unwrap() };
    let mut value = ConfigValue::parse(source).unwrap();
    for key in ["driver", "terraform-cloud"] {
        let ValueKind::Object(entries) = value.kind else { panic!("no block {key}") };
        value = entries.into_iter().find(|entry| entry.key == key).unwrap().value;
    }
    value
}

fn config(token: &str) -> String {
    format!(
        "driver \"terraform-cloud\" {{\n  organization = \"my-org\"\n  {token}\n  \
         required_providers {{}}\n}}\n"
    )
}

/// Starts with a token that the platform then replaces; `rotate` puts the new one in its
/// place, and a task is made ready with it.
async fn survives(file: &str, environment: &Environment, rotate: impl FnOnce(&str)) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cts.hcl");
    fs::write(&path, config(file)).unwrap();
    let body = body_of(&path);
    let (settings, tfc) = (started(&body, environment), TestTfc::new());
    let factory = TfcFactory::new(settings, Some(Arc::new(tfc.clone())));
    factory.start().await.unwrap();
    let driver = factory.driver(&web()).unwrap();

    tfc.set_token("another-token");
    let refused = driver.prepare(&RunContext::default()).await.unwrap_err().to_string();
    assert!(refused.contains("unauthorized"), "{refused}");
    assert!(!refused.contains("a-team-token") && !refused.contains("another-token"));
    rotate("another-token");
    if !file.is_empty() {
        fs::write(&path, config("token = \"another-token\"")).unwrap();
    }
    driver.prepare(&RunContext::default()).await.unwrap();
}

fn started(body: &ConfigValue, environment: &Environment) -> Settings {
    let consul = ConsulConfig::default();
    let mut settings = DriverSettings::new(&consul, Path::new("/nowhere"));
    settings.body = Some(body);
    let first = environment.clone();
    let read = Settings::read_with(settings, &move |name| first.get(name), &mut Vec::new());
    let later = environment.clone();
    read.unwrap().with_environment(move |name| later.get(name))
}

#[tokio::test(start_paused = true)]
async fn a_token_in_the_configuration_is_read_again() {
    let token = format!("token = \"{}\"", TestTfc::TOKEN);
    survives(&token, &Environment::default(), |_| {}).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_in_the_environment_is_read_again() {
    let environment = Environment::default();
    environment.set("TFC_TOKEN", TestTfc::TOKEN);
    survives("", &environment, |token| environment.set("TFC_TOKEN", token)).await;
}

#[tokio::test(start_paused = true)]
async fn credentials_of_terraform_login_are_used_and_read_again() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".terraform.d");
    fs::create_dir(&folder).unwrap();
    let write = |token: &str| {
        let text = format!(r#"{{"credentials": {{"app.terraform.io": {{"token": "{token}"}}}}}}"#);
        fs::write(folder.join("credentials.tfrc.json"), text).unwrap();
    };
    write(TestTfc::TOKEN);
    let environment = Environment::default();
    environment.set("HOME", home.path().to_string_lossy());
    survives("", &environment, write).await;
}

#[tokio::test(start_paused = true)]
async fn credentials_of_the_cli_configuration_are_used_and_read_again() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("cli.tfrc");
    let write = |token: &str| {
        let other = "credentials \"tfe.example.com\" { token = \"of-another\" }\n";
        let ours = format!("credentials \"app.terraform.io\" {{\n  token = \"{token}\"\n}}\n");
        fs::write(&file, format!("plugin_cache_dir = \"/nowhere\"\n{ours}{other}")).unwrap();
    };
    write(TestTfc::TOKEN);
    let environment = Environment::default();
    environment.set("TF_CLI_CONFIG_FILE", file.to_string_lossy());
    survives("", &environment, write).await;
}

#[tokio::test(start_paused = true)]
async fn the_variable_of_a_host_stands_over_its_credentials() {
    let environment = Environment::default();
    environment.set("TF_TOKEN_app_terraform_io", TestTfc::TOKEN);
    survives("", &environment, |token| environment.set("TF_TOKEN_app_terraform_io", token)).await;
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_not_shown() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("cli.tfrc");
    fs::write(&file, "credentials \"app.terraform.io\" { token = secret-without-quotes").unwrap();
    let environment = Environment::default();
    environment.set("TF_CLI_CONFIG_FILE", file.to_string_lossy());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cts.hcl");
    fs::write(&path, config("")).unwrap();
    let body = body_of(&path);
    let consul = ConsulConfig::default();
    let mut settings = DriverSettings::new(&consul, Path::new("/nowhere"));
    settings.body = Some(&body);
    let read = Settings::read_with(settings, &move |name| environment.get(name), &mut Vec::new());
    let errors = read.unwrap_err();
    let text = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(text.contains("cli.tfrc:1:"), "{text}");
    assert!(!text.contains("secret-without"), "{text}");
    assert!(text.contains("terraform login app.terraform.io"), "{text}");
}
