//! What a root module refuses, and what it keeps to itself.

use cts_driver_terraform::{Backend, Error, RootModule};
use cts_tasks::{KvEntry, TaskInputs};
use serde_json::json;

use crate::fixtures::{
    api_and_web, keys, kv_condition, literals, provider, services_condition, task,
};

fn problems(result: Result<(), Error>) -> Vec<String> {
    match result {
        Err(Error::Invalid { problems }) => problems,
        other => panic!("expected problems, got {other:?}"),
    }
}

/// Spec: CTS19
#[test]
fn two_instances_of_one_provider_are_refused() {
    let blocks = [provider("aws", Some("a"), &json!({})), provider("aws", Some("b"), &json!({}))];
    let task = task(&json!({"providers": ["aws.a", "aws.b"]}));
    let refused = RootModule::builder(&task).providers(&blocks).map(|_| ());
    assert_eq!(problems(refused), ["only one provider instance per task: \"aws.b\""]);
}

#[test]
fn an_alias_that_is_not_configured_is_refused() {
    let task = task(&json!({"providers": ["aws.c"]}));
    let blocks = [provider("aws", Some("a"), &json!({}))];
    let refused = problems(RootModule::builder(&task).providers(&blocks).map(|_| ()));
    assert!(refused[0].contains("\"aws.c\""), "{refused:?}");
}

#[test]
fn a_bare_name_takes_the_first_block_of_that_name() {
    let blocks = [
        provider("aws", Some("a"), &json!({"region": "first"})),
        provider("aws", None, &json!({"region": "second"})),
    ];
    let task = task(&json!({"providers": ["aws"]}));
    let root = RootModule::builder(&task).providers(&blocks).unwrap().build();
    let files = root.files();
    let values = files.iter().find(|file| file.name == "providers.auto.tfvars").unwrap();
    assert!(values.content.contains("alias  = \"a\"\n  region = \"first\""), "{}", values.content);
}

#[test]
fn names_that_terraform_refuses_are_found_before_it_is_asked() {
    let task = task(&json!({
        "providers": ["testProvider"],
        "variables": {"source": 1, "version": 1, "providers": 1, "count": 1, "for_each": 1,
            "lifecycle": 1, "depends_on": 1, "locals": 1, "services": 1, "a.b": 1, "fine": 1},
    }));
    let arguments = json!({"count": 1, "for_each": 1, "depends_on": 1, "source": 1, "version": 1,
        "a b": 1, "fine": 1});
    let blocks = [provider("testProvider", None, &arguments)];
    let root = RootModule::builder(&task).providers(&blocks).unwrap().build();
    let found = problems(root.check());
    assert_eq!(found.len(), 1 + 6 + 10, "{found:#?}");
    assert!(!found.iter().any(|problem| problem.contains("fine")), "{found:#?}");
}

#[test]
fn a_value_that_is_no_text_fails_by_its_name() {
    let task = task(&json!({"condition": kv_condition(&keys("a", true, ""), true)}));
    let mut inputs = TaskInputs::default();
    inputs.consul_kv = Some(vec![
        KvEntry { path: "a/fine".into(), value: b"x".to_vec() },
        KvEntry { path: "a/binary".into(), value: vec![0xff, 0xfe] },
    ]);
    let error = RootModule::builder(&task).build().tfvars(&inputs).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value of Consul key \"a/binary\" is not UTF-8 text, which Terraform cannot hold"
    );
    assert!(!error.is_retryable());
}

/// Spec: CTS33
#[test]
fn tasks_that_differ_only_in_name_have_templates_of_their_own() {
    let condition = services_condition(&api_and_web(), true);
    let template = |name: &str| {
        let task = task(&json!({"name": name, "condition": condition}));
        let files = RootModule::builder(&task).build().files();
        files.into_iter().find(|file| file.name == "terraform.tfvars.tmpl").unwrap().content
    };
    assert_ne!(template("one"), template("two"));
}

#[test]
fn secrets_stand_only_in_secret_files_and_never_in_debug() {
    let blocks = [provider("aws", None, &json!({"key": "pl4nted", "o": {"inner": "pl4nted"}}))];
    let backend = json!({"access_token": "pl4nted", "http_auth": "u:pl4nted"});
    let task = task(&json!({"providers": ["aws"], "variables": {"v": "pl4nted"}}));
    let root = RootModule::builder(&task)
        .providers(&blocks)
        .unwrap()
        .backend(Backend::new("consul", literals(&backend)).unwrap())
        .build();
    let mut planted = 0;
    for file in root.files() {
        assert!(!format!("{file:?}").contains("pl4nted"), "{}", file.name);
        if file.content.contains("pl4nted") {
            assert!(file.secret, "{} holds a secret", file.name);
            planted += 1;
        }
    }
    assert_eq!(planted, 2, "the control finds the planted secret in both values files");
    assert!(!format!("{root:?}").contains("pl4nted"));
}
