//! What a daemon has to outlast without a restart: a run that takes too long, and a token of
//! Consul that is replaced.

use std::fs;

use consul_watch::{
    WriteOptions,
    testing::{parts::Suite, real::Consul},
    types::{AclLink, AclToken, AclTokenRequest, HealthStatus},
};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::{
    end_to_end::instance,
    sync::SyncProcess,
    world::{World, applied, operate, slow_task},
};

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended_and_told_and_the_task_goes_on() {
    let world = World::new("lasting").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let client = world.client();
    client.catalog_register(&instance("web", 1, HealthStatus::Passing)).await.unwrap();
    let limits = "task {\n  timeout = \"15s\"\n  shutdown_timeout = \"1s\"\n  \
                  env {\n    WORD = \"pl4nted\"\n  }\n";
    let config = slow_task(folder, "slow", "web").replacen("task {\n", limits, 1);
    let mut sync = SyncProcess::new(folder, &world.address(), &config);
    fs::write(folder.join("slow/seconds"), "0").unwrap();
    sync.start_with(|command| world.set_path(command));
    sync.ran("slow", 1).await;
    let shown = operate(&sync, folder, &["task", "show", "slow"], "").await.said;
    assert!(
        shown.contains("Limits       a run takes 15s at most; ends within 1s after"),
        "{shown}"
    );
    assert!(shown.contains("Environment  WORD"), "{shown}");
    fs::write(folder.join("slow/seconds"), "300").unwrap();
    client.catalog_register(&instance("web", 2, HealthStatus::Passing)).await.unwrap();
    let message = sync.failed("slow").await;
    assert!(message.starts_with("task 'slow' ran longer than its timeout of 15s"), "{message}");
    // The next try finds neither a lock nor half a state in its way.
    fs::write(folder.join("slow/seconds"), "0").unwrap();
    sync.until("it is tried again", || applied(folder, "slow") == "web-1 web-2").await;
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
    assert!(!sync.log().contains("pl4nted") && !shown.contains("pl4nted"), "{}", sync.log());
}

/// The management token of the servers here.
const ROOT: &str = "11111111-2222-3333-4444-555555555555";

/// A token that may do everything, of its own.
async fn token(consul: &Consul) -> AclToken {
    let mut request = AclTokenRequest::new("a daemon's");
    request.policies = vec![AclLink::name("global-management")];
    consul.client().acl_token_create(&request, &WriteOptions::default()).await.unwrap()
}

/// Watches, the registration, and Terraform's state in Consul all go on with the new token.
#[tokio::test]
async fn a_daemon_goes_on_with_the_token_that_replaces_its_own() {
    const SUITE: Suite = Suite("lasting");
    let case = "a_daemon_goes_on_with_the_token_that_replaces_its_own";
    for part in SUITE.parts("consul", case) {
        let settings = json!({ "acl": {
            "enabled": true, "default_policy": "deny", "tokens": { "master": ROOT, "agent": ROOT },
        } });
        let Ok(consul) = Consul::start_with(&part.path, settings).await else {
            panic!("{} does not start", part.version);
        };
        let client = consul.client();
        client.catalog_register(&instance("web", 1, HealthStatus::Passing)).await.unwrap();
        let (first, second) = (token(&consul).await, token(&consul).await);
        let secret = |token: &AclToken| token.secret_id.clone().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let file = folder.join("token");
        fs::write(&file, secret(&first).expose_secret()).unwrap();
        let config = slow_task(folder, "slow", "web");
        let address = consul.address();
        let mut sync = SyncProcess::new(folder, &address, &config);
        let place = folder.join("sync.hcl");
        let text = fs::read_to_string(&place).unwrap();
        let line = format!("address = \"{address}\"\n");
        assert!(text.contains(&line));
        let with_file = format!("{line}  token_file = \"token\"\n");
        fs::write(&place, text.replace(&line, &with_file)).unwrap();
        fs::write(folder.join("slow/seconds"), "0").unwrap();
        sync.start();
        sync.ran("slow", 1).await;

        // As a sidecar replaces it: a new file takes the place of the old one, and only then the
        // old token goes.
        let new = folder.join("token.new");
        fs::write(&new, secret(&second).expose_secret()).unwrap();
        fs::rename(&new, &file).unwrap();
        client.acl_token_delete(&first.accessor_id, &WriteOptions::default()).await.unwrap();
        client.catalog_register(&instance("web", 2, HealthStatus::Passing)).await.unwrap();
        sync.until("the next instance is applied", || applied(folder, "slow") == "web-1 web-2")
            .await;
        assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
        for token in [&first, &second] {
            assert!(!sync.log().contains(secret(token).expose_secret()), "{}", sync.log());
        }
    }
}
