//! Tests of the settings: defaults, mistakes with their places, backends.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use cts_tasks::{
    ConfigValue, ConsulConfig, Diagnostic, DriverSettings, Place, ProviderBlock, Source,
    config::{ConsulTls, Entry, ValueKind},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};

use super::Settings;

/// A body as the reader of JSON files would give it, all at one place.
fn value(json: &Json) -> ConfigValue {
    let kind = match json {
        Json::Null => ValueKind::Null,
        Json::Bool(value) => ValueKind::Bool(*value),
        Json::Number(number) => ValueKind::Number(number.to_string().parse().unwrap()),
        Json::String(text) => ValueKind::String(text.clone()),
        Json::Array(items) => ValueKind::List(items.iter().map(value).collect()),
        Json::Object(members) => ValueKind::Object(
            members
                .iter()
                .map(|(key, member)| Entry {
                    key: key.clone(),
                    key_place: Some(place()),
                    labels: Vec::new(),
                    block: false,
                    value: value(member),
                })
                .collect(),
        ),
    };
    ConfigValue { kind, place: Some(place()) }
}

fn place() -> Place {
    let source = Source { path: "etc/cts.hcl".into(), text: "driver \"terraform\" {}\n".into() };
    Place::new(Arc::new(source), 7..18)
}

fn read(body: &Json) -> Result<Settings, Vec<Diagnostic>> {
    read_with(body, &ConsulConfig::default(), &[])
}

fn read_with(
    body: &Json,
    consul: &ConsulConfig,
    providers: &[ProviderBlock],
) -> Result<Settings, Vec<Diagnostic>> {
    let body = value(body);
    let mut settings = DriverSettings::new(consul, Path::new("/srv"));
    settings.body = Some(&body);
    settings.providers = providers;
    Settings::read(settings)
}

fn errors(body: &Json) -> Vec<String> {
    read(body).unwrap_err().iter().map(ToString::to_string).collect()
}

fn attributes(settings: &Settings) -> Json {
    serde_json::to_value(settings.backend().attributes()).unwrap()
}

#[test]
fn an_empty_block_has_the_specified_defaults() {
    let settings = read(&json!({})).unwrap();
    assert!(!settings.log() && !settings.persist_log());
    assert_eq!((settings.path(), settings.version()), (None, None));
    assert_eq!(settings.supported_versions().as_str(), ">= 0.13.0, <= 1.14.3");
    assert_eq!(
        attributes(&settings),
        json!({"address": "localhost:8500", "gzip": true, "path": "consul-terraform-sync/terraform"})
    );
}

#[test]
fn values_are_weakly_typed() {
    let settings = read(&json!({"log": "true", "persist_log": 1, "path": ""})).unwrap();
    assert!(settings.log() && settings.persist_log());
    assert_eq!(settings.path(), None);
}

#[test]
fn a_relative_path_is_made_absolute() {
    let settings = read(&json!({"path": "bin"})).unwrap();
    assert_eq!(settings.path(), Some(Path::new("/srv/bin")));
}

/// Spec: CTS15
#[test]
fn the_state_lies_below_the_kv_path_once() {
    for (kv_path, expected) in [
        ("foo", "foo/terraform"),
        ("foo/", "foo/terraform"),
        ("foo/terraform", "foo/terraform"),
        ("terraform", "terraform/terraform"),
        ("foo/terraform/", "foo/terraform/terraform"),
        ("", "consul-terraform-sync/terraform"),
    ] {
        let mut consul = ConsulConfig::default();
        consul.kv_path = kv_path.to_owned();
        let settings = read_with(&json!({}), &consul, &[]).unwrap();
        assert_eq!(attributes(&settings)["path"], expected, "{kv_path}");
    }
}

/// Spec: CTS16
#[test]
fn keys_of_the_operator_stand_over_the_defaults() {
    let mut tls = ConsulTls::default();
    tls.verify = true;
    tls.ca_cert = Some("ca.pem".into());
    let mut consul = ConsulConfig::default();
    consul.tls = Some(tls);
    let settings =
        read_with(&json!({"backend": {"consul": {"path": "x", "lock": false}}}), &consul, &[]);
    assert_eq!(
        attributes(&settings.unwrap()),
        json!({
            "address": "localhost:8500", "ca_file": "/srv/ca.pem", "gzip": true, "lock": false,
            "path": "x", "scheme": "https",
        })
    );
}

