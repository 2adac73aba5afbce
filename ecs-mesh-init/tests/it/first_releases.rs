//! What the flags of 0.1 and 0.2, and a gateway of 0.5, register and leave behind: the rows of the README's
//! table that no other suite has.

use std::{fs, path::Path, sync::Arc};

use consul_watch::{
    Client, QueryOptions,
    testing::{TestConsul, parts::Suite, real::Consul},
};
use ecs_mesh_init::{Config, MeshInit, metadata::FileTaskMetadata};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::volume::Volume;

const SUITE: Suite = Suite("ecs-mesh-init: flags and gateways of the early generation");

async fn run(volume: &Volume, config: Config, client: &Client) {
    let metadata = Arc::new(FileTaskMetadata::new(volume.path("task.json")));
    let vars = Arc::new(|_: &str| None);
    let mut run = MeshInit::new(config, metadata, vars, volume.path("program"));
    run.client = Some(client.clone());
    run.run(CancellationToken::new()).await.unwrap();
}

fn flags(arguments: &[&str]) -> Config {
    let arguments: Vec<String> = arguments.iter().map(|&it| it.to_owned()).collect();
    Config::from_mesh_init_flags(&arguments).unwrap()
}

/// Names of the files in a folder that were not there before a run.
fn added(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let mut added: Vec<String> = names
        .filter(|name| !["task.json", "program", "resolv.conf"].contains(&name.as_str()))
        .collect();
    added.sort_unstable();
    added
}

/// 0.1 leaves the bootstrap alone, where the flag says.
async fn flags_of_the_first_release(client: &Client) {
    let volume = Volume::new();
    let file = volume.path("bootstrap.json");
    let file = file.to_str().unwrap();
    let config = flags(&["-envoy-bootstrap-file", file, "-port", "8080", "-upstreams", "api:1234"]);
    run(&volume, config, client).await;
    assert_eq!(added(&volume.path("")), ["bootstrap.json"]);
    assert_eq!(volume.read("bootstrap.json")["node"]["cluster"], "Web");
    let services = client.agent_services(&QueryOptions::default()).await.unwrap();
    // The family's name as it is: lower case came with 0.5.
    assert_eq!(services["Web-abcdef"].service.port, 8080);
    let sidecar = &services["Web-abcdef-sidecar-proxy"].service;
    let upstream = &sidecar.proxy.upstreams[0];
    assert_eq!((upstream.destination_name.as_str(), upstream.local_bind_port), ("api", 1234));
}

/// 0.2 leaves the program, too, and copies the health of containers.
async fn flags_of_the_second_release(client: &Client) {
    let volume = Volume::new();
    let folder = volume.path("");
    let config = flags(&[
        "-envoy-bootstrap-dir",
        folder.to_str().unwrap(),
        "-port=8080",
        "-service-name=second",
        "-tags=a,b",
        r#"-meta={"env":"test"}"#,
        "-health-sync-containers=app",
    ]);
    run(&volume, config, client).await;
    assert_eq!(added(&folder), ["consul-ecs", "envoy-bootstrap.json"]);
    assert_eq!((volume.mode("envoy-bootstrap.json"), volume.mode("consul-ecs")), (0o444, 0o755));
    let services = client.agent_services(&QueryOptions::default()).await.unwrap();
    let service = &services["second-abcdef"].service;
    assert_eq!(
        (service.tags.clone(), service.meta["env"].as_str()),
        (vec!["a".into(), "b".into()], "test")
    );
    let checks = client.agent_checks(&QueryOptions::default()).await.unwrap();
    let check = &checks["second-abcdef-app-consul-ecs"];
    assert!(check.notes.contains("because the app container"), "{}", check.notes);
}

/// Envoy's cluster is the kind of a gateway, whatever its name is.
async fn a_mesh_gateway(client: &Client) {
    let volume = Volume::new();
    let config = json!({"bootstrapDir": volume.path(""), "gateway": {"kind": "mesh-gateway",
        "name": "entry", "lanAddress": {"address": "10.1.2.3", "port": 9443},
        "wanAddress": {"address": "192.0.2.7", "port": 443}}});
    run(&volume, Config::parse(&config.to_string()).unwrap(), client).await;
    let node = &volume.read("envoy-bootstrap.json")["node"];
    assert_eq!((&node["id"], &node["cluster"]), (&json!("entry-abcdef"), &json!("mesh-gateway")));
    let services = client.agent_services(&QueryOptions::default()).await.unwrap();
    let gateway = serde_json::to_value(&services["entry-abcdef"].service).unwrap();
    let found: Vec<&Value> = ["/Kind", "/Address", "/Port"]
        .iter()
        .chain(&["/TaggedAddresses/lan/Address", "/TaggedAddresses/wan/Port"])
        .map(|place| gateway.pointer(place).unwrap_or(&Value::Null))
        .collect();
    assert_eq!(json!(found), json!(["mesh-gateway", "10.1.2.3", 9443, "10.1.2.3", 443]));
}

async fn all(client: &Client) {
    flags_of_the_first_release(client).await;
    flags_of_the_second_release(client).await;
    a_mesh_gateway(client).await;
}

#[tokio::test]
async fn flags_and_gateways_with_a_double() {
    SUITE.double("consul");
    all(&TestConsul::new().client()).await;
}

#[tokio::test]
async fn flags_and_gateways_with_a_real_consul() {
    for part in SUITE.parts("consul", "flags and gateways") {
        let consul = Consul::start(&part.path).await.unwrap();
        all(&consul.client()).await;
    }
}
