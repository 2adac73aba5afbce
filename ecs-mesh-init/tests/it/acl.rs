//! mesh-init where ACLs are on and nothing is allowed by default: a token with exactly the needed
//! rules suffices, and with one rule less the error says which call was refused.

use consul_watch::{
    Client, WriteOptions,
    testing::{parts::Suite, real::Consul},
    types::{AclLink, AclPolicy, AclTokenRequest},
};
use ecs_mesh_init::{
    Error,
    bootstrap::{BootstrapRequest, GrpcAddress},
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::volume::{NODE, Volume};

const SUITE: Suite = Suite("ecs-mesh-init with ACLs");
const MANAGEMENT: &str = "5e6f9a52-27f9-4a4e-8f0c-6a1f7f9f3c11";

const SERVICE: &str = r#"service "web" { policy = "write" }"#;
const SIDECAR: &str = r#"service "web-sidecar-proxy" { policy = "write" }"#;

async fn sealed(case: &str, default_policy: &str) -> Option<Consul> {
    let part = SUITE.part("consul", case)?;
    let settings = json!({"acl": {
        "enabled": true, "default_policy": default_policy, "tokens": {"master": MANAGEMENT}}});
    Some(Consul::start_with(&part.path, settings).await.unwrap())
}

/// A token with these rules.
async fn token(management: &Client, name: &str, rules: &[String]) -> String {
    let options = WriteOptions::default();
    let policy = AclPolicy::new(name, rules.join("\n"));
    let policy = management.acl_policy_create(&policy, &options).await.unwrap();
    let mut token = AclTokenRequest::new(name);
    token.policies.push(AclLink::id(policy.id));
    let token = management.acl_token_create(&token, &options).await.unwrap();
    token.secret_id.unwrap().expose_secret().to_owned()
}

/// Runs with all rules, and with each of them missing.
async fn needs_exactly(consul: &Consul, config: &str, address: (&str, String), rules: &[String]) {
    let management = consul.client();
    for missing in [None, Some(0), Some(1)] {
        let mut some = rules.to_vec();
        let left_out = missing.map(|number| some.remove(number));
        let token =
            token(&management, &format!("without-{missing:?}").replace(['(', ')'], "-"), &some)
                .await;
        let vars = [address.clone(), ("CONSUL_HTTP_TOKEN", token.clone())];
        let volume = Volume::new();
        let result = volume.run(config, &vars).run(CancellationToken::new()).await;
        match left_out {
            None => result.unwrap(),
            Some(rule) => refused(&result.unwrap_err(), &rule, &token),
        }
    }
}

fn refused(error: &Error, rule: &str, token: &str) {
    let Error::Consul { operation, source } = error else { panic!("{error:?}") };
    let text = format!("{operation}: {}", consul_watch::error_chain(source));
    assert!(source.is_permission_denied(), "without {rule}: {text}");
    assert!(text.contains("Permission denied"), "without {rule}: {text}");
    assert!(operation.contains("web"), "it names what was refused: {text}");
    assert!(!text.contains(token) && !format!("{error:?}").contains(token));
}

#[tokio::test]
async fn registration_with_an_agent_needs_write_for_both_names() {
    let Some(consul) = sealed("rules for an agent", "deny").await else { return };
    let config = r#"{"bootstrapDir":"$DIR","service":{"port":8080}}"#;
    let address = ("CONSUL_HTTP_ADDR", consul.client().address().to_owned());
    needs_exactly(&consul, config, address, &[SERVICE.to_owned(), SIDECAR.to_owned()]).await;
}

#[tokio::test]
async fn registration_in_the_catalog_needs_write_for_both_names_and_the_node() {
    let Some(consul) = sealed("rules for the catalog", "deny").await else { return };
    let port = consul.client().address().rsplit_once(':').unwrap().1.to_owned();
    let config = format!(
        r#"{{"bootstrapDir":"$DIR","consulServers":{{"hosts":"127.0.0.1","defaults":{{"tls":false}},
        "http":{{"https":false,"port":{port}}}}},"service":{{"port":8080}},"transparentProxy":{{"enabled":false}}}}"#
    );
    let rules = [SERVICE.to_owned(), SIDECAR.to_owned()];
    let unused = ("AWS_REGION", String::new());
    // A node that is there already needs no rule; a new one does.
    let node_rule = format!("node {NODE:?} {{ policy = \"write\" }}");
    let all = [&rules[..], &[node_rule]].concat();
    let token = token(&consul.client(), "all-rules", &all).await;
    let vars = [("CONSUL_HTTP_TOKEN", token)];
    Volume::new().run(&config, &vars).run(CancellationToken::new()).await.unwrap();
    needs_exactly(&consul, &config, unused, &rules).await;
}

/// Spec: MI45
#[tokio::test]
async fn without_a_token_a_warning_comes_with_the_document() {
    let Some(consul) = sealed("warning without a token", "allow").await else { return };
    let management = consul.client();
    let config = r#"{"bootstrapDir":"$DIR","service":{"port":8080}}"#;
    let vars = [
        ("CONSUL_HTTP_ADDR", management.address().to_owned()),
        ("CONSUL_HTTP_TOKEN", MANAGEMENT.to_owned()),
    ];
    Volume::new().run(config, &vars).run(CancellationToken::new()).await.unwrap();
    let mut request = BootstrapRequest::new("web-abcdef-sidecar-proxy");
    request.grpc_address = Some(GrpcAddress::standard());
    let nobody = management.with_token(None).unwrap();
    let fetched = request.fetch(&nobody).await.unwrap();
    assert_eq!(fetched.warnings.len(), 1, "{:?}", fetched.warnings);
    assert!(fetched.warnings[0].starts_with("No ACL token was given and ACLs are enabled"));
    assert!(fetched.options.render(&|_| None).unwrap().to_text().starts_with('{'));

    request.token = Some(MANAGEMENT.into());
    let fetched = request.fetch(&management).await.unwrap();
    assert!(fetched.warnings.is_empty(), "{:?}", fetched.warnings);
}
