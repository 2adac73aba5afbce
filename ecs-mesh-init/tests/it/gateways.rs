//! Gateways of every kind through the catalog.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{body_partial_json, header, method, path},
};

use crate::{
    mesh_init::{current, mount},
    volume::{Counted, NODE, Volume},
};

/// Registers a gateway of a kind; with a login, its token is used and given back.
async fn gateway_joins(kind: &str, logs_in: bool) {
    let server = MockServer::start().await;
    let ok = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    mount(&server, "GET", "/v1/status/leader", ok(json!("127.0.0.1:8300"))).await;
    Mock::given(method("POST"))
        .and(path("/v1/acl/login"))
        .and(body_partial_json(json!({"AuthMethod": "iam-ecs-service-token", "BearerToken": "bearer-0", "Meta": {
            "consul.hashicorp.com/task-id": "abcdef", "consul.hashicorp.com/cluster": NODE, "own": "1"}})))
        .respond_with(ok(json!({"AccessorID": "a", "SecretID": "planted-token"})))
        .expect(u64::from(logs_in))
        .mount(&server)
        .await;
    let body = json!({"Node": NODE, "Service": {"Kind": kind, "ID": "web-abcdef", "Service": "web", "Port": 8443,
        "Address": "10.0.1.7"}});
    let mut registered =
        Mock::given(method("PUT")).and(path("/v1/catalog/register")).and(body_partial_json(body));
    let mut logged_out = Mock::given(method("POST")).and(path("/v1/acl/logout"));
    if logs_in {
        registered = registered.and(header("x-consul-token", "planted-token"));
        logged_out = logged_out.and(header("x-consul-token", "planted-token"));
    }
    registered.respond_with(ok(json!(true))).expect(1).mount(&server).await;
    let logged_out = logged_out.respond_with(ok(json!(true))).expect(u64::from(logs_in));
    logged_out.mount(&server).await;
    let volume = Volume::new();
    let extra = format!(
        r#","gateway":{{"kind":"{kind}"}},"consulLogin":{{"enabled":{logs_in},"meta":{{"own":"1"}}}}"#
    );
    let config = current(&server.uri(), &extra);
    let mut run = volume.run(&config, &[]);
    run.bearer_tokens = Some(Arc::new(Counted::default()));
    run.run(CancellationToken::new()).await.unwrap();
    let credentials = &volume.read("consul-dataplane.json")["consul"]["credentials"];
    if logs_in {
        let login = &credentials["login"];
        assert_eq!((&login["bearerToken"], &login["datacenter"]), (&json!("bearer-1"), &json!("")));
        let error = volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap_err();
        assert!(error.to_string().contains("iam-auth"), "{error}");
    } else {
        assert_eq!(credentials, &Value::Null);
    }
}

/// Case MI16: each feature of a configuration has its registration and its files with their modes,
/// and all checks start critical.
/// Case MI19: a mesh gateway has port 8443 unless `lanAddress` sets one; addresses are tagged `lan`
/// and `wan`.
/// Case MI20: terminating and API gateways register with port 8443, with and without a login.
#[tokio::test]
async fn gateways_join_with_and_without_a_login() {
    for kind in ["mesh-gateway", "terminating-gateway", "api-gateway"] {
        gateway_joins(kind, false).await;
        gateway_joins(kind, true).await;
    }
}
