//! Requests of calls about the mesh, as they go over the wire.

use secrecy::ExposeSecret;

use super::*;
use crate::{
    QueryOptions, WriteOptions,
    types::{
        AuthorizeRequest, CaConfiguration, ConfigEntry, DiscoveryChainOverride, Intention,
        IntentionAction, IntentionSide, JsonObject, PeeringEstablishRequest, PeeringState,
        PeeringTokenRequest, ServiceKind,
    },
};

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

#[tokio::test]
async fn certificates() {
    let wire = Wire::new(200, captured!("connect-ca-roots")).await;
    let roots = wire.client.connect_ca_roots(&read()).await.unwrap().value;
    assert_eq!(roots.active().unwrap().id, roots.active_root_id);
    assert!(roots.active().unwrap().root_cert_pem.contains("BEGIN CERTIFICATE"));
    assert!(roots.active().unwrap().not_after > roots.active().unwrap().not_before);
    assert_eq!(wire.sent().await, "GET /v1/connect/ca/roots");
    assert_eq!(wire.client.agent_connect_ca_roots(&read()).await.unwrap().value, roots);
    assert_eq!(wire.sent().await, "GET /v1/agent/connect/ca/roots");
    let pem = wire.client.connect_ca_roots_pem(&read()).await.unwrap().value;
    assert!(pem.contains("RootCert"));
    assert_eq!(wire.sent().await, "GET /v1/connect/ca/roots?pem=true");

    let wire = Wire::new(200, captured!("agent-connect-ca-leaf")).await;
    let leaf = wire.client.agent_connect_ca_leaf("web", &read()).await.unwrap().value;
    assert_eq!(leaf.service, "web");
    assert!(leaf.service_uri.starts_with("spiffe://") && leaf.valid_before > leaf.valid_after);
    assert_eq!(leaf.private_key_pem.expose_secret(), "(taken out)");
    assert_eq!(wire.sent().await, "GET /v1/agent/connect/ca/leaf/web");

    let wire = Wire::new(200, captured!("agent-connect-authorize")).await;
    let connection = AuthorizeRequest::new("web", "spiffe://x/svc/api", "01");
    assert!(wire.client.agent_connect_authorize(&connection).await.unwrap().authorized);
    assert_eq!(
        wire.sent().await,
        r#"POST /v1/agent/connect/authorize {"Target":"web","ClientCertURI":"spiffe://x/svc/api","ClientCertSerial":"01"}"#
    );

    let wire = Wire::new(200, captured!("connect-ca-configuration")).await;
    let now = wire.client.connect_ca_configuration(&read()).await.unwrap().value;
    assert_eq!(now.provider, "consul");
    assert_eq!(now.config.expose()["LeafCertTTL"], "72h");
    let mut settings = JsonObject::new();
    settings.insert("PrivateKey".into(), "planted".into());
    let next = CaConfiguration::new("consul", settings);
    assert!(!format!("{next:?}").contains("planted"));
    wire.client.connect_ca_set_configuration(&next, &write()).await.unwrap();
    assert_eq!(
        wire.sent().await,
        r#"PUT /v1/connect/ca/configuration {"Provider":"consul","Config":{"PrivateKey":"planted"}}"#
    );
}

#[tokio::test]
async fn intentions() {
    let wire = Wire::new(200, captured!("intentions")).await;
    let all = wire.client.intentions(&read()).await.unwrap().value;
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].precedence, all[0].action.clone()), (9, Some(IntentionAction::Allow)));
    assert_eq!(wire.sent().await, "GET /v1/connect/intentions");

    let wire = Wire::new(200, captured!("intention-match")).await;
    let side = IntentionSide::Destination;
    let found = wire.client.intention_match(&side, "db", &read()).await.unwrap().value;
    assert_eq!(found.len(), 2);
    assert_eq!(wire.sent().await, "GET /v1/connect/intentions/match?by=destination&name=db");
    assert!(wire.client.intention_match(&side, "x", &read()).await.unwrap().value.is_empty());

    let wire = Wire::new(200, captured!("intention-check")).await;
    assert!(!wire.client.intention_check("web", "db", &read()).await.unwrap());
    assert_eq!(wire.sent().await, "GET /v1/connect/intentions/check?source=web&destination=db");

    let wire = Wire::new(200, captured!("intention")).await;
    let one = wire.client.intention("web", "db", &read()).await.unwrap().value.unwrap();
    assert_eq!(wire.sent().await, "GET /v1/connect/intentions/exact?source=web&destination=db");
    wire.client.intention_by_id(&one.id, &read()).await.unwrap();
    assert_eq!(wire.sent().await, format!("GET /v1/connect/intentions/{}", one.id));
    wire.client.intention_update(&one, &write()).await.unwrap();
    let sent = wire.sent().await;
    assert!(sent.starts_with(&format!("PUT /v1/connect/intentions/{} {{", one.id)), "{sent}");
    assert!(!sent.contains("Precedence") && !sent.contains("CreatedAt"), "{sent}");
    let made = Intention::new("web", "db", IntentionAction::Deny);
    let body = r#"{"SourceName":"web","DestinationName":"db","Action":"deny"}"#;
    wire.client.intention_set(&made, &write()).await.unwrap();
    let path = "/v1/connect/intentions/exact?source=web&destination=db";
    assert_eq!(wire.sent().await, format!("PUT {path} {body}"));

    let wire = Wire::new(200, captured!("intention-created")).await;
    assert_eq!(wire.client.intention_create(&made, &write()).await.unwrap().len(), 36);
    assert_eq!(wire.sent().await, format!("POST /v1/connect/intentions {body}"));

    let wire = Wire::new(404, "Intention not found").await;
    assert!(wire.client.intention("web", "db", &read()).await.unwrap().value.is_none());
    wire.client.intention_delete("web", "db", &write()).await.unwrap();
    assert_eq!(wire.sent().await, format!("DELETE {path}"));
    wire.client.intention_delete_by_id("x", &write()).await.unwrap();
    assert_eq!(wire.sent().await, "DELETE /v1/connect/intentions/x");
}

