//! What a configuration may say.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use cts_driver_terraform::{
    VersionConstraint,
    dynamic::{Reference, ValueSource, Values},
};
use cts_driver_tfc::{Settings, TfcFactory, TfcKind, WorkspaceBlock, testing::TestTfc};
use cts_tasks::{
    ConfigValue, ConsulConfig, DriverFactory as _, DriverKind as _, DriverSettings, Severity,
    Source, Task,
    config::{Loader, Registry, TaskBlock},
    testing::task,
    wire::TaskDocument,
};
use serde_json::{Value, json};

use crate::scene::{read, web, with_block};

fn block(body: Value) -> TaskBlock {
    let name = "web".to_owned().try_into().unwrap();
    TaskBlock::new(name, "terraform_cloud_workspace", ConfigValue::from(body))
}

/// The mistakes, then the warnings.
fn findings(more: &Value, blocks: &[TaskBlock]) -> (Vec<String>, Vec<String>) {
    let texts = |found: Vec<cts_tasks::Diagnostic>| {
        found.into_iter().map(|found| found.message).collect::<Vec<_>>()
    };
    match read(more, blocks) {
        Ok((_, warnings)) => (Vec::new(), texts(warnings)),
        Err(errors) => (texts(errors), Vec::new()),
    }
}

/// Case TFC1: no block, an empty one, `remote`, and `agent` with id, name or both (with a warning)
/// are valid.
#[test]
fn a_workspace_runs_remotely_or_on_agents_of_a_pool() {
    for (body, warns) in [
        (json!({}), false),
        (json!({"execution_mode": "", "agent_pool_id": "", "terraform_version": ""}), false),
        (json!({"execution_mode": "remote"}), false),
        (json!({"execution_mode": "agent", "agent_pool_id": "apool-1"}), false),
        (json!({"execution_mode": "agent", "agent_pool_name": "p"}), false),
        (json!({"execution_mode": "agent", "agent_pool_id": "a", "agent_pool_name": "p"}), true),
    ] {
        let (errors, warnings) = findings(&json!({}), &[block(body.clone())]);
        assert_eq!((errors, warnings.len()), (Vec::new(), usize::from(warns)), "{body}");
        if warns {
            assert_eq!(
                warnings,
                [
                    "agent_pool_id and agent_pool_name are both configured, agent_pool_id will be used"
                ]
            );
        }
    }
    assert!(read(&json!({}), &[]).is_ok(), "no block at all");
}

/// Case TFC2: the mode `local`, `agent` without a pool, and `remote` with a pool are errors.
#[test]
fn modes_and_pools_that_do_not_go_together_are_refused() {
    for (body, expected) in [
        (
            json!({"execution_mode": "local"}),
            "execution mode 'local' not supported for CTS, use 'remote' or 'agent' instead",
        ),
        (
            json!({"execution_mode": "agent"}),
            "agent_pool_id or agent_pool_name is required if execution mode is 'agent'",
        ),
        (
            json!({"execution_mode": "remote", "agent_pool_id": "a"}),
            "agent pool configured when execution mode is not 'agent'",
        ),
        (
            json!({"execution_mode": "remote", "agent_pool_name": "a"}),
            "agent pool configured when execution mode is not 'agent'",
        ),
        (
            json!({"agent_pool_name": "a"}),
            "agent pool configured when execution mode is not 'agent'",
        ),
    ] {
        let (errors, _) = findings(&json!({}), &[block(body.clone())]);
        assert_eq!(errors, [format!("{expected} (task \"web\")")], "{body}");
    }
    let (errors, _) =
        findings(&json!({}), &[block(json!({"agent_pol": "x", "execution_mode": []}))]);
    assert_eq!(errors.len(), 2, "{errors:?}");
}

