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
