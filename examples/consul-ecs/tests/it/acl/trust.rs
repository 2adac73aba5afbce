//! Which roles may log in, from the command line and the configuration down to the auth method.

use consul_watch::{
    QueryOptions,
    testing::{DefaultPolicy, ServedConsul, TestConsul},
};
use serde_json::{Value, json};

use super::{
    process::Launch,
    world::{CLUSTER, MANAGEMENT, SUITE, eventually},
};

const OWN: &str = "arn:aws:iam::123456789012:role/consul-ecs/*";
const EVERY: &str = "arn:aws:iam::123456789012:role/*";

async fn consul() -> ServedConsul {
    SUITE.double("consul");
    let builder = TestConsul::builder().acls(DefaultPolicy::Deny).management_token(MANAGEMENT);
    builder.build().serve().await.unwrap()
}

/// Whom the auth method trusts that a controller makes; it needs no AWS for that.
async fn trusted(consul: &ServedConsul, arguments: &[&str], vars: &[(&str, String)]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let mut launch = Launch::new(arguments, folder.path().join("log"));
    let address = consul.address();
    for (name, value) in [
        ("CONSUL_HTTP_ADDR", address.as_str()),
        ("CONSUL_HTTP_TOKEN", MANAGEMENT),
        ("CONSUL_ECS_CLUSTER", CLUSTER),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
        ("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "none"),
    ] {
        launch.var(name, value);
    }
    for (name, value) in vars {
        launch.var(name, value);
    }
    let client = consul.client();
    let method = async || {
        let options = QueryOptions::default();
        client.acl_auth_method("iam-ecs-service-token", &options).await.unwrap().value
    };
    let mut running = launch.start();
    eventually("the auth method is there", async || {
        assert!(!launch.printed().contains("ERROR"), "{}", launch.printed());
        method().await.is_some()
    })
    .await;
    assert!(!running.has_ended(), "{}", launch.printed());
    running.kill().await;
    method().await.unwrap().config.expose()["BoundIAMPrincipalARNs"].clone()
}

/// Spec: ACL45
#[tokio::test]
async fn without_a_path_only_the_default_one_is_trusted() {
    let call = |more: &[&'static str]| [&["acl-controller"], more].concat();
    for (arguments, expected) in [
        (call(&[]), OWN),
        (call(&["-iam-role-path="]), OWN),
        (call(&["-iam-role-path", ""]), OWN),
        // Who wants every role says so.
        (call(&["-iam-role-path=/"]), EVERY),
    ] {
        let found = trusted(&consul().await, &arguments, &[]).await;
        assert_eq!(found, json!([expected]), "{arguments:?}");
    }
}

/// Spec: ACL45
#[tokio::test]
async fn without_a_path_in_the_configuration_only_the_default_one_is_trusted() {
    for (controller, expected) in [
        (None, OWN),
        (Some(json!(null)), OWN),
        (Some(json!({})), OWN),
        (Some(json!({"iamRolePath": null})), OWN),
        (Some(json!({"iamRolePath": ""})), OWN),
        (Some(json!({"iamRolePath": "/"})), EVERY),
    ] {
        let consul = consul().await;
        let port: u16 = consul.address().rsplit_once(':').unwrap().1.parse().unwrap();
        let mut config = json!({"bootstrapDir": "/consul", "consulServers": {"hosts": "127.0.0.1",
            "defaults": {"tls": false}, "http": {"https": false, "port": port}}});
        if let Some(controller) = &controller {
            config["controller"] = controller.clone();
        }
        let config = [("CONSUL_ECS_CONFIG_JSON", config.to_string())];
        let found = trusted(&consul, &["controller"], &config).await;
        assert_eq!(found, json!([expected]), "{controller:?}");
    }
}