/// Deviation from the table: without `supported_versions` no version is too new.
///
/// Case TFC3: `terraform_version` is an exact, supported version; `1.0` and `abc` are errors.
#[test]
fn versions_are_exact_and_supported() {
    let upper = json!({"supported_versions": ">= 0.13.0, <= 1.14.3"});
    let errors = |version: &str, more: &Value| {
        findings(more, &[block(json!({"terraform_version": version}))]).0.join(";")
    };
    assert_eq!(errors("1.9.4", &upper), "");
    for (version, expected) in [
        ("1.0", "provide the exact Terraform version to install: 1.0"),
        ("abc", "not a version of three parts: \"abc\""),
        (
            "0.12.12",
            "Terraform version is not supported by Consul-Terraform-Sync, try updating to a different version (>= 0.13.0, <= 1.14.3): 0.12.12",
        ),
        ("1.15.0", "try updating to a different version (>= 0.13.0, <= 1.14.3): 1.15.0"),
        (
            "0.14.0-beta1",
            "try updating to a different version (>= 0.13.0, <= 1.14.3): 0.14.0-beta1",
        ),
    ] {
        assert!(errors(version, &upper).contains(expected), "{}", errors(version, &upper));
    }
    assert_eq!(errors("1.15.0", &json!({})), "");
    for version in ["0.12.12", "0.14.0-beta1", "1.15.0-rc1"] {
        let error = errors(version, &json!({}));
        assert!(error.contains(&format!("(>= 0.13.0): {version}")), "{error}");
    }
}

/// Case TFC4: of two blocks, the later one's values stand over the earlier one's, and an empty one
/// keeps them.
/// Case TFC5: a copy of a block shares nothing with it.
#[test]
fn later_settings_stand_over_earlier_ones_and_copies_are_their_own() {
    let fields = ["execution_mode", "agent_pool_id", "agent_pool_name", "terraform_version"];
    let of = |pairs: &[(&str, &str)]| WorkspaceBlock::of(&with_block(pairs));
    for field in fields {
        let (one, two, none) = (of(&[(field, "1")]), of(&[(field, "2")]), of(&[]));
        assert_eq!(one.merged(&two), two, "{field}");
        assert_eq!(one.merged(&none), one, "{field}");
        assert_eq!(none.merged(&two), two, "{field}");
        let mut copy = one.clone();
        for text in [
            &mut copy.execution_mode,
            &mut copy.agent_pool_id,
            &mut copy.agent_pool_name,
            &mut copy.terraform_version,
        ] {
            text.clear();
        }
        assert_eq!((one, copy), (of(&[(field, "1")]), none), "a copy shares nothing");
    }
    assert!(WorkspaceBlock::of(&web()).is_empty() && WorkspaceBlock::of(&web()).clone().is_empty());
}

#[test]
fn the_deprecated_version_of_a_task_counts_where_the_block_says_nothing() {
    let mut task = with_block(&[]);
    task.driver_blocks.insert("terraform_version".to_owned(), "1.2.3".into());
    assert_eq!(WorkspaceBlock::of(&task).terraform_version, "1.2.3");
    let mut task = with_block(&[("terraform_version", "1.9.4")]);
    task.driver_blocks.insert("terraform_version".to_owned(), "1.2.3".into());
    assert_eq!(WorkspaceBlock::of(&task).terraform_version, "1.9.4");
    assert!(WorkspaceBlock::of(&task).problems(&VersionConstraint::default()).is_empty());
}

/// Case TFC8: the prefix `cts_` gives `cts_task_firewall`, the old `workspace_prefix = "cts"` gives
/// `cts-task-firewall`.
#[test]
fn names_of_workspaces_have_a_prefix() {
    let named = |more: Value| {
        let (settings, warnings) = read(&more, &[]).unwrap();
        (settings.workspace_name(&task("task_firewall")), warnings.len())
    };
    assert_eq!(named(json!({"workspaces": {"prefix": "cts_"}})), ("cts_task_firewall".into(), 0));
    assert_eq!(named(json!({"workspace_prefix": "cts"})), ("cts-task_firewall".into(), 1));
    assert_eq!(named(json!({})), ("task_firewall".into(), 0));
    let (errors, _) =
        findings(&json!({"workspaces": {"prefix": "a"}, "workspace_prefix": "b"}), &[]);
    assert!(errors[0].contains("not both"), "{errors:?}");
}

