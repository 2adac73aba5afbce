//! Cases of what is registered: names, addresses and checks, for agent and catalog.

use serde_json::{Value, json};

use super::*;
use crate::registration::{agent_registration, catalog_registration};

const NODE: &str = "arn:aws:ecs:us-east-1:123456789:cluster/test";

fn task() -> Task {
    Task::parse(
        br#"{"Cluster":"test","TaskARN":"arn:aws:ecs:us-east-1:123456789:task/test/abcdef","Family":"Test-Service",
            "AvailabilityZone":"us-east-1a","Containers":[{"Networks":[{"IPv4Addresses":["10.0.1.7"]}]}]}"#,
    )
    .unwrap()
}

fn plan(config: &str) -> TaskPlan {
    TaskPlan::new(&Config::parse(config).unwrap(), &task(), None).unwrap()
}

fn agent(service: &MeshService) -> Value {
    serde_json::to_value(agent_registration(service)).unwrap()
}

fn catalog(service: &MeshService) -> Value {
    serde_json::to_value(catalog_registration(service, NODE)).unwrap()
}

const EARLY: &str = r#"{"bootstrapDir":"/consul","healthSyncContainers":["frontend"],
  "service":{"name":"frontend","tags":["a"],"port":8080,"enableTagOverride":true,"meta":{"env":"test"},
    "weights":{"passing":6,"warning":5},"namespace":"ns","partition":"ptn"},
  "proxy":{"upstreams":[{"destinationType":"service","destinationName":"backend","datacenter":"dc2",
      "localBindAddress":"localhost","localBindPort":1234,"config":{"k":"v"},"meshGateway":{"mode":"local"}}],
    "meshGateway":{"mode":"local"},"config":{"c":1},
    "expose":{"checks":true,"paths":[{"listenerPort":20001,"path":"/things","localPathPort":8080,"protocol":"http2"}]}}}"#;

#[test]
fn an_agent_gets_the_service_and_its_sidecar() {
    let plan = plan(EARLY);
    assert_eq!(
        agent(plan.service.as_ref().unwrap()),
        json!({
            "ID": "frontend-abcdef", "Name": "frontend", "Tags": ["a"], "Port": 8080, "EnableTagOverride": true,
            "Meta": {"task-id": "abcdef", "task-arn": "arn:aws:ecs:us-east-1:123456789:task/test/abcdef",
                "source": "consul-ecs", "env": "test"},
            "Weights": {"Passing": 6, "Warning": 5}, "Namespace": "ns", "Partition": "ptn",
            "Checks": [{"CheckID": "frontend-abcdef-frontend-consul-ecs", "Name": "consul ecs synced", "TTL": "100000h0m0s",
                "Notes": "consul-ecs created and updates this check because the frontend container is essential and has an ECS health check."}],
        })
    );
    assert_eq!(
        agent(&plan.proxy),
        json!({
            "Kind": "connect-proxy", "ID": "frontend-abcdef-sidecar-proxy", "Name": "frontend-sidecar-proxy",
            "Port": 20000, "Tags": ["a"], "EnableTagOverride": true, "Namespace": "ns", "Partition": "ptn",
            "Meta": {"task-id": "abcdef", "task-arn": "arn:aws:ecs:us-east-1:123456789:task/test/abcdef",
                "source": "consul-ecs", "env": "test"},
            "Weights": {"Passing": 6, "Warning": 5},
            "Proxy": {"DestinationServiceName": "frontend", "DestinationServiceID": "frontend-abcdef",
                "LocalServicePort": 8080, "Config": {"c": 1},
                "Upstreams": [{"DestinationType": "service", "DestinationName": "backend", "Datacenter": "dc2",
                    "LocalBindAddress": "localhost", "LocalBindPort": 1234, "Config": {"k": "v"}, "MeshGateway": {"Mode": "local"}}],
                "MeshGateway": {"Mode": "local"},
                "Expose": {"Checks": true, "Paths": [{"ListenerPort": 20001, "Path": "/things", "LocalPathPort": 8080, "Protocol": "http2"}]}},
            "Checks": [
                {"Name": "Proxy Public Listener", "TCP": "127.0.0.1:20000", "Interval": "10s", "DeregisterCriticalServiceAfter": "10m0s"},
                {"Name": "Destination Alias", "AliasService": "frontend-abcdef"}],
        })
    );
}

