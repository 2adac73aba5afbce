//! The process is killed while Terraform applies; the next one converges.

use std::{fs, path::Path};

use consul_watch::types::HealthStatus;

use crate::{end_to_end::instance, parts, sync::SyncProcess};

fn slow_task(folder: &Path) -> String {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slow");
    let variables = folder.join("slow.tfvars");
    fs::write(&variables, format!("folder = \"{}\"\n", folder.display())).unwrap();
    format!(
        "task {{\n  name = \"slow\"\n  module = \"{}\"\n  variable_files = [\"{}\"]\n  \
         condition \"services\" {{\n    names = [\"web\"]\n  }}\n}}\n",
        module.display(),
        variables.display()
    )
}

fn applied(folder: &Path) -> String {
    fs::read_to_string(folder.join("instances")).unwrap_or_default().trim().to_owned()
}

#[tokio::test]
async fn a_process_killed_during_an_apply_is_made_good_by_the_next() {
    let Some(consul) = parts::consul_and_terraform("kill").await else { return };
    let client = consul.client();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    client.catalog_register(&instance("web", 1, HealthStatus::Passing)).await.unwrap();
    let mut sync = SyncProcess::new(folder, &consul.address(), &slow_task(folder));

    sync.start();
    sync.until("an apply has begun", || folder.join("begun").exists()).await;
    sync.end("-KILL").await;
    client.catalog_register(&instance("web", 2, HealthStatus::Passing)).await.unwrap();

    sync.start();
    sync.until("the state of Consul is applied", || applied(folder) == "web-1 web-2").await;
    sync.ran("slow", 1).await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