#[test]
fn every_mistake_is_reported_with_what_is_right() {
    let consul = ConsulConfig::default();
    let empty = DriverSettings::new(&consul, Path::new("/"));
    let missing = Settings::read_with(empty, &|_| None, &mut Vec::new()).unwrap_err();
    let reported: Vec<String> = missing.iter().map(|one| one.message.clone()).collect();
    assert_eq!(reported.len(), 3, "{reported:?}");
    for key in ["organization", "token", "required_providers"] {
        assert!(reported.iter().any(|text| text.contains(key)), "{key} in {reported:?}");
    }
    for (more, part) in [
        (json!({"hostname": "ftp://x"}), "hostname: "),
        (
            json!({"workspaces": {"tags": ["a b"]}}),
            "workspace tag in 'tags' can only have letters, numbers",
        ),
        (json!({"workspaces": {"tags": "x", "tag": []}}), "workspaces.tag"),
        (json!({"surprise": 1}), "has invalid keys: driver.terraform-cloud.surprise"),
        (json!({"tls": {"verify": "maybe"}}), "verify must be true or false"),
        (json!({"run": {"poll_min": "10s"}}), "run.poll_min must be"),
        (json!({"run": {"timeout": "soon"}}), "timeout: "),
        (json!({"delete_workspace": "always"}), "delete_workspace must be"),
        (json!({"requests_per_second": 1.5}), "requests_per_second must be a whole number"),
        (json!({"required_providers": {"x": 1}}), "x must be a version or an object"),
    ] {
        let (errors, _) = findings(&more, &[]);
        assert!(errors.iter().any(|error| error.contains(part)), "{more}: {errors:?}");
    }
}

#[test]
fn the_environment_stands_over_the_file() {
    let body = ConfigValue::from(json!({
        "hostname": "file.example.com", "organization": "file", "token": "file", "required_providers": {},
    }));
    let consul = ConsulConfig::default();
    let mut settings = DriverSettings::new(&consul, Path::new("/"));
    settings.body = Some(&body);
    let environment = |name: &str| match name {
        "TFC_HOSTNAME" => Some("https://env.example.com/".to_owned()),
        "TFC_ORGANIZATION" => Some("env".to_owned()),
        _ => None,
    };
    let read = Settings::read_with(settings, &environment, &mut Vec::new()).unwrap();
    assert_eq!(read.organization(), "env");
    assert_eq!(read.client_options().host.to_string(), "https://env.example.com");
}

#[tokio::test(start_paused = true)]
async fn a_token_in_the_environment_stands_over_that_of_the_file() {
    let tfc = TestTfc::new();
    for (in_file, in_environment, works) in [
        ("wrong", TestTfc::TOKEN, true),
        (TestTfc::TOKEN, "wrong", false),
        (TestTfc::TOKEN, "", true),
    ] {
        let body = ConfigValue::from(json!({
            "organization": TestTfc::ORGANIZATION, "token": in_file, "required_providers": {},
        }));
        let consul = ConsulConfig::default();
        let mut settings = DriverSettings::new(&consul, Path::new("/"));
        settings.body = Some(&body);
        let environment = |name: &str| (name == "TFC_TOKEN").then(|| in_environment.to_owned());
        let read = Settings::read_with(settings, &environment, &mut Vec::new()).unwrap();
        let started = TfcFactory::new(read, Some(Arc::new(tfc.clone()))).start().await;
        assert_eq!(started.is_ok(), works, "{in_file} {in_environment}: {started:?}");
    }
}

