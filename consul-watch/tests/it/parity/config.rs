//! Parity of configuration entries.

use std::time::Duration;

use consul_watch::{
    Client, QueryOptions, Result, Watcher, WriteOptions, query, types::ConfigEntry,
};
use serde_json::json;
use tokio::time::Instant;

use super::{Env, acl::holder, status};

super::cases![
    written_read_and_deleted,
    conditions,
    what_is_refused,
    a_blocked_read_of_an_entry,
    a_blocked_read_of_a_kind,
    a_watch_sees_that_its_entry_is_deleted,
];

mod sealed {
    super::super::cases![sealed: entries_follow_their_services_rules];
    use super::entries_follow_their_services_rules;
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

fn defaults(name: &str, protocol: &str) -> ConfigEntry {
    let mut entry = ConfigEntry::new("service-defaults", name);
    entry.settings.insert("Protocol".into(), protocol.into());
    entry
}

async fn set(client: &Client, entry: &ConfigEntry) -> Result<bool> {
    client.config_set(entry, None, &write()).await
}

async fn get(env: &Env, kind: &str, name: &str) -> Option<ConfigEntry> {
    env.client.config_entry(kind, name, &read()).await.unwrap().value
}

async fn delete(env: &Env, kind: &str, name: &str) {
    assert!(env.client.config_delete(kind, name, None, &write()).await.unwrap());
}

async fn written_read_and_deleted(env: &Env) {
    let name = env.name("web");
    assert_eq!(get(env, "service-defaults", &name).await, None);
    assert!(set(&env.client, &defaults(&name, "HTTP")).await.unwrap());
    let first = get(env, "service-defaults", &name).await.unwrap();
    assert_eq!((&first.name, &first.settings["Protocol"]), (&name, &json!("http")));
    assert_eq!(
        (&first.settings["Expose"], &first.settings["MeshGateway"]),
        (&json!({}), &json!({}))
    );
    assert_eq!(first.create_index, first.modify_index);
    set(&env.client, &defaults(&name, "tcp")).await.unwrap();
    let second = get(env, "service-defaults", &name).await.unwrap();
    assert_eq!(second.create_index, first.create_index);
    assert!(second.modify_index > first.modify_index);
    let listed = env.client.config_entries("service-defaults", &read()).await.unwrap().value;
    assert!(listed.contains(&second), "{listed:?}");
    delete(env, "service-defaults", &name).await;
    delete(env, "service-defaults", &name).await;
    assert_eq!(get(env, "service-defaults", &name).await, None);

    let mut global = ConfigEntry::new("proxy-defaults", "global");
    global.settings.insert("Config".into(), json!({ "a": 1.5, "b": ["x", { "y": 2 }] }));
    assert!(set(&env.client, &global).await.unwrap());
    let found = get(env, "proxy-defaults", "global").await.unwrap();
    assert_eq!(found.settings["Config"], global.settings["Config"]);
    delete(env, "proxy-defaults", "global").await;
}

async fn conditions(env: &Env) {
    let entry = defaults(&env.name("web"), "http");
    let set_at = async |index| env.client.config_set(&entry, Some(index), &write()).await.unwrap();
    assert!(!set_at(7).await);
    assert!(set_at(0).await);
    // Current servers say yes to what is so already, whatever the condition.
    assert_eq!(set_at(0).await, !env.is_1_8);
    let index = get(env, &entry.kind, &entry.name).await.unwrap().modify_index;
    assert_eq!(set_at(index + 1).await, !env.is_1_8);
    assert!(set_at(index).await);
    let kept = get(env, &entry.kind, &entry.name).await.unwrap().modify_index;
    assert_eq!(kept == index, !env.is_1_8);
    let mut other = entry.clone();
    other.settings.insert("Protocol".into(), json!("grpc"));
    let index = kept;
    for (at, done) in [(0, false), (index + 1, false), (index, true)] {
        let found = env.client.config_set(&other, Some(at), &write()).await.unwrap();
        assert_eq!(found, done, "{at}");
    }
    let index = get(env, &entry.kind, &entry.name).await.unwrap().modify_index;
    // Servers before 1.12 delete without a look at the condition.
    let (kind, name) = (&entry.kind, &entry.name);
    let deleted = env.client.config_delete(kind, name, Some(index + 1), &write()).await.unwrap();
    assert_eq!(deleted, env.is_1_8);
    assert_eq!(get(env, &entry.kind, &entry.name).await.is_none(), env.is_1_8);
    delete(env, &entry.kind, &entry.name).await;
}

async fn what_is_refused(env: &Env) {
    let name = env.name("web");
    let mut splitter = ConfigEntry::new("service-splitter", &name);
    splitter
        .settings
        .insert("Splits".into(), json!([{ "Weight": 90 }, { "Weight": 5, "ServiceSubset": "v1" }]));
    let sum = "the sum of all split weights must be 100, not 95.000000";
    for (entry, expected, text) in [
        (ConfigEntry::new("no-kind", &name), 400, "invalid config entry kind: no-kind"),
        (ConfigEntry::new("", &name), 400, "invalid config entry kind:"),
        (
            ConfigEntry::new("service-defaults", ""),
            500,
            if env.is_1_8 { "serviceName is required" } else { "Name is required" },
        ),
        (splitter, 500, sum),
    ] {
        let error = set(&env.client, &entry).await.unwrap_err();
        assert_eq!(status(&error), expected, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
    let error = env.client.config_entries("no-kind", &read()).await.unwrap_err();
    assert_eq!(status(&error), 500);
    let error = env.client.config_delete("no-kind", &name, None, &write()).await.unwrap_err();
    assert_eq!(status(&error), 400);
}

async fn a_blocked_read_of_an_entry(env: &Env) {
    let entry = defaults(&env.name("web"), "http");
    let other = defaults(&env.name("other"), "http");
    let name = entry.name.clone();
    let one = move |client: Client, options: QueryOptions| {
        let name = name.clone();
        async move { client.config_entry("service-defaults", &name, &options).await }
    };
    let seen = env.observe(one.clone(), set(&env.client, &entry)).await;
    seen.assert_woken();
    assert!(seen.first.is_none() && seen.last.is_some());
    // Writes of other entries do not wake it.
    env.observe(one.clone(), set(&env.client, &other)).await.assert_idle();
    let seen = env.observe(one, delete(env, &entry.kind, &entry.name)).await;
    seen.assert_woken();
    // Servers of old wake the read with the entry that is no more.
    assert_eq!(seen.last.is_some(), env.is_1_8);
    assert_eq!(get(env, &entry.kind, &entry.name).await, None);
    delete(env, &other.kind, &other.name).await;
}

async fn a_watch_sees_that_its_entry_is_deleted(env: &Env) {
    let entry = defaults(&env.name("web"), "http");
    set(&env.client, &entry).await.unwrap();
    let watcher = Watcher::new(env.client.clone());
    let mut watch = watcher.watch(query::ConfigEntry::new(&entry.kind, &entry.name));
    assert!(watch.changed().await.unwrap().data.is_some());
    // A read that comes after the deletion shows it anyway; this one is under way.
    if let Some(double) = &env.double {
        double.wait_for_blocked(1).await;
    } else {
        while watch.state().requests < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Gives it time to arrive.
        assert!(get(env, &entry.kind, &entry.name).await.is_some());
    }
    let start = Instant::now();
    delete(env, &entry.kind, &entry.name).await;
    assert!(watch.changed().await.unwrap().data.is_none());
    assert!(start.elapsed() < Duration::from_secs(30), "only when the wait was over");
}

async fn a_blocked_read_of_a_kind(env: &Env) {
    let entry = defaults(&env.name("web"), "http");
    let list = |client: Client, options: QueryOptions| async move {
        client.config_entries("service-defaults", &options).await
    };
    let seen = env.observe(list, set(&env.client, &entry)).await;
    seen.assert_woken();
    assert_eq!(seen.last.len(), seen.first.len() + 1);
    let seen = env.observe(list, delete(env, &entry.kind, &entry.name)).await;
    seen.assert_woken();
    assert_eq!(seen.last.len() + 1, seen.first.len());
}

async fn entries_follow_their_services_rules(env: &Env) {
    let (web, db) = (env.name("web"), env.name("db"));
    for name in [&web, &db] {
        set(&env.client, &defaults(name, "http")).await.unwrap();
    }
    let mut global = ConfigEntry::new("proxy-defaults", "global");
    global.settings.insert("Config".into(), json!({ "a": 1 }));
    set(&env.client, &global).await.unwrap();
    let who = holder(env, &[format!(r#"service "{web}" {{ policy = "write" }}"#)]).await;
    let listed = who.config_entries("service-defaults", &read()).await.unwrap().value;
    assert_eq!(listed.iter().map(|entry| &entry.name).collect::<Vec<_>>(), [&web]);
    assert!(who.config_entry("service-defaults", &web, &read()).await.unwrap().value.is_some());
    let error = who.config_entry("service-defaults", &db, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    // Everybody may read the defaults of all proxies.
    assert!(who.config_entry("proxy-defaults", "global", &read()).await.unwrap().value.is_some());
    assert!(set(&who, &defaults(&web, "tcp")).await.unwrap());
    for refused in [defaults(&db, "tcp"), global, ConfigEntry::new("terminating-gateway", &web)] {
        let error = set(&who, &refused).await.unwrap_err();
        assert!(error.is_permission_denied(), "{error}");
    }
    // Who refers to another service must be able to read it.
    let mut redirect = ConfigEntry::new("service-resolver", &web);
    redirect.settings.insert("Redirect".into(), json!({ "Service": db }));
    assert!(set(&who, &redirect).await.unwrap_err().is_permission_denied());
    for (kind, name) in [
        ("service-defaults", web.as_str()),
        ("service-defaults", &db),
        ("proxy-defaults", "global"),
    ] {
        delete(env, kind, name).await;
    }
}
