//! Calls and watches that need a real server to themselves, such as the whole life of its ACLs.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, ClientConfig, QueryOptions, Watch, Watcher, WriteOptions,
    client::{
        AclTokenFilter, EventOptions, ExecuteOptions, HealthOptions, PutOptions, SharedToken,
    },
    query::{AclTokens, CaRoots, ConfigEntry, ConnectLeaf, Events, Intentions, KvGet, Sessions},
    testing::{parts::Suite, real},
    types::{
        self, AclLink, AclPolicy, AclRole, AclTokenRequest, AgentServiceRegistration,
        CaConfiguration, DiscoveryChainOverride, Intention, IntentionAction, IntentionSide,
        JsonObject, PreparedQuery, SessionRequest, new_events,
    },
    watch::{Event, Liveness},
};
use futures::StreamExt as _;
use serde_json::json;
use tokio::time::timeout;

const SUITE: Suite = Suite("consul-watch with a real Consul");
const LIMIT: Duration = Duration::from_mins(1);
const NOBODY: &str = "00000000-0000-0000-0000-00000000000a";

async fn consul(case: &str, settings: serde_json::Value) -> Option<(real::Consul, bool)> {
    let part = SUITE.part("consul", case)?;
    let consul = real::Consul::start_with(&part.path, settings).await.expect("a real Consul");
    Some((consul, part.major_minor() < (1, 9)))
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

/// The first token. A server that has just begun to lead has not yet left the
/// ACLs of old times behind.
async fn bootstrap(client: &Client) -> types::AclToken {
    let first = async {
        loop {
            match client.acl_bootstrap(None).await {
                Ok(token) => return token,
                Err(error) => assert!(error.to_string().contains("legacy mode"), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(LIMIT, first).await.expect("ACLs in time")
}

/// Waits for a snapshot that is as wanted.
async fn until<T: Send + Sync + 'static>(
    watch: &mut Watch<T>,
    wanted: impl Fn(&T) -> bool + Sync,
) -> Arc<T> {
    let found = async {
        loop {
            match watch.changed().await {
                Ok(snapshot) if wanted(&snapshot.data) => return snapshot.data,
                Ok(_) => {}
                Err(error) => assert!(!error.is_fatal(), "{error:?}"),
            }
        }
    };
    timeout(LIMIT, found).await.expect("the wanted data in time")
}

/// Spec: CP50, CP51, CP52, CP53
#[tokio::test]
async fn acls_from_the_first_token_to_the_last() {
    let settings = json!({ "acl": { "enabled": true, "default_policy": "allow" } });
    let Some((consul, _)) = consul("acls_from_the_first_token_to_the_last", settings).await else {
        return;
    };
    let anonymous = consul.client();
    let first = bootstrap(&anonymous).await;
    assert!(anonymous.acl_bootstrap(None).await.unwrap_err().is_permission_denied());
    let root = anonymous.with_token(first.secret_id.clone()).unwrap();
    assert!(root.acl_token_self(&read()).await.unwrap().value == first);
    let mut tokens = Watcher::new(root.clone()).watch(AclTokens::new()).diff();
    let Some(Ok(Event::Init(found))) = tokens.next().await else { panic!("no tokens") };
    assert!(found.iter().any(|(accessor, _)| *accessor == first.accessor_id));

    let rules = r#"key_prefix "" { policy = "deny" } service_prefix "" { policy = "deny" }"#;
    let policy = root.acl_policy_create(&AclPolicy::new("none", rules), &write()).await.unwrap();
    let by_name = root.acl_policy_by_name("none", &read()).await.unwrap().value;
    assert_eq!(by_name.as_ref(), Some(&policy));
    let mut role = AclRole::new("nothing");
    role.policies.push(AclLink::name("none"));
    let role = root.acl_role_create(&role, &write()).await.unwrap();
    let mut request = AclTokenRequest::new("may see nothing");
    request.roles.push(AclLink::id(role.id.clone()));
    let token = root.acl_token_create(&request, &write()).await.unwrap();
    let Some(Ok(Event::Added { key, .. })) = tokens.next().await else { panic!("not added") };
    assert_eq!(key, token.accessor_id);
    let expanded = root.acl_token_expanded(&token.accessor_id, &read()).await.unwrap().value;
    assert!(expanded.unwrap().token == token);

    let blind = anonymous.with_token(token.secret_id.clone()).unwrap();
    root.kv_put("k", "x", &PutOptions::default()).await.unwrap();
    assert!(blind.kv_get("k", &read()).await.unwrap_err().is_permission_denied());
    assert!(blind.kv_list("k", &read()).await.unwrap().value.is_empty());
    let consul_service = blind.health_service("consul", &HealthOptions::default()).await.unwrap();
    assert!(consul_service.value.is_empty());

    // What is not there, as opposed to a token of our own that is not known.
    assert!(root.acl_token(NOBODY, &read()).await.unwrap().value.is_none());
    assert!(root.acl_policy_by_name("x", &read()).await.unwrap().value.is_none());
    assert!(root.acl_role_by_name("x", &read()).await.unwrap().value.is_none());
    assert!(root.acl_auth_method("x", &read()).await.unwrap().value.is_none());
    assert!(root.acl_binding_rule(NOBODY, &read()).await.unwrap().value.is_none());
    let stranger = anonymous.with_token(Some(NOBODY.into())).unwrap();
    assert!(stranger.acl_token(NOBODY, &read()).await.unwrap_err().is_permission_denied());
    assert!(!root.acl_replication(&read()).await.unwrap().running);

    let copy = root.acl_token_clone(&token.accessor_id, "copy", &write()).await.unwrap();
    let mut request = AclTokenRequest::from(&copy);
    request.description = "changed".into();
    let changed = root.acl_token_update(&copy.accessor_id, &request, &write()).await.unwrap();
    assert_eq!((changed.description.as_str(), &changed.roles), ("changed", &copy.roles));
    for accessor in [&token.accessor_id, &copy.accessor_id, &copy.accessor_id] {
        root.acl_token_delete(accessor, &write()).await.unwrap();
    }
    root.acl_role_delete(&role.id, &write()).await.unwrap();
    root.acl_policy_delete(&policy.id, &write()).await.unwrap();
    root.acl_policy_delete(&policy.id, &write()).await.unwrap();
    let rest = root.acl_tokens(&AclTokenFilter::default(), &read()).await.unwrap().value;
    assert!(rest.iter().all(|entry| entry.accessor_id != token.accessor_id));
    assert!(root.acl_logout(&write()).await.unwrap_err().is_permission_denied());
}

/// Spec: CP53
#[tokio::test]
async fn a_watch_outlives_its_token() {
    let settings = json!({ "acl": { "enabled": true, "default_policy": "allow" } });
    let Some((consul, _)) = consul("a_watch_outlives_its_token", settings).await else { return };
    let first = bootstrap(&consul.client()).await;
    let root = consul.client().with_token(first.secret_id.clone()).unwrap();
    let made = async |name: &str| {
        root.acl_token_create(&AclTokenRequest::new(name), &write()).await.unwrap()
    };
    let (one, two) = (made("one").await, made("two").await);
    let token = SharedToken::new(one.secret_id.clone()).unwrap();
    let mut config = ClientConfig::default();
    config.address = consul.address();
    config.token_provider = Some(Arc::new(token.clone()));
    let mut watch = Watcher::new(Client::new(config).unwrap()).watch(KvGet::new("k"));
    until(&mut watch, Option::is_none).await;
    root.acl_token_delete(&one.accessor_id, &write()).await.unwrap();
    token.set(two.secret_id.clone()).unwrap();
    root.kv_put("k", "x", &PutOptions::default()).await.unwrap();
    until(&mut watch, Option::is_some).await;
    assert_eq!(watch.state().liveness, Liveness::Live);
}

/// Spec: CW12
#[tokio::test]
async fn the_meshs_certificates_change_with_its_authority() {
    let case = "the_meshs_certificates_change_with_its_authority";
    let Some((consul, _)) = consul(case, json!({ "connect": { "enabled": true } })).await else {
        return;
    };
    let client = consul.client();
    let watcher = Watcher::new(client.clone());
    let mut roots = watcher.watch(CaRoots::new());
    let old = until(&mut roots, |roots| roots.active().is_some()).await.active_root_id.clone();
    let mut leaf = watcher.watch(ConnectLeaf::new("web"));
    let first = until(&mut leaf, |_| true).await;
    assert!(first.service_uri.ends_with("/svc/web"), "{}", first.service_uri);
    let mut settings = JsonObject::new();
    settings.insert("PrivateKey".into(), include_str!("../data/throwaway-ca-key.pem").into());
    settings.insert("LeafCertTTL".into(), "72h".into());
    let next = CaConfiguration::new("consul", settings);
    client.connect_ca_set_configuration(&next, &write()).await.unwrap();
    let new = until(&mut roots, |roots| roots.active_root_id != old).await;
    assert!(new.roots.len() >= 2, "the old one is trusted for a while");
    until(&mut leaf, |leaf| leaf.cert_pem != first.cert_pem).await;
    assert_eq!(client.connect_ca_configuration(&read()).await.unwrap().value.provider, "consul");
}

#[tokio::test]
async fn intentions_and_configuration_entries() {
    let case = "intentions_and_configuration_entries";
    let Some((consul, is_1_8)) = consul(case, json!({ "connect": { "enabled": true } })).await
    else {
        return;
    };
    let client = consul.client();
    let watcher = Watcher::new(client.clone());
    let mut intentions = watcher.watch(Intentions::new());
    until(&mut intentions, Vec::is_empty).await;
    let intention = Intention::new("web", "db", IntentionAction::Deny);
    if is_1_8 {
        let id = client.intention_create(&intention, &write()).await.unwrap();
        let mut made = client.intention_by_id(&id, &read()).await.unwrap().value.unwrap();
        made.description = "changed".into();
        client.intention_update(&made, &write()).await.unwrap();
    } else {
        client.intention_set(&intention, &write()).await.unwrap();
    }
    let found = until(&mut intentions, |found| found.len() == 1).await;
    assert_eq!(found[0].action, Some(IntentionAction::Deny));
    let side = IntentionSide::Destination;
    assert_eq!(client.intention_match(&side, "db", &read()).await.unwrap().value.len(), 1);
    assert!(!client.intention_check("web", "db", &read()).await.unwrap());
    assert!(client.intention_by_id(NOBODY, &read()).await.unwrap().value.is_none());
    if is_1_8 {
        client.intention_delete_by_id(&found[0].id, &write()).await.unwrap();
    } else {
        client.intention_delete("web", "db", &write()).await.unwrap();
    }
    until(&mut intentions, Vec::is_empty).await;

    let mut watch = watcher.watch(ConfigEntry::new("service-defaults", "web"));
    until(&mut watch, Option::is_none).await;
    let mut entry = types::ConfigEntry::new("service-defaults", "web");
    entry.settings.insert("Protocol".into(), "http".into());
    assert!(client.config_set(&entry, Some(0), &write()).await.unwrap());
    let found = until(&mut watch, Option::is_some).await;
    let index = Option::as_ref(&found).unwrap().modify_index;
    assert!(!client.config_set(&entry, Some(index + 1), &write()).await.unwrap());
    let none = DiscoveryChainOverride::default();
    let chain = client.discovery_chain("web", None, &none, &read()).await.unwrap().value;
    assert_eq!(chain.protocol, "http");
    assert!(client.config_delete("service-defaults", "web", None, &write()).await.unwrap());
    until(&mut watch, Option::is_none).await;
    let error = client.config_entries("no-kind", &read()).await.unwrap_err();
    assert!(!error.is_retryable(), "{error}");
}

/// Spec: CP49, CW11
#[tokio::test]
async fn user_events_and_what_else_an_agent_says() {
    let case = "user_events_and_what_else_an_agent_says";
    let Some((consul, _)) = consul(case, json!({})).await else { return };
    let client = consul.client();
    let watcher = Watcher::new(client.clone());
    let mut watch = watcher.watch(Events::new());
    until(&mut watch, Vec::is_empty).await;
    let options = EventOptions::default();
    let one = client.event_fire("one", &b"\xff\0"[..], &options).await.unwrap();
    let seen = until(&mut watch, |events| events.len() == 1).await;
    assert_eq!((seen[0].id.as_str(), seen[0].payload.as_ref()), (one.id.as_str(), &b"\xff\0"[..]));
    let index = watch.latest().unwrap().meta.index;
    assert_eq!(index, seen[0].index());
    client.event_fire("two", "", &options).await.unwrap();
    let seen = until(&mut watch, |events| events.len() == 2).await;
    let new: Vec<_> = new_events(&seen, index).iter().map(|event| event.name.as_str()).collect();
    assert_eq!(new, ["two"]);

    let mut sessions = watcher.watch(Sessions::new());
    until(&mut sessions, Vec::is_empty).await;
    client.session_create(&SessionRequest::default(), &write()).await.unwrap();
    until(&mut sessions, |sessions| sessions.len() == 1).await;
    // Young servers do not count as healthy yet, which is said with status 429.
    client.operator_autopilot_health(&read()).await.unwrap();
    assert!(client.operator_raft_configuration(&read()).await.unwrap().servers[0].leader);
    assert!(client.operator_raft_remove_peer("x").await.is_err());

    client.agent_register_service(&AgentServiceRegistration::new("web")).await.unwrap();
    let health = client.agent_health_service_by_id("web").await.unwrap().unwrap();
    assert_eq!(health.aggregated_status, types::HealthStatus::Passing);
    client.agent_service_maintenance("web", true, "x").await.unwrap();
    let health = client.agent_health_service_by_name("web").await.unwrap();
    assert_eq!(health[0].aggregated_status.as_str(), "maintenance");
    assert!(client.agent_health_service_by_id("x").await.unwrap().is_none());

    let query = PreparedQuery::new("find-web", "web");
    let id = client.prepared_query_create(&query, &write()).await.unwrap();
    assert!(client.prepared_query(&id, &read()).await.unwrap().value.is_some());
    let options = ExecuteOptions::default();
    let found = client.prepared_query_execute("find-web", &options).await.unwrap().value;
    assert_eq!(found.unwrap().service, "web");
    client.prepared_query_delete(&id, &write()).await.unwrap();
    assert!(client.prepared_query(&id, &read()).await.unwrap().value.is_none());

    let snapshot = client.snapshot_save(&read()).await.unwrap();
    client.kv_put("later", "x", &PutOptions::default()).await.unwrap();
    client.snapshot_restore(snapshot, &write()).await.unwrap();
    assert_eq!(client.kv_get("later", &read()).await.unwrap().value, None);
}