#[test]
fn the_configuration_of_the_readme_is_accepted() {
    let readme = include_str!("../../README.md");
    let text = readme.split("```hcl\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let loaded = load(text).unwrap_or_else(|errors| {
        panic!("{}", errors.iter().map(cts_tasks::Diagnostic::render).collect::<String>())
    });
    let block = WorkspaceBlock::of(&loaded.config.tasks[0]);
    assert_eq!((block.execution_mode.as_str(), block.agent_pool_name.as_str()), ("agent", "pool"));
    // A key that is not known would have been reported.
    let wrong = text.replace("poll_min ", "poll_most ");
    assert!(load(&wrong).is_err());
}

fn load(text: &str) -> Result<cts_tasks::config::Loaded, Vec<cts_tasks::Diagnostic>> {
    let source = Source { path: "sync.hcl".into(), text: text.to_owned() };
    let registry = Registry::new().driver(Arc::new(TfcKind::default()));
    Loader::new(registry)
        .environment(|_| None)
        .hostname(|| Ok("host".to_owned()))
        .base_dir("/nowhere")
        .load_sources(vec![source])
}

const FILE: &str = r#"
driver "terraform-cloud" {
  hostname     = "https://tfe.example.com"
  organization = "my-org"
  token        = "s3cr3t-token"
  workspaces {
    prefix = "cts_"
    tags   = ["team-a"]
  }
  required_providers {
    myprovider = { source = "namespace/myprovider", version = "1.3.0" }
  }
}
task {
  name   = "web"
  module = "org/rules/cts"
  condition "services" { names = ["web"] }
  terraform_cloud_workspace {
    execution_mode  = "agent"
    agent_pool_name = "pool"
  }
}
"#;

/// Case TFC6: `terraform_cloud_workspace` survives a round trip through a task's JSON.
#[test]
fn a_tasks_block_survives_files_and_json() {
    let loaded = load(FILE).unwrap();
    let task = &loaded.config.tasks[0];
    let block = WorkspaceBlock::of(task);
    assert_eq!((block.execution_mode.as_str(), block.agent_pool_name.as_str()), ("agent", "pool"));
    let json = serde_json::to_value(task).unwrap();
    let back: Task = serde_json::from_value(json).unwrap();
    assert_eq!(back, *task);
    // The same through the rules of the API; without a block none is added.
    let body = json!({"name": "db", "module": "m", "condition": {"services": {"names": ["db"]}},
        "terraform_cloud_workspace": {"execution_mode": "remote", "agent_pool_id": ""}});
    let added = loaded.rules.check(&ConfigValue::from(body)).unwrap();
    assert_eq!(WorkspaceBlock::of(&added).execution_mode, "remote");
    let plain = json!({"name": "db", "module": "m", "condition": {"services": {"names": ["db"]}}});
    assert!(loaded.rules.check(&ConfigValue::from(plain)).unwrap().driver_blocks.is_empty());
    // Answers of the API name a block that says something, and no other.
    let shown = |task: &Task| serde_json::to_value(TaskDocument::from(task)).unwrap();
    assert_eq!(shown(&added)["terraform_cloud_workspace"]["execution_mode"], "remote");
    for empty in [json!({}), json!({"execution_mode": "", "agent_pool_id": ""})] {
        let body = json!({"name": "db", "module": "m",
            "condition": {"services": {"names": ["db"]}}, "terraform_cloud_workspace": empty});
        let task = loaded.rules.check(&ConfigValue::from(body)).unwrap();
        let shown = shown(&task);
        assert!(shown.get("terraform_cloud_workspace").is_none(), "{shown}");
    }
    // What an answer shows is what a request may say.
    let whole = json!({"execution_mode": "agent", "agent_pool_id": "apool-1",
        "agent_pool_name": "pool", "terraform_version": "1.9.4"});
    let mut body = json!({"name": "db", "module": "m", "condition": {"services": {"names": ["db"]}},
        "terraform_cloud_workspace": whole.clone()});
    let first = loaded.rules.check(&ConfigValue::from(body.clone())).unwrap();
    body["terraform_cloud_workspace"] = shown(&first)["terraform_cloud_workspace"].clone();
    assert_eq!(body["terraform_cloud_workspace"], whole);
    let second = loaded.rules.check(&ConfigValue::from(body)).unwrap();
    assert_eq!(WorkspaceBlock::of(&second), WorkspaceBlock::of(&first));
    let wrong = json!({"name": "db", "module": "m", "condition": {"services": {"names": ["db"]}},
        "terraform_cloud_workspace": {"execution_mode": "local"}});
    let wrong = loaded.rules.check(&ConfigValue::from(wrong)).unwrap_err();
    assert!(wrong[0].message.contains("execution mode 'local' not supported"), "{wrong:?}");
}

