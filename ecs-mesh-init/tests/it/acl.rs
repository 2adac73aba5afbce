//! mesh-init where ACLs are on and nothing is allowed by default: a token with exactly the needed
//! rules suffices, and with one rule less the error says which call was refused.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    testing::{
        DefaultPolicy, ServedConsul, TestConsul,
        parts::{Part, Suite},
        real::Consul,
    },
    types::{AclLink, AclPolicy, AclTokenRequest, HealthStatus},
};
use ecs_mesh_init::{
    Error,
    bootstrap::{BootstrapRequest, GrpcAddress},
};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    servers::{checks_until, containers},
    volume::{NODE, Volume},
};

const SUITE: Suite = Suite("ecs-mesh-init with ACLs");
const MANAGEMENT: &str = "5e6f9a52-27f9-4a4e-8f0c-6a1f7f9f3c11";

/// Policies have unique names.
static NEXT: AtomicU32 = AtomicU32::new(0);

const SERVICE: &str = r#"service "web" { policy = "write" }"#;
const SIDECAR: &str = r#"service "web-sidecar-proxy" { policy = "write" }"#;

/// A Consul with ACLs.
enum Sealed {
    Real(Consul),
    Double(ServedConsul),
}

impl Sealed {
    async fn real(part: &Part, policy: DefaultPolicy) -> Self {
        let policy = if policy == DefaultPolicy::Deny { "deny" } else { "allow" };
        let old = part.major_minor() < (1, 11);
        let management = if old { "master" } else { "initial_management" };
        let settings = json!({"acl": {
            "enabled": true, "default_policy": policy, "tokens": {management: MANAGEMENT}}});
        Self::Real(Consul::start_with(&part.path, settings).await.unwrap())
    }

    async fn double(policy: DefaultPolicy) -> Self {
        SUITE.double("consul");
        let consul = TestConsul::builder().acls(policy).management_token(MANAGEMENT).build();
        Self::Double(consul.serve().await.unwrap())
    }

    /// A client with all rights.
    fn client(&self) -> Client {
        match self {
            Self::Real(consul) => consul.client(),
            Self::Double(consul) => consul.client(),
        }
    }
}

/// A token with these rules.
async fn token(management: &Client, rules: &[String]) -> String {
    let name = format!("policy-{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let options = WriteOptions::default();
    let policy = AclPolicy::new(&name, rules.join("\n"));
    let policy = management.acl_policy_create(&policy, &options).await.unwrap();
    let mut token = AclTokenRequest::new(name);
    token.policies.push(AclLink::id(policy.id));
    let token = management.acl_token_create(&token, &options).await.unwrap();
    token.secret_id.unwrap().expose_secret().to_owned()
}

/// Runs with all rules, and with each of them missing.
async fn needs_exactly(
    management: &Client,
    config: &str,
    address: (&str, String),
    rules: &[String],
) {
    for missing in [None, Some(0), Some(1)] {
        let mut some = rules.to_vec();
        let left_out = missing.map(|number| some.remove(number));
        let token = token(management, &some).await;
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

async fn an_agent_asks_for_write_on_both_names(management: &Client) {
    let config = r#"{"bootstrapDir":"$DIR","service":{"port":8080}}"#;
    let address = ("CONSUL_HTTP_ADDR", management.address().to_owned());
    needs_exactly(management, config, address, &[SERVICE.to_owned(), SIDECAR.to_owned()]).await;
}

async fn the_catalog_asks_for_write_on_both_names_and_a_new_node(management: &Client) {
    let port = management.address().rsplit_once(':').unwrap().1.to_owned();
    let config = format!(
        r#"{{"bootstrapDir":"$DIR","consulServers":{{"hosts":"127.0.0.1","defaults":{{"tls":false}},
        "http":{{"https":false,"port":{port}}}}},"service":{{"port":8080}},"transparentProxy":{{"enabled":false}}}}"#
    );
    let rules = [SERVICE.to_owned(), SIDECAR.to_owned()];
    let run = async |token: String| {
        let vars = [("CONSUL_HTTP_TOKEN", token)];
        Volume::new().run(&config, &vars).run(CancellationToken::new()).await
    };
    let without_node = token(management, &rules).await;
    refused(&run(without_node.clone()).await.unwrap_err(), "the node's", &without_node);
    let node = format!("node {NODE:?} {{ policy = \"write\" }}");
    run(token(management, &[&rules[..], &[node]].concat()).await).await.unwrap();
    // Once the node is there, nobody needs its rule.
    needs_exactly(management, &config, ("AWS_REGION", String::new()), &rules).await;
}