#[tokio::test]
async fn an_intention_with_permissions_has_no_action() {
    let text = r#"{"SourceName":"a","DestinationName":"b","Action":"","Permissions":[{"Action":"allow"}]}"#;
    let intention: Intention = serde_json::from_str(text).unwrap();
    assert_eq!((intention.action.is_none(), intention.permissions.len()), (true, 1));
    let sent = serde_json::to_string(&intention).unwrap();
    assert!(!sent.contains(r#""Action":"""#), "{sent}");
}

#[tokio::test]
async fn config_entries() {
    let wire = Wire::new(200, captured!("config-entry")).await;
    let found = wire.client.config_entry("service-resolver", "web", &read()).await.unwrap().value;
    assert_eq!(found.unwrap().settings["DefaultSubset"], "v1");
    assert_eq!(wire.sent().await, "GET /v1/config/service-resolver/web");
    let wire = Wire::new(200, captured!("config-list")).await;
    let list = wire.client.config_entries("service-defaults", &read()).await.unwrap().value;
    assert_eq!(list[0].settings["Protocol"], "http");
    for empty in ["null", "[]"] {
        let wire = Wire::new(200, empty).await;
        assert!(wire.client.config_entries("mesh", &read()).await.unwrap().value.is_empty());
    }
    let wire = Wire::new(404, "Config entry not found for \"mesh\" / \"mesh\"").await;
    assert!(wire.client.config_entry("mesh", "mesh", &read()).await.unwrap().value.is_none());

    let mut entry = ConfigEntry::new("service-defaults", "web");
    entry.settings.insert("Protocol".into(), "http".into());
    let body = r#"{"Kind":"service-defaults","Name":"web","Protocol":"http"}"#;
    let wire = Wire::new(200, "false").await;
    assert!(!wire.client.config_set(&entry, Some(3), &write()).await.unwrap());
    assert_eq!(wire.sent().await, format!("PUT /v1/config?cas=3 {body}"));
    assert!(!wire.client.config_delete("mesh", "mesh", Some(3), &write()).await.unwrap());
    assert_eq!(wire.sent().await, "DELETE /v1/config/mesh/mesh?cas=3");
    let wire = Wire::new(200, "{}").await;
    assert!(wire.client.config_delete("mesh", "mesh", None, &write()).await.unwrap());
    let wire = Wire::new(500, "invalid config entry kind: x").await;
    assert!(!wire.client.config_entries("x", &read()).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn the_catalogs_view_of_the_mesh() {
    let wire = Wire::new(200, captured!("catalog-connect")).await;
    let found = wire.client.catalog_connect("web", &read()).await.unwrap().value;
    assert_eq!(found[0].service_kind, ServiceKind::ConnectProxy);
    assert_eq!(wire.sent().await, "GET /v1/catalog/connect/web");
    let wire = Wire::new(200, captured!("node-services")).await;
    let (node, services) =
        wire.client.catalog_node_services("n1", &read()).await.unwrap().value.unwrap();
    assert_eq!(node.name, "n1");
    assert!(services.iter().any(|service| service.name == "web"));
    let wire = Wire::new(200, captured!("node-services-unknown")).await;
    assert!(wire.client.catalog_node_services("x", &read()).await.unwrap().value.is_none());
    let wire = Wire::new(200, captured!("gateway-services")).await;
    let found = wire.client.catalog_gateway_services("tgw", &read()).await.unwrap().value;
    assert_eq!((found[0].gateway.as_str(), found[0].service.as_str()), ("tgw", "api"));
    assert_eq!(found[0].gateway_kind, ServiceKind::TerminatingGateway);
    assert_eq!(wire.sent().await, "GET /v1/catalog/gateway-services/tgw");
    let wire = Wire::new(200, captured!("health-ingress")).await;
    let options = HealthOptions { passing: true, ..HealthOptions::default() };
    let found = wire.client.health_ingress("db", &options).await.unwrap().value;
    assert_eq!(found[0].service.name, "igw");
    assert_eq!(wire.sent().await, "GET /v1/health/ingress/db?passing");
}

#[tokio::test]
async fn discovery_chains() {
    let wire = Wire::new(200, captured!("discovery-chain")).await;
    let none = DiscoveryChainOverride::default();
    let chain = wire.client.discovery_chain("web", None, &none, &read()).await.unwrap().value;
    assert!(chain.nodes.contains_key(&chain.start_node));
    assert_eq!(wire.sent().await, "GET /v1/discovery-chain/web");
    let wire = Wire::new(200, captured!("discovery-chain-override")).await;
    let changes = DiscoveryChainOverride {
        connect_timeout: Some(Duration::from_secs(7)),
        protocol: Some("http".into()),
        mesh_gateway: None,
    };
    let found = wire.client.discovery_chain("api", Some("dc2"), &changes, &read()).await.unwrap();
    assert_eq!(found.value.protocol, "http");
    assert!(!found.value.customization_hash.is_empty());
    assert_eq!(
        wire.sent().await,
        r#"POST /v1/discovery-chain/api?compile-dc=dc2 {"OverrideConnectTimeout":"7s","OverrideProtocol":"http"}"#
    );
}

/// Source: Consul 1.21 API documentation "Cluster Peering", "Exported Services".
#[tokio::test]
async fn peerings_and_exported_services() {
    let wire = Wire::new(200, r#"{"PeeringToken":"planted"}"#).await;
    let token = wire.client.peering_token(&PeeringTokenRequest::new("east")).await.unwrap();
    assert_eq!(token.expose_secret(), "planted");
    assert_eq!(wire.sent().await, r#"POST /v1/peering/token {"PeerName":"east"}"#);
    let request = PeeringEstablishRequest::new("west", token);
    assert!(!format!("{request:?}").contains("planted"));
    wire.client.peering_establish(&request).await.unwrap();
    assert_eq!(
        wire.sent().await,
        r#"POST /v1/peering/establish {"PeerName":"west","PeeringToken":"planted"}"#
    );
    let peering = r#"{"ID":"462c45e8","Name":"east","State":"ACTIVE","Meta":null,"PeerID":"e83a315c",
        "PeerCAPems":null,"PeerServerName":"server.dc1.consul","PeerServerAddresses":["10.0.0.1:8300"],
        "StreamStatus":{"ImportedServices":["foo"],"ExportedServices":null,
        "LastHeartbeat":"2022-08-10T16:00:00Z","LastReceive":null,"LastSend":"0001-01-01T00:00:00Z"},
        "CreateIndex":89,"ModifyIndex":89}"#;
    let wire = Wire::new(200, peering).await;
    let found = wire.client.peering("east", &read()).await.unwrap().value.unwrap();
    assert_eq!(found.state, PeeringState::Active);
    assert_eq!(found.stream_status.imported_services, ["foo"]);
    assert_eq!(found.stream_status.last_send, None);
    assert_eq!(wire.sent().await, "GET /v1/peering/east");
    let wire = Wire::new(200, format!("[{peering}]")).await;
    assert_eq!(wire.client.peerings(&read()).await.unwrap().value, [found]);
    let wire = Wire::new(404, "").await;
    assert!(wire.client.peering("x", &read()).await.unwrap().value.is_none());
    wire.client.peering_delete("x", &write()).await.unwrap();
    assert_eq!(wire.sent().await, "DELETE /v1/peering/x");
    // A server before 1.13 has no such endpoint.
    assert!(wire.client.peerings(&read()).await.unwrap_err().is_not_found());
    let exported = r#"[{"Service":"api","Consumers":{"Peers":["east"],"Partitions":null}}]"#;
    let wire = Wire::new(200, exported).await;
    let found = wire.client.exported_services(&read()).await.unwrap().value;
    assert_eq!(
        (found[0].service.as_str(), &found[0].consumers.peers[..]),
        ("api", &["east".to_owned()][..])
    );
}
