//! Tests of queries: keys, scopes, requests and comparison.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::{
    Answer, Client, ClientConfig, QueryMeta, Transport,
    client::AclTokenFilter,
    transport::{ExchangeLimits, TransportError},
};

/// Answers everything with one text and index 7, and keeps what it was asked.
#[derive(Debug)]
struct Fixed {
    body: &'static str,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Transport for Fixed {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        _limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let asked = request.uri().path_and_query().unwrap().to_string();
        self.asked.lock().unwrap().push(asked);
        let answer = http::Response::builder().header("x-consul-index", "7");
        Ok(answer.body(Bytes::from_static(self.body.as_bytes())).unwrap())
    }
}

/// Reads once past index 5 and gives what was asked for and the result.
async fn fetch<Q: Query>(query: &Q, body: &'static str) -> (String, Q::Value) {
    let transport = Arc::new(Fixed { body, asked: Mutex::default() });
    let shared: Arc<dyn Transport> = Arc::<Fixed>::clone(&transport);
    let client = Client::with_transport(ClientConfig::default(), shared).unwrap();
    let answer = query.fetch(&client, &Position::Index(5), Duration::from_secs(1)).await.unwrap();
    let asked = transport.asked.lock().unwrap().pop().unwrap();
    (asked.replace("index=5&wait=1000ms", "…"), answer.value)
}

#[tokio::test]
async fn queries_block_on_their_endpoint() {
    macro_rules! check {
        ($($query:expr => $asked:literal, $body:literal;)+) => {
            $(assert_eq!(fetch(&$query, $body).await.0, $asked);)+
        };
    }
    check! {
        AclPolicies::new() => "/v1/acl/policies?…", "[]";
        AclRoles::new() => "/v1/acl/roles?…", "null";
        AclAuthMethods::new() => "/v1/acl/auth-methods?…", "[]";
        AclTokens::new() => "/v1/acl/tokens?…", "[]";
        AclBindingRules::new().auth_method("m") => "/v1/acl/binding-rules?authmethod=m&…", "[]";
        CatalogNode::new("n") => "/v1/catalog/node/n?…", "null";
        NodeServices::new("n") => "/v1/catalog/node-services/n?…", "null";
        HealthChecks::new("s") => "/v1/health/checks/s?…", "[]";
        HealthNode::new("n") => "/v1/health/node/n?…", "[]";
        CoordinateNodes::new() => "/v1/coordinate/nodes?…", "[]";
        Events::named("e") => "/v1/event/list?name=e&…", "[]";
        Sessions::new() => "/v1/session/list?…", "[]";
        NodeSessions::new("n").datacenter("dc2") => "/v1/session/node/n?dc=dc2&…", "[]";
        SessionInfo::new("s".parse().unwrap()) => "/v1/session/info/s?…", "[]";
        Intentions::new() => "/v1/connect/intentions?…", "null";
        IntentionMatch::source("s") =>
            "/v1/connect/intentions/match?by=source&name=s&…", "{}";
        CaRoots::new() => "/v1/agent/connect/ca/roots?…", "{}";
        ServerCaRoots::new() => "/v1/connect/ca/roots?…", "{}";
        ConnectLeaf::new("s") =>
            "/v1/agent/connect/ca/leaf/s?…", r#"{"CertPEM":"c","PrivateKeyPEM":"k"}"#;
        ConfigEntries::new("k") => "/v1/config/k?…", "[]";
        ConfigEntry::new("k", "n") => "/v1/config/k/n?…", r#"{"Kind":"k"}"#;
        GatewayServices::new("g") => "/v1/catalog/gateway-services/g?…", "null";
        CatalogConnect::new("s") => "/v1/catalog/connect/s?…", "[]";
        HealthIngress::new("s") => "/v1/health/ingress/s?…", "[]";
        DiscoveryChain::new("s") =>
            "/v1/discovery-chain/s?…", r#"{"Chain":{"ServiceName":"s"}}"#;
        Peerings::new() => "/v1/peerings?…", "[]";
        Peering::new("p") => "/v1/peering/p?…", r#"{"Name":"p","State":"NEW"}"#;
        ExportedServices::new() => "/v1/exported-services?…", "[]";
    }
}