/// Without the node's rule Consul hides the checks from health-sync.
async fn health_sync_also_asks_to_read_the_node(management: &Client) {
    let port = management.address().rsplit_once(':').unwrap().1.to_owned();
    let config = format!(
        r#"{{"bootstrapDir":"$DIR","consulServers":{{"hosts":"127.0.0.1","defaults":{{"tls":false}},
        "http":{{"https":false,"port":{port}}}}},"service":{{"port":8080}},"healthSyncContainers":["app"],
        "transparentProxy":{{"enabled":false}}}}"#
    );
    let volume = Volume::new();
    containers(&volume, "HEALTHY", "RUNNING");
    let vars = [("CONSUL_HTTP_TOKEN", MANAGEMENT.to_owned())];
    volume.run(&config, &vars).run(CancellationToken::new()).await.unwrap();
    let both = [SERVICE.to_owned(), SIDECAR.to_owned()];
    let sync = async |rules: &[String], stop: &CancellationToken| {
        let vars = [("CONSUL_HTTP_TOKEN", token(management, rules).await)];
        let mut sync = volume.run(&config, &vars).health_sync(stop).await.unwrap();
        sync.period = Duration::from_millis(10);
        sync
    };
    let stop = CancellationToken::new();
    let error = sync(&both, &stop).await.run(stop.clone()).await.unwrap_err().to_string();
    assert!(error.contains("but 0 can be read") && error.contains("node:read"), "{error}");

    let node = format!("node {NODE:?} {{ policy = \"read\" }}");
    let running = sync(&[&both[..], &[node]].concat(), &stop).await.run(stop.clone());
    let running = tokio::spawn(running);
    checks_until(management, |check| check.status == HealthStatus::Passing).await;
    stop.cancel();
    checks_until(management, |check| check.status == HealthStatus::Critical).await;
    containers(&volume, "HEALTHY", "STOPPED");
    running.await.unwrap().unwrap();
    let left = management.catalog_service("web", &QueryOptions::default()).await.unwrap().value;
    assert!(left.iter().all(|service| service.node != NODE), "{left:?}");
}

/// Without a token a document is made all the same, and a warning comes with it.
async fn a_missing_token_is_warned_of(management: &Client) {
    let config = r#"{"bootstrapDir":"$DIR","service":{"port":8080}}"#;
    let vars = [
        ("CONSUL_HTTP_ADDR", management.address().to_owned()),
        ("CONSUL_HTTP_TOKEN", MANAGEMENT.to_owned()),
    ];
    Volume::new().run(config, &vars).run(CancellationToken::new()).await.unwrap();
    let mut request = BootstrapRequest::new("web-abcdef-sidecar-proxy");
    request.grpc_address = Some(GrpcAddress::standard());
    let fetched = request.fetch(&management.with_token(None).unwrap()).await.unwrap();
    assert_eq!(fetched.warnings.len(), 1, "{:?}", fetched.warnings);
    assert!(fetched.warnings[0].starts_with("No ACL token was given and ACLs are enabled"));
    assert!(fetched.options.render(&|_| None).unwrap().to_text().starts_with('{'));

    request.token = Some(MANAGEMENT.into());
    let fetched = request.fetch(management).await.unwrap();
    assert!(fetched.warnings.is_empty(), "{:?}", fetched.warnings);
}

#[tokio::test]
async fn rules_on_a_double() {
    let consul = Sealed::double(DefaultPolicy::Deny).await;
    an_agent_asks_for_write_on_both_names(&consul.client()).await;
    the_catalog_asks_for_write_on_both_names_and_a_new_node(&consul.client()).await;
    health_sync_also_asks_to_read_the_node(&consul.client()).await;
}

#[tokio::test]
async fn rules_on_a_real_consul() {
    for part in SUITE.parts("consul", "rules") {
        let consul = Sealed::real(&part, DefaultPolicy::Deny).await;
        an_agent_asks_for_write_on_both_names(&consul.client()).await;
        the_catalog_asks_for_write_on_both_names_and_a_new_node(&consul.client()).await;
        health_sync_also_asks_to_read_the_node(&consul.client()).await;
    }
}

/// Case MI45: with ACLs and no token there is a warning, and the document all the same.
#[tokio::test]
async fn a_missing_token_on_a_double() {
    let consul = Sealed::double(DefaultPolicy::Allow).await;
    a_missing_token_is_warned_of(&consul.client()).await;
}

/// Case MI45: with ACLs and no token there is a warning, and the document all the same.
#[tokio::test]
async fn a_missing_token_on_a_real_consul() {
    for part in SUITE.parts("consul", "a missing token") {
        let consul = Sealed::real(&part, DefaultPolicy::Allow).await;
        a_missing_token_is_warned_of(&consul.client()).await;
    }
}