/// Spec: CTS17
#[test]
fn a_version_must_be_exact_and_supported() {
    let at = "etc/cts.hcl:1:8: ";
    assert_eq!(
        errors(&json!({"version": "0.13"})),
        [format!(
            "{at}provide the exact Terraform version to install: 0.13 (write all three parts, as \
             in \"1.11.4\")"
        )]
    );
    for version in ["0.12.0", "1.99.0", "0.13.0-beta"] {
        assert_eq!(
            errors(&json!({"version": version})),
            [format!(
                "{at}Terraform version is not supported by Consul-Terraform-Sync, try updating to \
                 a different version (>= 0.13.0, <= 1.14.3): {version}"
            )]
        );
    }
    assert_eq!(
        read(&json!({"version": "1.11.4"})).unwrap().version().unwrap().to_string(),
        "1.11.4"
    );
    let wider = json!({"version": "1.99.0", "supported_versions": ">= 1.0"});
    assert_eq!(read(&wider).unwrap().supported_versions().as_str(), ">= 1.0");
}

#[test]
fn every_mistake_is_found_with_its_place() {
    let found = errors(&json!({
        "log": "maybe", "colour": true, "working_dir": "x", "backend": {"remote": {}},
        "required_providers": {"aws": 5}, "lock_timeout": "soon",
    }));
    assert_eq!(found.len(), 6, "{found:#?}");
    for expected in [
        "log must be true or false",
        "'cts.hcl' has invalid keys: driver.terraform.colour",
        "'cts.hcl' has invalid keys: driver.terraform.working_dir",
        "unsupported Terraform backend by Sync \"remote\"",
        "aws must be a version or an object with source and version",
        "lock_timeout: ",
    ] {
        assert!(
            found.iter().any(|error| error.starts_with(&format!("etc/cts.hcl:1:8: {expected}"))),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn each_supported_backend_is_taken_with_its_attributes() {
    for label in crate::backend::LABELS {
        let settings = read(&json!({"backend": {label: {"a": ["x"]}}})).unwrap();
        assert_eq!(settings.backend().label(), label);
        assert_eq!(attributes(&settings)["a"], json!(["x"]));
    }
    let two = json!({"backend": {"local": {}, "s3": {}}});
    assert_eq!(errors(&two), ["etc/cts.hcl:1:8: only one backend can be configured"]);
}

#[test]
fn names_that_terraform_refuses_are_found_in_provider_blocks() {
    let mut block = ProviderBlock::new("myCloud");
    block.arguments = BTreeMap::from([
        ("count".to_owned(), "1".into()),
        ("version".to_owned(), "1".into()),
        ("region".to_owned(), "eu".into()),
    ]);
    block.place = Some(place());
    let found = read_with(&json!({}), &ConsulConfig::default(), &[block]).unwrap_err();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].contains("provider name \"myCloud\" must be lower case"), "{found:#?}");
    assert!(found[1].contains("argument \"count\" of provider \"myCloud\" is reserved"));
    assert!(found[2].contains("argument \"version\" of provider \"myCloud\" is reserved"));
}

#[test]
fn secrets_of_a_backend_stand_apart_from_main_tf() {
    let body = json!({"backend": {"consul": {"access_token": "s3cr3t", "path": "x"}}});
    let settings = read(&body).unwrap();
    assert!(attributes(&settings).get("access_token").is_none());
    let secret = settings.backend().secret_attributes().unwrap();
    assert_eq!(secret.expose_secret(), "access_token = \"s3cr3t\"\n");
    assert!(!format!("{settings:?}").contains("s3cr3t"));
    assert!(read(&json!({})).unwrap().backend().secret_attributes().is_none());
}

#[test]
fn a_template_that_cannot_be_read_is_found_with_its_place() {
    let mut block = ProviderBlock::new("cloud");
    block.arguments.insert("region".into(), r#"{{ env "A" | upper "x" }}"#.into());
    block.arguments.insert("good".into(), r#"{{ env "A" }}"#.into());
    block.place = Some(place());
    let found = read_with(&json!({}), &ConsulConfig::default(), &[block]).unwrap_err();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].starts_with("etc/cts.hcl:1:8: region of provider cloud: {{ env \"A\" | upper"),
        "{found:#?}"
    );
}

#[test]
fn an_installation_needs_an_address() {
    let settings = read(&json!({"install": "true"})).unwrap();
    assert!(settings.install() && settings.release_mirror().is_none());
    let found = errors(&json!({"release_mirror": "releases.internal"}));
    let expected = "release_mirror must be an address that begins with https:// or http://";
    assert_eq!(found, [format!("etc/cts.hcl:1:8: {expected}")]);
}
