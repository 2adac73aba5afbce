//! Cases of the configuration format, most of them upstream's own.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const FULL: &str = r#"{
  "bootstrapDir": "/consul", "logLevel": "DEBUG", "healthSyncContainers": ["frontend"],
  "consulLogin": {"enabled": true, "method": "m", "datacenter": "dc1", "includeEntity": false, "meta": {"a": "b"},
    "region": "us-west-2", "stsEndpoint": "https://sts", "serverIdHeaderValue": "id"},
  "consulServers": {"hosts": "consul.dc1", "skipServerWatch": true,
    "defaults": {"caCertFile": "/ca.pem", "tls": true, "tlsServerName": "name"},
    "grpc": {"port": 8502, "caCertFile": "/grpc.pem", "tls": false, "tlsServerName": "g"},
    "http": {"port": 8500, "https": false, "caCertFile": "/http.pem", "tls": true, "tlsServerName": "h"}},
  "controller": {"iamRolePath": "/x/", "partitionsEnabled": true, "partition": "p"},
  "service": {"name": "frontend", "tags": ["a"], "port": 8080, "enableTagOverride": true, "meta": {"env": "test"},
    "weights": {"passing": 6, "warning": 5}, "namespace": "ns", "partition": "ptn",
    "networkResilienceConfig": {"enabled": true, "outlierDetection": {"interval": 5, "maxFailures": 3,
      "enforcingConsecutive5xx": 50, "consecutive5xx": 4, "enforcingConsecutiveGatewayFailure": 60,
      "consecutiveGatewayFailure": 7, "maxEjectionPercent": 80}}},
  "proxy": {"publicListenerPort": 21000, "healthCheckPort": 23000, "localServiceAddress": "10.0.0.1", "config": {"k": 1},
    "upstreams": [{"destinationType": "service", "destinationNamespace": "n", "destinationPartition": "p",
      "destinationPeer": "peer", "destinationName": "backend", "datacenter": "dc2", "localBindAddress": "localhost",
      "localBindPort": 1234, "config": {"x": true}, "meshGateway": {"mode": "local"}}],
    "meshGateway": {"mode": "local"},
    "expose": {"checks": true, "paths": [{"listenerPort": 20001, "path": "/things", "localPathPort": 8080, "protocol": "http2"}]}},
  "transparentProxy": {"enabled": true, "excludeInboundPorts": [1], "excludeOutboundPorts": [2],
    "excludeOutboundCIDRs": ["10.0.0.0/8"], "excludeUIDs": ["7"], "consulDNS": {"enabled": true}}
}"#;

fn violations(generation: Generation, text: &str) -> Vec<String> {
    match Config::parse_as(generation, text).unwrap_err() {
        Error::Config { violations } => violations.iter().map(ToString::to_string).collect(),
        other => panic!("{other}"),
    }
}

fn minimal(extra: &str) -> String {
    format!(r#"{{"bootstrapDir":"/consul","consulServers":{{"hosts":"h"}}{extra}}}"#)
}

#[test]
fn every_key_of_the_current_schema_is_read() {
    let config = Config::parse(FULL).unwrap();
    assert_eq!(config.generation, Generation::Current);
    assert_eq!(config.log_level, LogLevel::Debug);
    let login = config.login().unwrap();
    assert_eq!((login.method.as_str(), login.include_entity), ("m", false));
    assert_eq!(login.meta["a"], "b");
    assert_eq!(login.server_id_header_value, "id");
    let servers = config.consul_servers.as_ref().unwrap();
    let expected =
        TlsSettings { enabled: false, ca_cert_file: "/grpc.pem".into(), server_name: "g".into() };
    assert_eq!(servers.grpc_tls(), expected);
    let expected =
        TlsSettings { enabled: false, ca_cert_file: "/http.pem".into(), server_name: "h".into() };
    assert_eq!(servers.http_tls(), expected);
    assert_eq!(config.controller.as_ref().unwrap().iam_role_path, "/x/");
    let service = config.service.as_ref().unwrap();
    assert_eq!(service.weights, Some(WeightsConfig { passing: 6, warning: 5 }));
    let outliers = service.network_resilience_config.as_ref().unwrap().outlier_detection.unwrap();
    assert_eq!((outliers.interval, outliers.consecutive_5xx), (Some(5), Some(4)));
    assert_eq!(
        (outliers.enforcing_consecutive_5xx, outliers.max_ejection_percent),
        (Some(50), Some(80))
    );
    assert_eq!(config.proxy.upstreams[0].destination_peer, "peer");
    assert_eq!(config.proxy.expose.as_ref().unwrap().paths[0].listener_port, 20001);
    assert_eq!(config.health_check_port(), 23000);
    assert!(config.uses_consul_dns());
    assert_eq!(config.transparent_proxy.exclude_uids, ["7"]);
}

/// Case MI2: a configuration that is unset or empty is an error with the variable's name.
#[test]
fn a_missing_variable_is_named() {
    for value in [None, Some(String::new())] {
        let error = Config::from_vars(|_| value.clone()).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"invalid config: "CONSUL_ECS_CONFIG_JSON" isn't populated"#
        );
    }
}

