//! Service defaults that mesh-init completes.

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::ConfigEntry,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{body_partial_json, method, path},
};

use crate::{
    mesh_init::{current, mount},
    volume::Volume,
};

/// Runs with service defaults that Consul has, and expects these to be written.
async fn service_defaults_become(existing: ResponseTemplate, expected: Value) {
    let server = MockServer::start().await;
    let ok = |body: Value| ResponseTemplate::new(200).set_body_json(body);
    mount(&server, "GET", "/v1/status/leader", ok(json!("127.0.0.1:8300"))).await;
    mount(&server, "PUT", "/v1/catalog/register", ok(json!(true))).await;
    mount(&server, "GET", "/v1/config/service-defaults/web", existing).await;
    Mock::given(method("PUT"))
        .and(path("/v1/config"))
        .and(body_partial_json(expected))
        .respond_with(ok(json!(true)))
        .expect(1)
        .mount(&server)
        .await;
    let config = current(
        &server.uri(),
        r#","service":{"port":1,"networkResilienceConfig":{"enabled":true}},"transparentProxy":{"enabled":false}"#,
    );
    Volume::new().run(&config, &[]).run(CancellationToken::new()).await.unwrap();
}

/// Case MI23: service-defaults without a passive health check get one; an existing one stays.
#[tokio::test]
async fn service_defaults_get_a_passive_health_check_unless_they_have_one() {
    let entry = |rest: Value| {
        let mut entry = json!({"Kind": "service-defaults", "Name": "web"});
        entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        entry
    };
    let ok = |body: &Value| ResponseTemplate::new(200).set_body_json(body);
    let check = json!({"Interval": 10_000_000_000_u64, "MaxFailures": 5,
        "EnforcingConsecutiveGatewayFailure": 100, "MaxEjectionPercent": 50});
    let defaults = |check: &Value| json!({"Defaults": {"PassiveHealthCheck": check}});
    let missing = ResponseTemplate::new(404)
        .set_body_string(r#"Config entry not found for "service-defaults" / "web""#);
    service_defaults_become(missing, entry(json!({"UpstreamConfig": defaults(&check)}))).await;

    let existing =
        entry(json!({"Protocol": "http", "UpstreamConfig": {"Defaults": {"ConnectTimeoutMs": 7}}}));
    let merged = json!({"Protocol": "http", "UpstreamConfig":
        {"Defaults": {"ConnectTimeoutMs": 7, "PassiveHealthCheck": check}}});
    service_defaults_become(ok(&existing), entry(merged)).await;

    // It is written also when nothing changes.
    let own = entry(json!({"UpstreamConfig": defaults(&json!({"MaxFailures": 1}))}));
    service_defaults_become(ok(&own), own.clone()).await;
}

const SUITE: Suite = Suite("ecs-mesh-init's service defaults");

/// Two tasks of a service start at once while an operator changes the entry: nothing is lost.
async fn nobodys_change_is_lost(client: &Client) {
    let config = current(
        client.address(),
        r#","service":{"port":1,"networkResilienceConfig":{"enabled":true}},"transparentProxy":{"enabled":false}"#,
    );
    let (query, options) = (QueryOptions::default(), WriteOptions::default());
    let read = async || {
        client.config_entry("service-defaults", "web", &query).await.unwrap().value.unwrap()
    };
    let mut entry = ConfigEntry::new("service-defaults", "web");
    entry.settings.insert("Protocol".into(), "http".into());
    client.config_set(&entry, None, &options).await.unwrap();
    let operator = async {
        // Fewer than mesh-init tries again.
        for number in 0..4 {
            loop {
                let mut entry = read().await;
                entry.settings.insert("ExternalSNI".into(), format!("sni-{number}").into());
                if client.config_set(&entry, Some(entry.modify_index), &options).await.unwrap() {
                    break;
                }
            }
        }
    };
    let (one, two) = (Volume::new(), Volume::new());
    let task = async |volume: &Volume| {
        volume.run(&config, &[]).run(CancellationToken::new()).await.unwrap();
    };
    tokio::join!(operator, task(&one), task(&two));
    let settings = read().await.settings;
    assert_eq!(settings["Protocol"], "http");
    assert_eq!(settings["ExternalSNI"], "sni-3");
    let check = &settings["UpstreamConfig"]["Defaults"]["PassiveHealthCheck"];
    assert_eq!(check["MaxFailures"], 5, "{settings:?}");
}

#[tokio::test]
async fn changes_at_the_same_time_are_kept_by_a_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    nobodys_change_is_lost(&consul.client()).await;
}

#[tokio::test]
async fn changes_at_the_same_time_are_kept_by_a_real_consul() {
    let case = "changes at the same time";
    for part in SUITE.parts("consul", case) {
        if part.major_minor() < (1, 9) {
            // It has no passive health check for all upstreams.
            SUITE.not_applicable("consul", case, "UpstreamConfig came with Consul 1.9");
            continue;
        }
        let consul = Consul::start(&part.path).await.unwrap();
        nobodys_change_is_lost(&consul.client()).await;
    }
}
