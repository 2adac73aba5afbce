//! What the binary does when what it needs is not there, or fails.

use std::{fs, path::Path};

use consul_watch::{testing::TestConsul, types::HealthStatus};

use crate::{
    end_to_end::{firewall_task, instance},
    parts,
    sync::SyncProcess,
};

#[tokio::test]
async fn a_missing_terraform_is_told_with_where_it_was_looked_for() {
    let consul = TestConsul::new().serve().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = firewall_task(folder, "front", &["web"]);
    let mut sync = SyncProcess::new(folder, &consul.address(), &config);
    sync.start_with(|command| {
        command.env("PATH", "/nowhere/at/all");
    });
    assert_eq!(sync.ended().await.code(), Some(16));
    let log = sync.log();
    for part in ["terraform", "tofu", "on PATH"] {
        assert!(log.contains(part), "{part} in {log}");
    }
    assert!(!folder.join("sync-tasks").exists(), "nothing is created");
}

#[tokio::test]
async fn a_consul_that_cannot_be_reached_is_waited_for_in_the_open() {
    let folder = tempfile::tempdir().unwrap();
    let config = firewall_task(folder.path(), "front", &["web"]);
    // Port 9 discards, where it is served at all; nothing listens here.
    let mut sync = SyncProcess::new(folder.path(), "127.0.0.1:9", &config);
    sync.start();
    sync.until("a second try is announced", || {
        sync.log().matches("Consul is not ready, trying again").count() >= 2
    })
    .await;
    let log = sync.log();
    assert!(log.contains("address=127.0.0.1:9") && log.contains("delay_ms=4000"), "{log}");
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// A module that fails as soon as there are two instances.
fn picky_task(folder: &Path) -> String {
    let module = folder.join("picky");
    fs::create_dir_all(&module).unwrap();
    fs::write(
        module.join("main.tf"),
        r#"variable "services" {
  type = map(object({ id = string }))
}
resource "terraform_data" "one" {
  input = length(var.services)
  lifecycle {
    precondition {
      condition     = length(var.services) < 2
      error_message = "One instance is enough."
    }
  }
}
"#,
    )
    .unwrap();
    format!(
        "task {{\n  name = \"picky\"\n  module = \"{}\"\n  condition \"services\" {{\n    \
         names = [\"web\"]\n  }}\n}}\n",
        module.display()
    )
}

#[tokio::test]
async fn a_failing_terraform_is_told_in_the_event_and_other_tasks_go_on() {
    let Some(consul) = parts::consul_and_terraform("trouble").await else { return };
    let client = consul.client();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for service in ["web", "db"] {
        client.catalog_register(&instance(service, 1, HealthStatus::Passing)).await.unwrap();
    }
    let config = picky_task(folder) + &firewall_task(folder, "store", &["db"]);
    let mut sync = SyncProcess::new(folder, &consul.address(), &config);
    sync.start();
    sync.ran("picky", 1).await;
    sync.ran("store", 1).await;

    client.catalog_register(&instance("web", 2, HealthStatus::Passing)).await.unwrap();
    let failed = sync.failed("picky").await;
    assert!(failed.contains("One instance is enough."), "{failed}");
    assert!(failed.contains("error tf-apply for 'picky'"), "{failed}");
    let status = sync.get("/v1/status").await.unwrap();
    assert_eq!(status["task_summary"]["status"]["errored"], 1, "{status}");

    client.catalog_register(&instance("db", 2, HealthStatus::Passing)).await.unwrap();
    sync.ran("store", 2).await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