#[tokio::test]
async fn results_without_an_order_of_their_own_are_sorted() {
    let (_asked, checks) =
        fetch(&HealthNode::new("n"), r#"[{"Node":"n","CheckID":"b"},{"Node":"n","CheckID":"a"}]"#)
            .await;
    assert_eq!(checks[0].check_id, "a");
    let (_asked, entries) =
        fetch(&ConfigEntries::new("k"), r#"[{"Kind":"k","Name":"b"},{"Kind":"k","Name":"a"}]"#)
            .await;
    assert_eq!(entries[0].name, "a");
    let (_asked, intentions) = fetch(
        &Intentions::new(),
        r#"[{"SourceName":"web","DestinationName":"db"},{"SourceName":"*","DestinationName":"db"}]"#,
    )
    .await;
    assert_eq!(intentions[1].source_name, "*");
}

#[test]
fn keys_tell_queries_and_their_parameters_apart() {
    let filter = AclTokenFilter { role: Some("x".into()), ..AclTokenFilter::default() };
    let keys = [
        AclPolicies::new().key(),
        AclRoles::new().key(),
        AclAuthMethods::new().key(),
        AclTokens::new().key(),
        AclTokens::new().filter(filter).key(),
        AclBindingRules::new().key(),
        AclBindingRules::new().auth_method("x").key(),
        CatalogNode::new("x").key(),
        CatalogNode::new("y").key(),
        CatalogNode::new("x").datacenter("y").key(),
        NodeServices::new("x").key(),
        HealthChecks::new("x").key(),
        HealthNode::new("x").key(),
        HealthNode::new("x").namespace("y").key(),
        CoordinateNodes::new().key(),
        Events::new().key(),
        Events::named("x").key(),
        Sessions::new().key(),
        NodeSessions::new("x").key(),
        SessionInfo::new("x".parse().unwrap()).key(),
        Intentions::new().key(),
        IntentionMatch::source("x").key(),
        IntentionMatch::destination("x").key(),
        CaRoots::new().key(),
        ServerCaRoots::new().key(),
        ConnectLeaf::new("x").key(),
        ConfigEntries::new("x").key(),
        ConfigEntry::new("x", "y").key(),
        ConfigEntry::new("y", "x").key(),
        GatewayServices::new("x").key(),
        CatalogConnect::new("x").key(),
        HealthIngress::new("x").key(),
        DiscoveryChain::new("x").key(),
        Peerings::new().key(),
        Peering::new("x").key(),
        ExportedServices::new().key(),
    ];
    let different: HashSet<_> = keys.iter().collect();
    assert_eq!(different.len(), keys.len());
    assert_eq!(HealthNode::new("x").key(), HealthNode::new("x").key());
}

#[test]
fn scopes_and_modes() {
    assert_eq!(HealthChecks::new("s").scope(), Scope::Service("s".into()));
    assert_eq!(HealthChecks::new("s").datacenter("dc2").scope(), Scope::Opaque);
    assert_eq!(HealthNode::new("n").scope(), Scope::Checks);
    assert_eq!(CatalogNode::new("n").scope(), Scope::Opaque);
    assert_eq!(CaRoots::new().scope(), Scope::Opaque);
    assert_eq!(Events::new().mode(), Mode::Event);
    assert_eq!(Intentions::new().mode(), Mode::Index);
}

#[tokio::test]
async fn a_polled_read_is_a_query() {
    let every = Duration::from_secs(3);
    let leader = Polled::new("status.leader", &(), every, |client| async move {
        let leader = client.status_leader().await?;
        Ok(Answer::new(leader, QueryMeta::default()))
    });
    assert_eq!(leader.mode(), Mode::Polled(every));
    assert_eq!(leader.key().as_str(), "status.leader((), 3s)");
    let (asked, value) = fetch(&leader, "\"10.0.0.1:8300\"").await;
    assert_eq!((asked.as_str(), value.as_deref()), ("/v1/status/leader", Some("10.0.0.1:8300")));
}
