//! What the binary says and does when it is given what it cannot use.

use std::{fs, path::Path, process::Output};

use tokio::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_consul-terraform-sync");

async fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(folder).kill_on_drop(true);
    // No Terraform, and no Consul of somebody's.
    command.env_clear().env("PATH", folder).env("HOME", folder);
    command.output().await.unwrap()
}

/// Runs on a configuration that cannot be used; returns what it said.
async fn refused(config: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sync.hcl"), config).unwrap();
    let output = run(folder.path(), &["start", "-config-file", "sync.hcl"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(15), "{said}");
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing is created beside the configuration");
    said
}

#[tokio::test]
async fn a_file_that_does_not_parse_is_refused_with_its_place() {
    let said = refused("port = 8558\ntask {\n  name = \"a\"\n").await;
    assert!(said.contains("sync.hcl:"), "{said}");
}

/// Spec: CTS5
#[tokio::test]
async fn an_unknown_key_is_refused_with_its_place() {
    let said = refused("port = 8558\n\nprot = 1\n").await;
    assert!(said.contains("'sync.hcl' has invalid keys: prot"), "{said}");
    assert!(said.contains("sync.hcl:3:1"), "{said}");
}

#[tokio::test]
async fn a_wrong_type_is_refused_with_its_place() {
    let said = refused("port = [\"a\"]\n").await;
    assert!(said.contains("sync.hcl:1:8"), "{said}");
}

#[tokio::test]
async fn a_task_that_stands_twice_is_refused() {
    let task = "task {\n  name = \"a\"\n  module = \"./m\"\n  condition \"services\" {\n    names = [\"x\"]\n  }\n}\n";
    let said = refused(&format!("{task}{task}")).await;
    assert!(said.contains("duplicate task name: a"), "{said}");
}

#[tokio::test]
async fn a_task_without_a_module_is_refused() {
    let said = refused(
        "task {\n  name = \"a\"\n  condition \"services\" {\n    names = [\"x\"]\n  }\n}\n",
    )
    .await;
    assert!(said.contains("module for the task is required"), "{said}");
}

/// Spec: CTS3
#[tokio::test]
async fn a_missing_file_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["start", "-config-file", "gone.hcl"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(15), "{said}");
    assert!(said.contains("gone.hcl"), "{said}");
}

#[tokio::test]
async fn flags_that_are_missing_or_unknown_have_their_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["start"]).await;
    assert_eq!(output.status.code(), Some(13));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no config file provided"), "{said}");
    assert_eq!(run(folder.path(), &["start", "-wrong"]).await.status.code(), Some(14));
    let version = run(folder.path(), &["-version"]).await;
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8(version.stdout).unwrap().starts_with("consul-terraform-sync v"));
}

#[tokio::test]
async fn storage_is_reset_only_where_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sync.hcl"), "port = 0\n").unwrap();
    let output = run(folder.path(), &["start", "-config-file", "sync.hcl", "-reset-storage"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(15), "{said}");
    assert!(said.contains("without high availability"), "{said}");
}

#[tokio::test]
async fn validate_tells_every_mistake_at_once_and_touches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = "log_level = \"LOUD\"\nprot = 1\nsyslog {\n  facility = \"local9\"\n}\n\
                  task {\n  name = \"1a\"\n  condition \"consul-kv\" {\n  }\n}\n";
    fs::write(folder.path().join("sync.hcl"), config).unwrap();
    let output = run(folder.path(), &["validate", "-config-file", "sync.hcl"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(15), "{said}");
    for part in [
        "sync.hcl:1:13",
        "Invalid log level: LOUD",
        "sync.hcl:2:1",
        "has invalid keys: prot",
        "sync.hcl:4:14",
        "invalid syslog facility: local9",
        "4 |   facility = \"local9\"\n  |              ^^^^^^^^",
        "a task name must start with a letter or underscore",
        "module for the task is required",
        "path is required for consul-kv condition",
        "The configuration cannot be used: 6 errors.",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn validate_says_what_a_usable_configuration_holds() {
    let folder = tempfile::tempdir().unwrap();
    let config = "task {\n  name = \"a\"\n  source = \"./m\"\n  condition \"schedule\" {\n    \
                  cron = \"@daily\"\n  }\n}\n";
    fs::write(folder.path().join("sync.hcl"), config).unwrap();
    let output = run(folder.path(), &["validate", "-config-dir", "."]).await;
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said, "The configuration is valid: 1 task, 1 warning.\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("sync.hcl:3:12") && said.contains("rename it to module"), "{said}");
}

#[tokio::test]
async fn the_log_is_json_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sync.hcl"), "port = 0\n").unwrap();
    let output =
        run(folder.path(), &["start", "-config-file=sync.hcl", "-log-json", "-inspect-task=none"])
            .await;
    assert_eq!(output.status.code(), Some(15));
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert_eq!((&last["@level"], &last["@module"]), (&"error".into(), &"cli".into()), "{said}");
    assert_eq!(last["@message"], "task not found: none");
}

#[tokio::test]
async fn completion_is_installed_for_the_user_and_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let rc = folder.path().join(".bashrc");
    fs::write(&rc, "alias l=ls\n").unwrap();
    let output = run(folder.path(), &["-autocomplete-install"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = format!("complete -o default -C {BINARY} consul-terraform-sync");
    assert!(fs::read_to_string(&rc).unwrap().contains(&line));
    let output = run(folder.path(), &["-autocomplete-uninstall"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_to_string(&rc).unwrap(), "alias l=ls\n");
}

/// Spec: HA40
#[tokio::test]
async fn a_local_backend_is_refused_in_a_cluster() {
    let said = refused(
        "high_availability {\n  cluster {\n    name = \"a\"\n  }\n}\n\
         driver \"terraform\" {\n  backend \"local\" {}\n}\n",
    )
    .await;
    assert!(
        said.contains("the backend \"local\" of driver \"terraform\" is not supported"),
        "{said}"
    );
}

#[tokio::test]
async fn a_cluster_without_a_name_is_refused_with_its_place() {
    let said = refused("high_availability {\n  cluster {\n    name = \"a/b\"\n  }\n}\n").await;
    assert!(said.contains("\"a/b\" cannot be a name") && said.contains("sync.hcl:3:"), "{said}");
    let said = refused("high_availability {\n  cluster {\n  }\n}\n").await;
    assert!(said.contains("name is missing"), "{said}");
}

#[tokio::test]
async fn once_mode_is_refused_in_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let config = "high_availability {\n  cluster {\n    name = \"a\"\n  }\n}\n";
    fs::write(folder.path().join("sync.hcl"), config).unwrap();
    let output = run(folder.path(), &["start", "-once", "-config-file", "sync.hcl"]).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("once mode is not supported with high availability"), "{said}");
    assert!(!output.status.success());
}
