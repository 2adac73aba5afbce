//! `Connect.SidecarService` at the registration with an agent.

use consul_watch::{QueryOptions, client::Request};
use serde_json::{Value, json};

use super::Env;

super::cases![
    sidecar_takes_from_its_service,
    sidecar_with_its_own_settings,
    sidecars_that_are_refused
];

async fn register(env: &Env, body: &Value) -> Result<(), String> {
    let request = Request::put("register", "/v1/agent/service/register").json(body);
    env.client.send(request).await.map(drop).map_err(|error| error.to_string())
}

/// A service of the agent, without what differs from run to run.
async fn shown(env: &Env, id: &str) -> Value {
    let request = Request::get("service", &format!("/v1/agent/service/{id}"));
    let mut service: Value = env.client.send(request).await.unwrap().json().unwrap();
    let fields = service.as_object_mut().unwrap();
    for name in ["ContentHash", "Datacenter", "TaggedAddresses", "CreateIndex", "ModifyIndex"] {
        fields.remove(name);
    }
    service
}

async fn sidecar_takes_from_its_service(env: &Env) {
    let (name, id) = (env.name("web").replace('_', "-"), env.name("id"));
    let sidecar = format!("{id}-sidecar-proxy");
    let body = json!({
        "Name": name, "ID": id, "Port": 90, "Address": "1.2.3.4", "Meta": { "a": "b" }, "Tags": ["x"],
        "Connect": { "SidecarService": {} },
    });
    register(env, &body).await.unwrap();
    let found = shown(env, &sidecar).await;
    let port = found["Port"].as_u64().unwrap();
    assert!((21_000..=21_255).contains(&port), "{found}");
    for (field, wanted) in [
        ("Kind", json!("connect-proxy")),
        ("ID", json!(sidecar)),
        ("Service", json!(format!("{name}-sidecar-proxy"))),
        ("Tags", json!(["x"])),
        ("Meta", json!({ "a": "b" })),
        ("Address", json!("1.2.3.4")),
    ] {
        assert_eq!(found[field], wanted, "{field}");
    }
    let proxy = &found["Proxy"];
    assert_eq!(
        (&proxy["DestinationServiceName"], &proxy["DestinationServiceID"]),
        (&json!(name), &json!(id))
    );
    assert_eq!(
        (&proxy["LocalServiceAddress"], &proxy["LocalServicePort"]),
        (&json!("127.0.0.1"), &json!(90))
    );
    let checks = env.client.agent_checks(&QueryOptions::default()).await.unwrap();
    let check = |number: u32| &checks[&format!("service:{sidecar}:{number}")];
    assert_eq!(
        (check(1).name.as_str(), check(1).kind.as_str()),
        ("Connect Sidecar Listening", "tcp")
    );
    assert_eq!(check(2).name, format!("Connect Sidecar Aliasing {id}"));
    assert_eq!(check(2).kind, "alias");

    // Registered again, it keeps its port; what the service lost, it loses.
    let body = json!({ "Name": name, "ID": id, "Port": 91, "Connect": { "SidecarService": {} } });
    register(env, &body).await.unwrap();
    let again = shown(env, &sidecar).await;
    assert_eq!((again["Port"].as_u64(), &again["Address"]), (Some(port), &json!("")));
    assert_eq!(again["Proxy"]["LocalServicePort"], json!(91));

    // Another one gets another port.
    let other = env.name("other");
    register(env, &json!({ "Name": name, "ID": other, "Connect": { "SidecarService": {} } }))
        .await
        .unwrap();
    assert_ne!(shown(env, &format!("{other}-sidecar-proxy")).await["Port"].as_u64(), Some(port));

    // Without `SidecarService` it stays; with its service it goes.
    register(env, &json!({ "Name": name, "ID": id, "Port": 91 })).await.unwrap();
    shown(env, &sidecar).await;
    env.client.agent_deregister_service(&id, None).await.unwrap();
    env.client.agent_deregister_service(&other, None).await.unwrap();
    let left = env.client.agent_services(&QueryOptions::default()).await.unwrap();
    assert!(!left.contains_key(&sidecar), "{left:?}");
    let checks = env.client.agent_checks(&QueryOptions::default()).await.unwrap();
    assert!(!checks.keys().any(|check| check.contains(&id)), "{checks:?}");
}

async fn sidecar_with_its_own_settings(env: &Env) {
    let (name, id) = (env.name("web").replace('_', "-"), env.name("id"));
    let sidecar = format!("{id}-sidecar-proxy");
    let body = json!({
        "Name": name, "ID": id, "Port": 90,
        "Connect": { "SidecarService": {
            "Name": format!("{name}-gate"), "Port": 77, "Tags": ["q"], "Meta": { "m": "n" },
            "Check": { "Name": "own", "TTL": "1h" },
            "Proxy": {
                "Upstreams": [{ "DestinationName": "db", "LocalBindPort": 1 }], "Config": { "a": 1 },
            },
        } },
    });
    register(env, &body).await.unwrap();
    let found = shown(env, &sidecar).await;
    assert_eq!((&found["Port"], &found["Service"]), (&json!(77), &json!(format!("{name}-gate"))));
    assert_eq!((&found["Tags"], &found["Meta"]), (&json!(["q"]), &json!({ "m": "n" })));
    assert_eq!(found["Proxy"]["Config"], json!({ "a": 1 }));
    assert_eq!(found["Proxy"]["Upstreams"][0]["DestinationType"], json!("service"));
    let checks = env.client.agent_checks(&QueryOptions::default()).await.unwrap();
    let own: Vec<&str> = checks
        .values()
        .filter(|check| check.service_id == sidecar)
        .map(|check| check.name.as_str())
        .collect();
    assert_eq!(own, ["own"], "its own check takes the place of the two others");
    env.client.agent_deregister_service(&id, None).await.unwrap();
}

async fn sidecars_that_are_refused(env: &Env) {
    let name = env.name("web").replace('_', "-");
    let with = |sidecar: Value| json!({ "Name": name, "Connect": { "SidecarService": sidecar } });
    let mut wrong = Vec::new();
    for (body, text) in [
        (
            with(json!({ "ID": "y" })),
            "A SidecarService cannot specify an ID as this is managed by the agent",
        ),
        (
            with(json!({ "Connect": { "SidecarService": {} } })),
            "A SidecarService cannot have a nested SidecarService",
        ),
        (
            json!({ "Name": name, "Kind": "connect-proxy", "Proxy": { "DestinationServiceName": "x" } }),
            if env.is_1_8 {
                "1 error occurred:\n\t* Port must be set for a Connect proxy"
            } else {
                "1 error occurred:\n\t* Port or SocketPath must be set for a connect-proxy"
            },
        ),
        (
            json!({ "Name": name, "Kind": "connect-proxy" }),
            if env.is_1_8 {
                "2 errors occurred:\n\t* Proxy.DestinationServiceName must be non-empty for Connect proxy services\n\t* Port must be set for a Connect proxy"
            } else {
                "2 errors occurred:\n\t* Port or SocketPath must be set for a connect-proxy\n\t* Proxy.DestinationServiceName must be non-empty for Connect proxy services"
            },
        ),
    ] {
        let error = register(env, &body).await.unwrap_err();
        if !error.contains(text) {
            wrong.push(format!("{body}: {error:?} instead of {text:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
