//! The built binary with a real Consul and a real OpenTofu or Terraform.

use std::{fs, path::Path};

use consul_watch::{
    Client, QueryOptions,
    types::{CatalogDeregistration, CatalogRegistration, HealthCheck, HealthStatus, Service},
};

use crate::{
    parts,
    sync::{SyncProcess, firewall_module},
};

/// One task that keeps `<name>.rules` in `folder`.
pub(crate) fn firewall_task(folder: &Path, name: &str, services: &[&str]) -> String {
    let variables = folder.join(format!("{name}.tfvars"));
    let rules = folder.join(format!("{name}.rules"));
    fs::write(&variables, format!("rules_file = \"{}\"\n", rules.display())).unwrap();
    format!(
        "task {{\n  name = \"{name}\"\n  module = \"{}\"\n  variable_files = [\"{}\"]\n  \
         condition \"services\" {{\n    names = {services:?}\n  }}\n}}\n",
        firewall_module().display(),
        variables.display()
    )
}

/// An instance of a service on a node that no agent looks after.
pub(crate) fn instance(service: &str, number: u16, status: HealthStatus) -> CatalogRegistration {
    let id = format!("{service}-{number}");
    let mut instance = Service::new(service, &id);
    instance.address = format!("10.0.0.{number}");
    instance.port = i64::from(8000 + number);
    let alive = HealthCheck::of_service(&id, format!("{id}-alive"), status);
    CatalogRegistration::new("outside", "10.0.0.1").with_service(instance).with_check(alive)
}

async fn put(consul: &Client, service: &str, number: u16, status: HealthStatus) {
    consul.catalog_register(&instance(service, number, status)).await.unwrap();
}

async fn remove(consul: &Client, service: &str, number: u16) {
    let gone = CatalogDeregistration::service("outside", format!("{service}-{number}"));
    consul.catalog_deregister(&gone).await.unwrap();
}

/// The instances in a file of rules, such as `web-1`.
fn rules(folder: &Path, task: &str) -> Vec<String> {
    let text = fs::read_to_string(folder.join(format!("{task}.rules"))).unwrap_or_default();
    let id = |line: &str| Some(line.split(", ").nth(1)?.split(' ').next()?.to_owned());
    text.lines().filter_map(id).collect()
}

/// Spec: CTS37, CTS42, CTS64, CTS69
#[tokio::test]
async fn what_changes_in_consul_is_applied_by_the_tasks_that_depend_on_it() {
    let Some(mut consul) = parts::consul_and_terraform("end_to_end").await else { return };
    let client = consul.client();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for service in ["web", "api", "db"] {
        put(&client, service, 1, HealthStatus::Passing).await;
    }
    let config =
        firewall_task(folder, "front", &["web", "api"]) + &firewall_task(folder, "store", &["db"]);
    let mut sync = SyncProcess::new(folder, &consul.address(), &config);
    sync.start();

    // Both are applied at the start, and their state is in Consul.
    sync.ran("front", 1).await;
    sync.ran("store", 1).await;
    assert_eq!(rules(folder, "front"), ["api-1", "web-1"]);
    assert_eq!(rules(folder, "store"), ["db-1"]);
    for task in ["front", "store"] {
        let key = format!("consul-terraform-sync/terraform-env:{task}");
        let state = client.kv_get(&key, &QueryOptions::default()).await.unwrap().value;
        assert!(state.is_some(), "{key}");
    }

    // Each change runs the task that depends on it, and no other.
    put(&client, "web", 2, HealthStatus::Passing).await;
    sync.ran("front", 2).await;
    assert_eq!(rules(folder, "front"), ["api-1", "web-1", "web-2"]);
    put(&client, "db", 1, HealthStatus::Critical).await;
    sync.ran("store", 2).await;
    assert_eq!(rules(folder, "store"), Vec::<String>::new());
    remove(&client, "api", 1).await;
    sync.ran("front", 3).await;
    assert_eq!(rules(folder, "front"), ["web-1", "web-2"]);

    // The same registration again, and a service that nobody asked for, run
    // nothing: the next run of each task is the one that the change after it makes.
    put(&client, "web", 2, HealthStatus::Passing).await;
    put(&client, "other", 1, HealthStatus::Passing).await;
    put(&client, "db", 1, HealthStatus::Passing).await;
    sync.ran("store", 3).await;
    sync.ran("front", 3).await;

    // Nothing is missed while Consul is away.
    consul.restart().await.unwrap();
    put(&client, "web", 3, HealthStatus::Passing).await;
    remove(&client, "web", 1).await;
    sync.until("the changes after the restart are applied", || {
        rules(folder, "front") == ["web-2", "web-3"]
    })
    .await;
    assert_eq!(rules(folder, "store"), ["db-1"], "{}", sync.log());

    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