/// Case MI3: `service.checks` belongs to the early generation only.
#[test]
fn checks_belong_to_the_early_generation() {
    let error =
        Config::parse(&minimal(r#","service":{"port":1,"checks":[]}"#)).unwrap_err().to_string();
    assert_eq!(
        error,
        "invalid config: 1 error occurred:\n\t* service: Additional property checks is not allowed"
    );
}

/// Case MI4: names in upper case match the pattern neither for a service nor for a gateway.
#[test]
fn names_in_upper_case_are_refused() {
    let text = minimal(
        r#","service":{"name":"Frontend","port":1},"gateway":{"kind":"mesh-gateway","name":"G"}"#,
    );
    let found = violations(Generation::Current, &text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("service.name: Does not match pattern"), "{found:?}");
    assert!(found[1].starts_with("gateway.name: Does not match pattern"), "{found:?}");
}

/// Case MI5: an empty `bootstrapDir` and missing `consulServers` are two errors of one report.
#[test]
fn all_violations_are_collected() {
    let found = violations(Generation::Current, r#"{"bootstrapDir":""}"#);
    assert_eq!(
        found,
        [
            "(root): consulServers is required",
            "bootstrapDir: String length must be greater than or equal to 1"
        ]
    );
    let error = Config::parse_as(Generation::Current, r#"{"bootstrapDir":""}"#).unwrap_err();
    assert!(error.to_string().starts_with("invalid config: 2 errors occurred:\n\t* (root): "));
}

/// Case MI6: nulls and empty values, at the top and nested, parse to the defaults.
#[test]
fn null_and_empty_mean_the_default() {
    let nulls = minimal(
        r#","logLevel":null,"healthSyncContainers":null,"consulLogin":null,"controller":null,"proxy":null,
          "transparentProxy":null,"service":{"port":0,"name":null,"tags":null,"meta":null,"weights":null,
          "enableTagOverride":null,"namespace":null,"partition":null,"networkResilienceConfig":null}"#,
    );
    let config = Config::parse(&nulls).unwrap();
    assert_eq!(config.consul_login, Some(LoginConfig::default()));
    assert_eq!(config.controller, Some(ControllerConfig::default()));
    assert_eq!(config.service, Some(ServiceConfig::default()));
    assert_eq!(config.proxy, ProxyConfig::default());

    let nested = minimal(
        r#","consulLogin":{"enabled":null,"method":null,"datacenter":null,"meta":null,"region":null,"stsEndpoint":null,
          "serverIdHeaderValue":null},"proxy":{"config":null,"upstreams":[{"destinationName":"a","localBindPort":1,
          "destinationType":null,"config":null,"meshGateway":null}],"meshGateway":null,"expose":{"checks":null,"paths":null}},
          "transparentProxy":{"enabled":null,"excludeUIDs":null}"#,
    );
    let config = Config::parse(&nested).unwrap();
    assert_eq!(config.consul_login, Some(LoginConfig::default()));
    assert_eq!(config.proxy.expose, Some(ExposeConfig::default()));
    assert!(config.transparent_proxy.enabled);

    let empty = minimal(
        r#","consulLogin":{"method":""},"controller":{"iamRolePath":""},"proxy":{"publicListenerPort":0}"#,
    );
    let config = Config::parse(&empty).unwrap();
    assert_eq!(config.consul_login.unwrap().method, "iam-ecs-service-token");
    assert_eq!(config.controller.unwrap().iam_role_path, "/consul-ecs/");
    assert_eq!(config.proxy.public_listener_port, 20000);

    for name in ["service", "gateway", "consulServers"] {
        let mut document: Value = serde_json::from_str(&minimal("")).unwrap();
        document[name] = Value::Null;
        let found = violations(Generation::Current, &document.to_string());
        assert_eq!(found, [format!("{name}: Invalid type. Expected: object, given: null")]);
    }
}

/// Case MI7: `includeEntity` is true unless it is `false`.
#[test]
fn the_entity_is_included_unless_switched_off() {
    for (value, expected) in [
        ("{}", true),
        (r#"{"includeEntity":null}"#, true),
        (r#"{"includeEntity":true}"#, true),
        (r#"{"includeEntity":false}"#, false),
    ] {
        let config = Config::parse(&minimal(&format!(r#","consulLogin":{value}"#))).unwrap();
        assert_eq!(config.consul_login.unwrap().include_entity, expected, "{value}");
    }
}

/// Case MI8: `consulServers` with hosts alone means TLS, gRPC port 8503 and HTTPS port 8501.
#[test]
fn servers_use_tls_and_the_tls_ports_by_default() {
    let servers = Config::parse(&minimal("")).unwrap().consul_servers.unwrap();
    let expected =
        TlsSettings { enabled: true, ca_cert_file: String::new(), server_name: "h".into() };
    assert_eq!(servers.grpc_tls(), expected);
    assert_eq!(servers.http_tls(), expected);
    assert_eq!((servers.grpc.port, servers.http.port, servers.http.https), (8503, 8501, true));
}

/// Case MI9: `grpc.tls` overrides `defaults.tls` for gRPC alone.
#[test]
fn grpc_may_differ_from_the_default() {
    let text = r#"{"bootstrapDir":"/c","consulServers":{"hosts":"exec=discover","defaults":{"tls":true},"grpc":{"tls":false}}}"#;
    let servers = Config::parse(text).unwrap().consul_servers.unwrap();
    assert!(!servers.grpc_tls().enabled);
    assert!(servers.http_tls().enabled);
    assert_eq!(servers.http_tls().server_name, "");
}

/// Case MI10: `transparentProxy` is on unless switched off, and never for gateways.
#[test]
fn traffic_is_redirected_unless_switched_off_or_a_gateway() {
    for (extra, expected) in [
        ("", true),
        (r#","transparentProxy":{}"#, true),
        (r#","transparentProxy":{"enabled":false}"#, false),
        (r#","gateway":{"kind":"mesh-gateway"}"#, false),
        (r#","gateway":{"kind":"api-gateway"},"transparentProxy":{"enabled":true}"#, false),
    ] {
        let config = Config::parse(&minimal(extra)).unwrap();
        assert_eq!(config.redirects_traffic(), expected, "{extra}");
    }
}

#[test]
fn the_early_generation_has_checks_an_agent_and_no_servers() {
    let config = Config::parse(
        r#"{"bootstrapDir":"/consul","consulHTTPAddr":"https://consul:8501","consulCACertFile":"/ca.pem",
            "service":{"port":8080.0,"checks":[{"checkId":"c","http":"http://x","interval":"10s",
              "header":{"Authorization":["planted-secret"]},"successBeforePassing":2}]}}"#,
    )
    .unwrap();
    assert_eq!(config.generation, Generation::Early);
    assert!(!config.redirects_traffic());
    let service = config.service.unwrap();
    assert_eq!((service.port, service.checks[0].success_before_passing), (8080, 2));
    assert!(!format!("{service:?}").contains("planted-secret"));
    let both = r#"{"bootstrapDir":"/c","healthSyncContainers":["a"],"service":{"port":1,"checks":[{"ttl":"1s"}]}}"#;
    assert_eq!(
        Config::parse(both).unwrap_err().to_string(),
        "only one of service.checks or healthSyncContainers should be set"
    );
    assert_eq!(
        violations(Generation::Early, &minimal("")),
        [
            "(root): Additional property consulServers is not allowed",
            "(root): one of service and gateway is required",
        ]
    );
}

#[test]
fn violations_name_the_path_and_what_is_expected() {
    let text = minimal(
        r#","logLevel":"loud","healthSyncContainers":["a","a"],"service":{"port":"80","weights":{"passing":1},
          "networkResilienceConfig":{"outlierDetection":{"maxFailures":0,"maxEjectionPercent":101}}},
          "proxy":{"upstreams":[{"localBindPort":1.5}],"meshGateway":{"mode":"x"}},"consulLogin":{"meta":{"k":1}}"#,
    );
    assert_eq!(
        violations(Generation::Current, &text),
        [
            r#"logLevel: logLevel must be one of the following: "TRACE", "DEBUG", "INFO", "WARN", "ERROR", null"#,
            "healthSyncContainers: array items[0,1] must be unique",
            "consulLogin.meta.k: Invalid type. Expected: string, given: integer",
            "service.port: Invalid type. Expected: integer, given: string",
            "service.weights: warning is required",
            "service.networkResilienceConfig.outlierDetection.maxFailures: Must be greater than or equal to 1",
            "service.networkResilienceConfig.outlierDetection.maxEjectionPercent: Must be less than or equal to 100",
            "proxy.upstreams.0: destinationName is required",
            "proxy.upstreams.0.localBindPort: Invalid type. Expected: integer, given: number",
            r#"proxy.meshGateway.mode: proxy.meshGateway.mode must be one of the following: "none", "local", "remote""#,
        ]
    );
    assert_eq!(
        violations(Generation::Current, "[]"),
        ["(root): Invalid type. Expected: object, given: array"]
    );
    assert!(violations(Generation::Current, "{")[0].starts_with("(root): Invalid JSON: "));
}

#[test]
fn a_health_check_port_is_an_integer() {
    for (value, port) in [("23000", 23000), ("null", 22000), ("0", 22000), ("22001.0", 22001)] {
        for owner in ["proxy", "gateway"] {
            let kind = if owner == "gateway" { r#""kind":"api-gateway","# } else { "" };
            let text = minimal(&format!(r#","{owner}":{{{kind}"healthCheckPort":{value}}}"#));
            assert_eq!(Config::parse(&text).unwrap().health_check_port(), port, "{owner} {value}");
        }
    }
    for (value, problem) in [
        ("\"x\"", "Invalid type. Expected: [integer,null], given: string"),
        ("\"23000\"", "Invalid type. Expected: [integer,null], given: string"),
        ("1.5", "Invalid type. Expected: [integer,null], given: number"),
        ("[]", "Invalid type. Expected: [integer,null], given: array"),
        ("70000", "Must be less than or equal to 65535"),
    ] {
        let text = minimal(&format!(r#","proxy":{{"healthCheckPort":{value}}}"#));
        let expected = format!("proxy.healthCheckPort: {problem}");
        assert_eq!(violations(Generation::Current, &text), [expected], "{value}");
    }
}

/// A configuration without `consulServers` counts as early only if it has a key of that generation.
#[test]
fn a_configuration_that_lacks_its_servers_is_told_so() {
    let found = |text: &str| match Config::parse(text).unwrap_err() {
        Error::Config { violations } => {
            violations.iter().map(ToString::to_string).collect::<Vec<_>>()
        }
        other => panic!("{other}"),
    };
    assert_eq!(found(r#"{"bootstrapDir":"/x"}"#), ["(root): consulServers is required"]);
    assert_eq!(
        found("{}"),
        ["(root): bootstrapDir is required", "(root): consulServers is required"]
    );
    assert_eq!(
        found(
            r#"{"bootstrapDir":"/x","service":{"prot":1},"transparentProxy":{"enabled":false},"extra":1}"#
        ),
        [
            "(root): consulServers is required",
            "(root): Additional property extra is not allowed",
            "service: port is required",
            "service: Additional property prot is not allowed",
        ]
    );
    assert_eq!(
        found(r#"{"bootstrapDir":"/x","consulHTTPAddr":"http://h"}"#),
        ["(root): one of service and gateway is required"]
    );
}

/// Replaces the value at the `at`-th place of the document, in the order of a walk.
fn mutate(value: &mut Value, at: &mut usize, with: &Value) {
    if *at == 0 {
        *value = with.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Object(members) => members.values_mut().for_each(|inner| mutate(inner, at, with)),
        Value::Array(items) => items.iter_mut().for_each(|inner| mutate(inner, at, with)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _result = Config::parse(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn a_mutated_document_is_read_or_refused_with_a_path(
        at in 0_usize..110,
        with in prop_oneof![
            Just(json!(null)), Just(json!(-1)), Just(json!(1.5)), Just(json!(1e40)), Just(json!("")), Just(json!("é")),
            Just(json!([])), Just(json!({})), Just(json!([null])), Just(json!({"k": null})), Just(json!(true)),
        ],
    ) {
        let mut document: Value = serde_json::from_str(FULL).unwrap();
        mutate(&mut document, &mut at.clone(), &with);
        match Config::parse(&document.to_string()) {
            Ok(_) | Err(Error::Input { .. }) => {}
            Err(Error::Config { violations }) => prop_assert!(!violations.is_empty()),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}
