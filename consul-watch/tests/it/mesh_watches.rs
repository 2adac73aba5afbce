//! Watches of the mesh's objects, on the double.

use std::sync::Arc;

use consul_watch::{
    Watch, Watcher, WriteOptions,
    query::{
        CaRoots, ConfigEntries, ConfigEntry, ConnectLeaf, IntentionMatch, Intentions, ServerCaRoots,
    },
    testing::TestConsul,
    types::{self, Intention, IntentionAction},
};

fn write() -> WriteOptions {
    WriteOptions::default()
}

async fn next<T: Send + Sync + 'static>(watch: &mut Watch<T>) -> Arc<T> {
    watch.changed().await.expect("a snapshot").data
}

#[tokio::test(start_paused = true)]
async fn configuration_entries() {
    let consul = TestConsul::new();
    let client = consul.client();
    let watcher = Watcher::new(client.clone());
    let mut one = watcher.watch(ConfigEntry::new("service-defaults", "web"));
    let mut all = watcher.watch(ConfigEntries::new("service-defaults"));
    assert!(next(&mut one).await.is_none() && next(&mut all).await.is_empty());
    let mut entry = types::ConfigEntry::new("service-defaults", "web");
    entry.settings.insert("Protocol".into(), "http".into());
    client.config_set(&entry, None, &write()).await.unwrap();
    let found = next(&mut one).await;
    assert_eq!(Option::as_ref(&found).unwrap().settings["Protocol"], "http");
    assert_eq!(next(&mut all).await.len(), 1);
    client.config_delete("service-defaults", "web", None, &write()).await.unwrap();
    assert!(next(&mut one).await.is_none() && next(&mut all).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn intentions() {
    let consul = TestConsul::new();
    let client = consul.client();
    let watcher = Watcher::new(client.clone());
    let mut all = watcher.watch(Intentions::new());
    let mut of_db = watcher.watch(IntentionMatch::destination("db"));
    assert!(next(&mut all).await.is_empty() && next(&mut of_db).await.is_empty());
    let set = async |to: &str| {
        let intention = Intention::new("web", to, IntentionAction::Deny);
        client.intention_set(&intention, &write()).await.unwrap();
    };
    set("api").await;
    assert_eq!(next(&mut all).await.len(), 1);
    set("db").await;
    // The other one did not come in between.
    assert_eq!(next(&mut of_db).await.len(), 1);
    assert_eq!(next(&mut all).await.len(), 2);
    client.intention_delete("web", "db", &write()).await.unwrap();
    assert!(next(&mut of_db).await.is_empty());
}

/// Spec: CW12
#[tokio::test(start_paused = true)]
async fn certificates_follow_their_authority() {
    let consul = TestConsul::new();
    let watcher = Watcher::new(consul.client());
    let mut roots = watcher.watch(CaRoots::new());
    let mut of_servers = watcher.watch(ServerCaRoots::new());
    let mut leaf = watcher.watch(ConnectLeaf::new("web"));
    let old = next(&mut roots).await;
    assert_eq!(next(&mut of_servers).await, old);
    let first = next(&mut leaf).await;
    assert!(first.service_uri.ends_with("/svc/web"), "{}", first.service_uri);

    consul.rotate_ca();
    let new = next(&mut roots).await;
    assert_eq!((old.roots.len(), new.roots.len()), (1, 2));
    assert_ne!(new.active_root_id, old.active_root_id);
    assert!(new.roots.iter().any(|root| root.id == old.active_root_id && !root.active));
    assert_eq!(next(&mut of_servers).await, new);
    let second = next(&mut leaf).await;
    assert_ne!(second.cert_pem, first.cert_pem);
    assert!(second.modify_index > first.modify_index);

    // In time the agent makes a new one by itself, before the old one ends.
    let third = next(&mut leaf).await;
    assert_ne!(third.serial_number, second.serial_number);
    assert!(third.valid_after > second.valid_after && third.valid_after < second.valid_before);
}