#[test]
fn mistakes_in_a_file_have_their_place() {
    let text = FILE.replace("execution_mode  = \"agent\"", "execution_mode  = \"local\"");
    let errors = load(&text).unwrap_err();
    let error = errors.iter().find(|error| error.severity == Severity::Error).unwrap();
    let shown = error.render();
    assert!(shown.contains("sync.hcl:") && shown.contains("execution mode 'local'"), "{shown}");
}

#[test]
fn the_token_is_never_shown() {
    // The search finds what stands in the open.
    assert!(FILE.contains("s3cr3t"));
    let loaded = load(FILE).unwrap();
    let shown = [
        format!("{:?}", loaded.config),
        format!("{:?}", loaded.driver),
        loaded.config.to_redacted_json().to_string(),
        format!("{:?}", read(&json!({"token": "s3cr3t"}), &[]).unwrap().0),
        format!("{:?}", TestTfc::new().client()),
    ];
    for text in shown {
        assert!(!text.contains("s3cr3t") && !text.contains(TestTfc::TOKEN), "{text}");
    }
}

#[test]
fn the_schema_of_a_tasks_block_names_every_setting() {
    let kind = TfcKind::default();
    assert_eq!(kind.label(), "terraform-cloud");
    for block in kind.task_blocks() {
        assert!(kind.task_block_schema(block).is_some(), "{block}");
    }
    let schema = kind.task_block_schema("terraform_cloud_workspace").unwrap();
    let mut fields: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["agent_pool_id", "agent_pool_name", "execution_mode", "terraform_version"]);
    assert_eq!(kind.task_block_schema("other"), None);
}

#[test]
fn a_template_may_stand_in_the_token_and_nowhere_else_in_the_block() {
    let template = r#""{{ env \"TEAM_TOKEN\" }}""#;
    load(&FILE.replace("\"s3cr3t-token\"", template)).unwrap();
    let elsewhere = load(&FILE.replace("\"my-org\"", template)).unwrap_err();
    assert!(
        elsewhere[0].message.contains("only supported for terraform_provider"),
        "{elsewhere:?}"
    );
}

/// Knows one value.
#[derive(Debug)]
struct OneToken;

#[async_trait::async_trait]
impl ValueSource for OneToken {
    async fn look_up(&self, wanted: &BTreeSet<Reference>) -> cts_driver_terraform::Result<Values> {
        let known = |reference: &Reference| (reference.clone(), TestTfc::TOKEN.to_owned().into());
        Ok(wanted.iter().map(known).collect())
    }
}

#[tokio::test(start_paused = true)]
async fn a_template_is_replaced_before_the_first_request() {
    let (settings, _) = read(&json!({"token": "{{ key \"teams/a\" }}"}), &[]).unwrap();
    let tfc = TestTfc::new();
    let settings = settings.with_values(Arc::new(OneToken));
    TfcFactory::new(settings, Some(Arc::new(tfc.clone()))).start().await.unwrap();
    assert!(tfc.requests().iter().all(|request| request.status < 300));
}
