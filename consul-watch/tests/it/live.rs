//! Calls and watches that need a real server to themselves, such as the whole life of its ACLs.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    Client, ClientConfig, QueryOptions, Watch, Watcher, WriteOptions,
    client::{
        AclTokenFilter, EventOptions, ExecuteOptions, HealthOptions, PutOptions, SharedToken,
    },
    query::{
        AclTokens, CaRoots, CatalogServices, ConfigEntry, ConnectLeaf, Events, HealthService,
        Intentions, KvGet, Sessions,
    },
    testing::{parts::Suite, real},
    types::{
        self, AclLink, AclPolicy, AclRole, AclTokenRequest, AgentServiceRegistration,
        CaConfiguration, CatalogRegistration, DiscoveryChainOverride, Intention, IntentionAction,
        IntentionSide, JsonObject, PreparedQuery, SessionRequest, new_events,
    },
    watch::{Event, Liveness},
};
use futures::StreamExt as _;
use serde_json::json;
use tokio::time::timeout;

const SUITE: Suite = Suite("consul-watch with a real Consul");
const LIMIT: Duration = Duration::from_mins(1);
const NOBODY: &str = "00000000-0000-0000-0000-00000000000a";

/// A server of each version that is there, and whether it is of 1.8.
async fn each_consul(case: &str, settings: serde_json::Value) -> Vec<(real::Consul, bool)> {
    let mut found = Vec::new();
    for part in SUITE.parts("consul", case) {
        let consul =
            real::Consul::start_with(&part.path, settings.clone()).await.expect("a real Consul");
        found.push((consul, part.major_minor() < (1, 9)));
    }
    found
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
    for (consul, _) in each_consul("acls_from_the_first_token_to_the_last", settings).await {
        let anonymous = consul.client();
        let first = bootstrap(&anonymous).await;
        assert!(anonymous.acl_bootstrap(None).await.unwrap_err().is_permission_denied());
        let root = anonymous.with_token(first.secret_id.clone()).unwrap();
        assert!(root.acl_token_self(&read()).await.unwrap().value == first);
        let mut tokens = Watcher::new(root.clone()).watch(AclTokens::new()).diff();
        let Some(Ok(Event::Init(found))) = tokens.next().await else { panic!("no tokens") };
        assert!(found.iter().any(|(accessor, _)| *accessor == first.accessor_id));

        let rules = r#"key_prefix "" { policy = "deny" } service_prefix "" { policy = "deny" }"#;
        let policy =
            root.acl_policy_create(&AclPolicy::new("none", rules), &write()).await.unwrap();
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
        let consul_service =
            blind.health_service("consul", &HealthOptions::default()).await.unwrap();
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
}

/// Spec: CP53
#[tokio::test]
async fn a_watch_outlives_its_token() {
    let settings = json!({ "acl": { "enabled": true, "default_policy": "allow" } });
    for (consul, _) in each_consul("a_watch_outlives_its_token", settings).await {
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
}

/// Spec: CW12
#[tokio::test]
async fn the_meshs_certificates_change_with_its_authority() {
    let case = "the_meshs_certificates_change_with_its_authority";
    for (consul, _) in each_consul(case, json!({ "connect": { "enabled": true } })).await {
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
        assert_eq!(
            client.connect_ca_configuration(&read()).await.unwrap().value.provider,
            "consul"
        );
    }
}

#[tokio::test]
async fn intentions_and_configuration_entries() {
    let case = "intentions_and_configuration_entries";
    for (consul, is_1_8) in each_consul(case, json!({ "connect": { "enabled": true } })).await {
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
        // Newer servers take an entry that is as it was, whatever its index.
        let mut other = entry.clone();
        other.settings.insert("Protocol".into(), "http2".into());
        assert!(!client.config_set(&other, Some(index + 1), &write()).await.unwrap());
        let none = DiscoveryChainOverride::default();
        let chain = client.discovery_chain("web", None, &none, &read()).await.unwrap().value;
        assert_eq!(chain.protocol, "http");
        assert!(client.config_delete("service-defaults", "web", None, &write()).await.unwrap());
        until(&mut watch, Option::is_none).await;
        let error = client.config_entries("no-kind", &read()).await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
    }
}

/// Spec: CP49, CW11
#[tokio::test]
async fn user_events_and_what_else_an_agent_says() {
    let case = "user_events_and_what_else_an_agent_says";
    for (consul, _) in each_consul(case, json!({})).await {
        let client = consul.client();
        let watcher = Watcher::new(client.clone());
        let mut watch = watcher.watch(Events::new());
        until(&mut watch, Vec::is_empty).await;
        let options = EventOptions::default();
        let one = client.event_fire("one", &b"\xff\0"[..], &options).await.unwrap();
        let seen = until(&mut watch, |events| events.len() == 1).await;
        assert_eq!(
            (seen[0].id.as_str(), seen[0].payload.as_ref()),
            (one.id.as_str(), &b"\xff\0"[..])
        );
        let index = watch.latest().unwrap().meta.index;
        assert_eq!(index, seen[0].index());
        client.event_fire("two", "", &options).await.unwrap();
        let seen = until(&mut watch, |events| events.len() == 2).await;
        let new: Vec<_> =
            new_events(&seen, index).iter().map(|event| event.name.as_str()).collect();
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
}

/// Kinds of configuration entries that the community edition writes, with the first version
/// of each, a name and settings.
fn entries() -> Vec<((u32, u32), types::ConfigEntry)> {
    let splits = json!({ "Splits": [{ "Weight": 100 }] });
    let keys = json!({ "Remote": { "URI": "https://a.example", "FetchAsynchronously": true } });
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["a.example".to_owned()]).unwrap();
    let chain = certificate.self_signed(&key).unwrap().pem();
    let key = key.serialize_pem();
    [
        ((1, 8), "service-defaults", "w", json!({ "Protocol": "http" })),
        ((1, 8), "proxy-defaults", "global", json!({ "Config": { "a": 1 } })),
        ((1, 8), "service-resolver", "w", json!({ "ConnectTimeout": "5s" })),
        ((1, 8), "service-router", "w", json!({ "Routes": [] })),
        ((1, 8), "service-splitter", "w", splits),
        ((1, 8), "ingress-gateway", "in", json!({ "Listeners": [] })),
        ((1, 8), "terminating-gateway", "out", json!({ "Services": [{ "Name": "x" }] })),
        (
            (1, 9),
            "service-intentions",
            "w",
            json!({ "Sources": [{ "Name": "a", "Action": "deny" }] }),
        ),
        ((1, 10), "mesh", "mesh", json!({ "TransparentProxy": { "MeshDestinationsOnly": true } })),
        ((1, 11), "exported-services", "default", json!({ "Services": [] })),
        (
            (1, 15),
            "api-gateway",
            "api",
            json!({ "Listeners": [{ "Name": "l", "Port": 80, "Protocol": "http" }] }),
        ),
        ((1, 15), "http-route", "h", json!({ "Rules": [] })),
        ((1, 15), "tcp-route", "t", json!({ "Services": [] })),
        ((1, 15), "inline-certificate", "c", json!({ "Certificate": chain, "PrivateKey": key })),
        (
            (1, 19),
            "file-system-certificate",
            "f",
            json!({ "Certificate": "/c.pem", "PrivateKey": "/k.pem" }),
        ),
        ((1, 16), "jwt-provider", "j", json!({ "Issuer": "x", "JSONWebKeySet": keys })),
    ]
    .into_iter()
    .map(|(since, kind, name, settings)| {
        let mut entry = types::ConfigEntry::new(kind, name);
        entry.settings = settings.as_object().cloned().unwrap_or_default();
        (since, entry)
    })
    .collect()
}

#[tokio::test]
async fn entries_of_every_kind_are_written_watched_and_deleted() {
    let case = "entries_of_every_kind_are_written_watched_and_deleted";
    for part in SUITE.parts("consul", case) {
        let settings = json!({ "connect": { "enabled": true } });
        let consul = real::Consul::start_with(&part.path, settings).await.expect("a real Consul");
        let client = consul.client();
        let watcher = Watcher::new(client.clone());
        let known: Vec<_> =
            entries().into_iter().filter(|(since, _)| part.major_minor() >= *since).collect();
        for (_, entry) in &known {
            let kind = &entry.kind;
            let mut watch = watcher.watch(ConfigEntry::new(kind, &entry.name));
            until(&mut watch, Option::is_none).await;
            let written = client.config_set(entry, None, &write()).await;
            assert!(written.unwrap_or_else(|error| panic!("{kind}: {error}")), "{kind}");
            let found = until(&mut watch, Option::is_some).await;
            let found = Option::as_ref(&found).unwrap();
            assert_eq!(&found.kind, kind);
            // What was read can be written again as it is.
            let mut again = found.clone();
            again.settings.insert("Meta".into(), json!({ "again": "1" }));
            let written = client.config_set(&again, None, &write()).await;
            assert!(written.unwrap_or_else(|error| panic!("{kind}: {error}")), "{kind}");
            let has_meta = |entry: &Option<types::ConfigEntry>| {
                let meta = entry.as_ref().and_then(|entry| entry.settings.get("Meta"));
                meta.is_some_and(|meta| meta["again"] == "1")
            };
            until(&mut watch, has_meta).await;
            let listed = client.config_entries(kind, &read()).await.unwrap().value;
            assert_eq!(listed.len(), 1, "{kind}");
        }
        for (_, entry) in known.iter().rev() {
            let gone = client.config_delete(&entry.kind, &entry.name, None, &write()).await;
            assert!(gone.unwrap(), "{}", entry.kind);
        }
        watcher.shutdown().await;
    }
}

/// Consul 1.10 and later answer blocking health reads from a stream.
#[tokio::test]
async fn blocking_health_reads_come_from_the_stream() {
    for (consul, is_1_8) in
        each_consul("blocking_health_reads_come_from_the_stream", json!({})).await
    {
        let client = consul.client();
        let mut watch = Watcher::new(client.clone()).watch(HealthService::new("web"));
        until(&mut watch, Vec::is_empty).await;
        for number in 0..3 {
            let id = format!("web-{number}");
            let instance = CatalogRegistration::new("n", "10.0.0.1")
                .with_service(types::Service::new("web", id));
            client.catalog_register(&instance).await.unwrap();
            until(&mut watch, |entries| entries.len() == number + 1).await;
        }
        let backend = watch.latest().unwrap().meta.query_backend;
        assert_eq!(backend.as_deref(), (!is_1_8).then_some("streaming"));
    }
}

/// What an Enterprise server alone has is refused with its reason, and nothing is lost when a
/// prepared query is read and written again.
#[tokio::test]
async fn newer_reads_say_what_the_community_edition_lacks() {
    let case = "newer_reads_say_what_the_community_edition_lacks";
    for (consul, is_1_8) in each_consul(case, json!({})).await {
        if is_1_8 {
            SUITE.not_applicable("consul", case, "1.8 ignores parameters that it does not know");
            continue;
        }
        let client = consul.client();
        let watcher = Watcher::new(client.clone());
        let mut peer = watcher.watch(HealthService::new("web").peer("other"));
        until(&mut peer, Vec::is_empty).await;
        let mut partition = watcher.watch(HealthService::new("web").partition("p"));
        let error = partition.changed().await.unwrap_err();
        assert!(error.is_fatal(), "{error}");
        assert!(error.cause().to_string().contains("Enterprise"), "{}", error.cause());
        let mut options = HealthOptions::default();
        options.query.merge_central_config = true;
        assert!(client.health_service("web", &options).await.unwrap().value.is_empty());

        let mut query = PreparedQuery::new("q", "web");
        query.service.sameness_group = "g".into();
        let error = client.prepared_query_create(&query, &write()).await.unwrap_err();
        assert!(error.to_string().contains("enterprise-only"), "{error}");
        query.service.sameness_group.clear();
        query.service.peer = "other".into();
        let id = client.prepared_query_create(&query, &write()).await.unwrap();
        let found = client.prepared_query(&id, &read()).await.unwrap().value.unwrap();
        assert_eq!(found.service.peer, "other");
    }
}

/// With it, an instance shows what central configuration adds to its own.
#[tokio::test]
async fn central_configuration_is_merged_on_request() {
    let case = "central_configuration_is_merged_on_request";
    for (consul, is_1_8) in each_consul(case, json!({})).await {
        if is_1_8 {
            SUITE.not_applicable("consul", case, "1.8 ignores parameters that it does not know");
            continue;
        }
        let client = consul.client();
        let mut defaults = types::ConfigEntry::new("proxy-defaults", "global");
        defaults.settings.insert("Config".into(), json!({ "protocol": "http" }));
        assert!(client.config_set(&defaults, None, &write()).await.unwrap());
        let mut proxy = types::Service::new("web-proxy", "web-proxy");
        proxy.kind = types::ServiceKind::ConnectProxy;
        proxy.port = 8443;
        proxy.proxy.destination_service_name = "web".into();
        let instance = CatalogRegistration::new("n", "10.0.0.1").with_service(proxy);
        client.catalog_register(&instance).await.unwrap();
        for merged in [false, true] {
            let mut options = HealthOptions::default();
            options.query.merge_central_config = merged;
            let found = client.health_service("web-proxy", &options).await.unwrap().value;
            let config = &found[0].service.proxy.config;
            assert_eq!(config.get("protocol"), merged.then_some(&json!("http")), "{config:?}");
        }
        // A watch shows the merged form, and follows it when only the defaults change.
        let mut options = read();
        options.merge_central_config = true;
        let watcher = Watcher::new(client.clone());
        let mut watch = watcher.watch(HealthService::new("web-proxy").options(options));
        let shows = |wanted: &'static str| {
            move |entries: &Vec<types::ServiceEntry>| {
                let config = entries.first().map(|entry| &entry.service.proxy.config);
                config.and_then(|config| config.get("protocol")) == Some(&json!(wanted))
            }
        };
        until(&mut watch, shows("http")).await;
        defaults.settings.insert("Config".into(), json!({ "protocol": "grpc" }));
        assert!(client.config_set(&defaults, None, &write()).await.unwrap());
        until(&mut watch, shows("grpc")).await;
    }
}

/// Every list that Consul filters is narrowed by the same option.
#[tokio::test]
async fn filters_narrow_lists() {
    for (consul, is_1_8) in each_consul("filters_narrow_lists", json!({})).await {
        let client = consul.client();
        for (node, name) in [("n1", "web"), ("n2", "db")] {
            let mut service = types::Service::new(name, name);
            service.tags = vec![format!("tag-{name}")];
            let check = types::HealthCheck::of_service(name, name, types::HealthStatus::Passing);
            let registration =
                CatalogRegistration::new(node, "10.0.0.1").with_service(service).with_check(check);
            client.catalog_register(&registration).await.unwrap();
            let registration = AgentServiceRegistration::new(name);
            client.agent_register_service(&registration).await.unwrap();
        }
        let by = |expression: &str| {
            let mut options = read();
            options.filter = Some(expression.to_owned());
            options
        };
        let nodes = client.catalog_nodes(&by("Node == n1")).await.unwrap().value;
        assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n1"]);
        let checks = client.health_state(None, &by("ServiceName == db")).await.unwrap().value;
        assert!(!checks.is_empty() && checks.iter().all(|check| check.service_name == "db"));
        for (expression, left) in [("Service.Service == web", 1), ("Service.Service == db", 0)] {
            let mut options = HealthOptions::default();
            options.query = by(expression);
            let found = client.health_service("web", &options).await.unwrap().value;
            assert_eq!(found.iter().filter(|entry| entry.node.name == "n1").count(), left);
        }
        let found = client.health_node("n1", &by("ServiceName == db")).await.unwrap().value;
        assert!(found.is_empty(), "{found:?}");
        let found = client.health_checks("web", &by("Node == n2")).await.unwrap().value;
        assert!(found.is_empty(), "{found:?}");
        let found = client.agent_services(&by("Service == web")).await.unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["web"]);
        let found = client.agent_checks(&by("ServiceName == none")).await.unwrap();
        assert!(found.is_empty(), "{found:?}");
        let watcher = Watcher::new(client.clone());
        let services = CatalogServices::new().filter("ServiceName == web");
        let mut services = watcher.watch(services);
        services.changed().await.unwrap();
        let found = services.latest().unwrap().data;
        // Servers before 1.14 ignore it there.
        assert!(found.contains_key("web") && found.contains_key("db") == is_1_8, "{found:?}");
    }
}
