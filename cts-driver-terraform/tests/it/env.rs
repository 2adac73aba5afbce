//! The environment variables of a task: they reach the tool, and nothing shows them.

use consul_watch::testing::Log;
use cts_tasks::ApplyRequest;
use serde_json::json;

use crate::{
    commands::fake,
    site::{Site, context, module, services, tools},
};

const PLANTED: &str = "pl4nted-v4lue";

fn environment(site: &Site, command: &str) -> Vec<String> {
    let text = std::fs::read_to_string(site.task_dir().join(format!("environment.{command}")));
    text.unwrap().lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn the_variables_of_a_task_reach_each_of_its_commands_with_their_templates_filled() {
    let site = fake("1.11.4");
    let path = std::env::var("PATH").unwrap();
    let driver = site.driver(&json!({"env": {
        "AWS_REGION": "eu-1", "WHERE": "at {{ env \"PATH\" }}", "HOME": "/elsewhere",
    }}));
    driver.prepare(&context()).await.unwrap();
    driver.apply(ApplyRequest::Inputs(&services(&[])), &context()).await.unwrap();
    for command in ["init", "apply"] {
        let found = environment(&site, command);
        for line in ["AWS_REGION=eu-1".to_owned(), format!("WHERE=at {path}")] {
            assert!(found.contains(&line), "{line}: {found:?}");
        }
        assert!(found.contains(&"HOME=/elsewhere".to_owned()), "it wins over what is inherited");
    }
}

#[tokio::test]
async fn a_broken_template_is_told_with_its_variable_and_its_task() {
    let site = fake("1.11.4");
    let task = site.task(&json!({"env": {"A": "{{ env \"B\" }}{{ end }}"}}));
    let error = site.factory().driver(&task).unwrap_err().to_string();
    assert!(error.contains("env.A of task test: {{ end }} is not known"), "{error}");
}

/// A token that was replaced in its file holds for the next command, without a restart.
#[tokio::test]
async fn each_command_gets_the_token_of_consul_that_its_file_holds_now() {
    let mut site = fake("1.11.4");
    site.driver_block = json!({});
    let file = site.path().join("token");
    site.consul.token_file = Some("token".into());
    std::fs::write(&file, "first\n").unwrap();
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    assert!(environment(&site, "init").contains(&"CONSUL_HTTP_TOKEN=first".to_owned()));
    std::fs::write(&file, "second").unwrap();
    let inputs = services(&[]);
    driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
    assert!(environment(&site, "apply").contains(&"CONSUL_HTTP_TOKEN=second".to_owned()));
    // The tool says then what it cannot read.
    std::fs::remove_file(&file).unwrap();
    driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
    let named = format!("CONSUL_HTTP_TOKEN_FILE={}", file.display());
    assert!(environment(&site, "apply").contains(&named), "{:?}", environment(&site, "apply"));
}

#[tokio::test]
async fn an_error_of_a_command_does_not_repeat_a_value() {
    let site = fake("1.11.4");
    let driver = site.driver(&json!({"env": {"TOKEN": PLANTED, "ON": "1"}}));
    driver.prepare(&context()).await.unwrap();
    std::fs::write(site.task_dir().join("fail.apply"), format!("1 error: {PLANTED} is wrong\n"))
        .unwrap();
    let failed = driver.apply(ApplyRequest::Inputs(&services(&[])), &context()).await;
    let error = failed.unwrap_err().to_string();
    // Short values are no secrets, and a text without them could not be read.
    assert!(error.contains("1 error: (sensitive value) is wrong"), "{error}");
}

/// The tool's own report of a provisioner that failed repeats what that printed, which stands in
/// its stream, and not among what it prints for people.
#[tokio::test]
async fn a_real_tool_gets_the_variables_and_its_report_hides_them() {
    let case = "a_real_tool_gets_the_variables_and_its_report_hides_them";
    for tool in tools(case) {
        let mut site = Site::new(&tool);
        site.driver_block = json!({"log": true, "backend": {"local": {}}});
        let log = Log::start();
        let driver = site.driver(&json!({
            "module": module("environment"), "env": {"GREETING": PLANTED},
        }));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(site.rules(), [format!("a={PLANTED}")]);
        assert!(!log.text().contains(PLANTED), "{}", log.text());

        let failing = site.path().join("failing");
        std::fs::create_dir(&failing).unwrap();
        std::fs::write(
            failing.join("main.tf"),
            "variable \"services\" {}\nvariable \"directory\" {}\n\
             resource \"terraform_data\" \"fails\" {\n  provisioner \"local-exec\" {\n    \
             command = \"printenv GREETING; exit 1\"\n  }\n}\n",
        )
        .unwrap();
        let driver = site.driver(&json!({"module": failing, "env": {"GREETING": PLANTED}}));
        driver.prepare(&context()).await.unwrap();
        let failed = driver.apply(ApplyRequest::Inputs(&inputs), &context()).await;
        let error = failed.unwrap_err().to_string();
        assert!(!error.contains(PLANTED) && error.contains("(sensitive value)"), "{error}");
        assert!(!log.text().contains(PLANTED), "{}", log.text());
    }
}