#[test]
fn checks_of_the_service_go_to_the_agent_one_to_one() {
    let plan = plan(
        r#"{"bootstrapDir":"/c","service":{"port":1,"checks":[{"checkId":"c","name":"n","args":["a"],"interval":"10s",
        "timeout":"1m30s","ttl":"","http":"http://x","header":{"h":["1"]},"method":"POST","body":"b","tcp":"t:1","udp":"u:1",
        "status":"warning","notes":"no","tlsServerName":"s","tlsSkipVerify":true,"grpc":"g:1","grpcUseTls":true,
        "h2ping":"p:1","h2pingUseTls":false,"aliasNode":"an","aliasService":"as","successBeforePassing":2,
        "failuresBeforeCritical":3}]}}"#,
    );
    assert_eq!(
        agent(plan.service.as_ref().unwrap())["Checks"][0],
        json!({"CheckID": "c", "Name": "n", "ScriptArgs": ["a"], "Interval": "10s", "Timeout": "1m30s", "HTTP": "http://x",
            "Header": {"h": ["1"]}, "Method": "POST", "Body": "b", "TCP": "t:1", "UDP": "u:1", "Status": "warning", "Notes": "no",
            "TLSServerName": "s", "TLSSkipVerify": true, "GRPC": "g:1", "GRPCUseTLS": true, "H2PING": "p:1", "H2PingUseTLS": false,
            "AliasNode": "an", "AliasService": "as", "SuccessBeforePassing": 2, "FailuresBeforeCritical": 3})
    );
    let wrong = r#"{"bootstrapDir":"/c","service":{"port":1,"checks":[{"interval":"soon"}]}}"#;
    let error =
        TaskPlan::new(&Config::parse(wrong).unwrap(), &task(), None).unwrap_err().to_string();
    assert!(error.starts_with(r#"invalid config: service.checks: interval "soon""#), "{error}");
}

fn current(extra: &str) -> String {
    format!(r#"{{"bootstrapDir":"/consul","consulServers":{{"hosts":"consul.dc1"}}{extra}}}"#)
}

#[test]
fn the_catalog_gets_the_service_with_its_checks() {
    let config = current(
        r#","healthSyncContainers":["frontend"],"service":{"name":"frontend","tags":["a"],"port":8080,"namespace":"ns","partition":"ptn"}"#,
    );
    let plan = TaskPlan::new(&Config::parse(&config).unwrap(), &task(), Some("us-east-1")).unwrap();
    assert_eq!(
        catalog(plan.service.as_ref().unwrap()),
        json!({
            "Node": NODE, "NodeMeta": {"synthetic-node": "true"}, "Address": "10.0.1.7", "SkipNodeUpdate": true, "Partition": "ptn",
            "Service": {"ID": "frontend-abcdef", "Service": "frontend", "Tags": ["a"],
                "Meta": {"task-id": "abcdef", "task-arn": "arn:aws:ecs:us-east-1:123456789:task/test/abcdef", "source": "consul-ecs"},
                "Port": 8080, "Address": "10.0.1.7", "Weights": {"Passing": 1, "Warning": 1}, "Namespace": "ns", "Partition": "ptn",
                "TaggedAddresses": {"virtual": {"Address": "10.0.1.7", "Port": 8080}},
                "Locality": {"Region": "us-east-1", "Zone": "us-east-1a"}},
            "Checks": [
                {"CheckID": "frontend-abcdef-frontend", "Name": "Consul ECS health check synced", "Type": "consul-ecs-health-check",
                    "ServiceID": "frontend-abcdef", "Namespace": "ns", "Status": "critical", "Output": "Service frontend is not ready",
                    "Notes": "consul-ecs created and updates this check because the frontend container has an ECS health check."},
                {"CheckID": "frontend-abcdef-consul-dataplane", "Name": "Consul dataplane readiness",
                    "Type": "consul-ecs-health-check", "ServiceID": "frontend-abcdef", "Namespace": "ns", "Status": "critical",
                    "Output": "Service frontend is not ready",
                    "Notes": "consul-ecs created and updates this check to indicate consul-dataplane container's readiness"}],
        })
    );
    let proxy = catalog(&plan.proxy);
    assert_eq!(proxy["Service"]["Proxy"]["Mode"], "transparent");
    assert_eq!(
        proxy["Service"]["TaggedAddresses"],
        json!({"virtual": {"Address": "10.0.1.7", "Port": 8080}})
    );
    assert_eq!(proxy["Service"]["Locality"]["Region"], "us-east-1");
    assert_eq!(proxy["Checks"].as_array().unwrap().len(), 1);
    assert_eq!(proxy["Checks"][0]["CheckID"], "frontend-abcdef-sidecar-proxy-consul-dataplane");
}

/// Case MI12: a configured name is verbatim, a family's in lower case.
#[test]
fn a_name_is_taken_as_configured_or_from_the_family_in_lower_case() {
    let name = |config: &str| plan(config).services().next().unwrap().name.clone();
    assert_eq!(name(&current(r#","service":{"name":"my_service","port":1}"#)), "my_service");
    assert_eq!(name(&current(r#","service":{"port":1}"#)), "test-service");
    assert_eq!(name(&current(r#","gateway":{"kind":"api-gateway"}"#)), "test-service");
    assert_eq!(name(r#"{"bootstrapDir":"/c","service":{"port":1}}"#), "test-service");
    assert_eq!(name(r#"{"bootstrapDir":"/c","gateway":{"kind":"mesh-gateway"}}"#), "Test-Service");
}

/// Case MI17: an upstream without a type is stored as `service`.
#[test]
fn an_upstream_without_a_type_is_a_service() {
    for kind in ["", r#""destinationType":null,"#] {
        let plan = plan(&current(&format!(
            r#","service":{{"port":1}},"proxy":{{"upstreams":[{{{kind}"destinationName":"b","localBindPort":1,"destinationPeer":"p"}}]}}"#
        )));
        let proxy = catalog(&plan.proxy);
        assert_eq!(
            proxy["Service"]["Proxy"]["Upstreams"],
            json!([{"DestinationType": "service", "DestinationName": "b", "LocalBindPort": 1, "DestinationPeer": "p"}])
        );
    }
}

/// Case MI18: without `AWS_REGION` there is no locality.
#[test]
fn without_a_region_there_is_no_locality() {
    let config = Config::parse(&current(r#","service":{"port":1}"#)).unwrap();
    for region in [None, Some("")] {
        let plan = TaskPlan::new(&config, &task(), region).unwrap();
        assert!(plan.services().all(|service| service.locality.is_none()));
    }
}

/// Case MI19: a mesh gateway has port 8443 unless `lanAddress` sets one; addresses are tagged `lan`
/// and `wan`.
#[test]
fn addresses_of_a_mesh_gateway() {
    let gateway = |extra: &str| {
        let plan = plan(&current(&format!(r#","gateway":{{"kind":"mesh-gateway"{extra}}}"#)));
        assert_eq!(plan.service, None);
        catalog(&plan.proxy)["Service"].clone()
    };
    let plain = gateway("");
    assert_eq!(
        (&plain["Kind"], &plain["Port"], &plain["Address"]),
        (&json!("mesh-gateway"), &json!(8443), &json!("10.0.1.7"))
    );
    assert_eq!(
        (&plain["ID"], &plain["TaggedAddresses"]),
        (&json!("test-service-abcdef"), &Value::Null)
    );
    let port = gateway(r#","lanAddress":{"port":12345}"#);
    assert_eq!((&port["Port"], &port["TaggedAddresses"]), (&json!(12345), &Value::Null));
    assert_eq!(gateway(r#","name":"gate""#)["Service"], "gate");
    let lan = gateway(r#","lanAddress":{"address":"10.1.1.1","port":12345}"#);
    assert_eq!((&lan["Address"], &lan["Port"]), (&json!("10.1.1.1"), &json!(12345)));
    assert_eq!(lan["TaggedAddresses"], json!({"lan": {"Address": "10.1.1.1", "Port": 12345}}));
    let wan = gateway(r#","wanAddress":{"address":"255.1.2.3"}"#);
    assert_eq!((&wan["Address"], &wan["Port"]), (&json!("10.0.1.7"), &json!(8443)));
    assert_eq!(wan["TaggedAddresses"], json!({"wan": {"Address": "255.1.2.3", "Port": 8443}}));
}

/// Case MI20: terminating and API gateways register with port 8443, with and without a login.
#[test]
fn other_gateways_have_the_tasks_address() {
    for kind in ["terminating-gateway", "api-gateway"] {
        let plan = plan(&current(&format!(
            r#","gateway":{{"kind":"{kind}","lanAddress":{{"address":"1.1.1.1","port":1}},"wanAddress":{{"address":"2.2.2.2"}}}}"#
        )));
        let body = catalog(&plan.proxy);
        assert_eq!(
            (&body["Service"]["Kind"], &body["Service"]["Port"]),
            (&json!(kind), &json!(8443))
        );
        assert_eq!(
            (&body["Service"]["Address"], &body["Service"]["TaggedAddresses"]),
            (&json!("10.0.1.7"), &Value::Null)
        );
        assert_eq!(body["Checks"].as_array().unwrap().len(), 1);
        assert_eq!(body["Service"]["Locality"], Value::Null);
    }
}

#[test]
fn an_early_gateway_is_checked_by_the_agent() {
    let early = |extra: &str| {
        agent(
            &plan(&format!(
                r#"{{"bootstrapDir":"/c","gateway":{{"kind":"mesh-gateway"{extra}}}}}"#
            ))
            .proxy,
        )
    };
    assert_eq!(
        early("")["Checks"],
        json!([{"Name": "mesh-gateway listener", "TCP": "10.0.1.7:8443", "Interval": "10s", "DeregisterCriticalServiceAfter": "10m0s"}])
    );
    let lan = early(r#","lanAddress":{"address":"10.1.1.1","port":1}"#);
    assert_eq!(
        (&lan["Address"], &lan["Checks"][0]["TCP"]),
        (&json!("10.1.1.1"), &json!("10.1.1.1:1"))
    );
}

#[test]
fn the_user_wins_over_the_tasks_meta() {
    let plan = plan(&current(r#","service":{"port":0,"meta":{"source":"mine"}}"#));
    assert_eq!(plan.service.unwrap().meta["source"], "mine");
}

#[test]
fn a_task_that_is_nothing_is_an_error() {
    let config = Config::parse(&current("")).unwrap();
    assert!(TaskPlan::new(&config, &task(), None).unwrap_err().to_string().contains("neither"));
}

#[test]
fn metadata_that_names_no_task_is_an_error_that_says_what_is_missing() {
    let error = |config: &str, metadata: &str| {
        let task = Task::parse(metadata.as_bytes()).unwrap();
        TaskPlan::new(&Config::parse(config).unwrap(), &task, None).unwrap_err().to_string()
    };
    let service = r#"{"bootstrapDir":"/c","service":{"port":1}}"#;
    for metadata in ["{}", r#"{"Family":"web"}"#, r#"{"Family":"web","TaskARN":null}"#] {
        let text = error(service, metadata);
        assert!(text.contains(r#"TaskARN is """#), "{text}");
    }
    let text = error(service, r#"{"Family":"web","TaskARN":"arn:aws:ecs:us-east-1:1:task/"}"#);
    assert!(text.contains(r#"TaskARN is "arn:aws:ecs:us-east-1:1:task/""#), "{text}");

    let unnamed = r#"{"TaskARN":"arn:aws:ecs:us-east-1:1:task/test/abcdef"}"#;
    let text = error(service, unnamed);
    assert!(text.contains("no Family") && text.ends_with("set service.name"), "{text}");
    let text = error(&current(r#","gateway":{"kind":"mesh-gateway"}"#), unnamed);
    assert!(text.contains("no Family") && text.ends_with("set gateway.name"), "{text}");
    let named = Config::parse(&current(r#","service":{"port":1,"name":"own"}"#)).unwrap();
    let plan = TaskPlan::new(&named, &Task::parse(unnamed.as_bytes()).unwrap(), None).unwrap();
    assert_eq!(plan.proxy.id, "own-abcdef-sidecar-proxy");
}
