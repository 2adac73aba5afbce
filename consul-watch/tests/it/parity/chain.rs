//! Discovery chains.

use std::time::Duration;

use consul_watch::{
    Client, QueryOptions, Result, WriteOptions,
    types::{ConfigEntry, DiscoveryChain, DiscoveryChainOverride, MeshGateway},
};
use serde_json::{Value, json};

use super::{Env, acl::holder, status};

super::cases![
    a_service_without_settings,
    resolvers_lead_to_subsets_and_elsewhere,
    splitters_and_routers,
    what_a_proxy_changes,
    what_cannot_be_put_together,
    a_blocked_read_of_a_chain,
];

mod sealed {
    super::super::cases![sealed: rights_over_chains];
    use super::rights_over_chains;
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

async fn set(env: &Env, kind: &str, name: &str, settings: Value) -> Result<bool> {
    let mut entry = ConfigEntry::new(kind, name);
    entry.settings = settings.as_object().cloned().unwrap();
    env.client.config_set(&entry, None, &WriteOptions::default()).await
}

async fn forget(env: &Env, entries: &[(&str, &String)]) {
    for (kind, name) in entries {
        env.client.config_delete(kind, name, None, &WriteOptions::default()).await.unwrap();
    }
}

async fn changed(env: &Env, name: &str, change: &DiscoveryChainOverride) -> DiscoveryChain {
    env.client.discovery_chain(name, None, change, &read()).await.unwrap().value
}

async fn chain(env: &Env, name: &str) -> DiscoveryChain {
    changed(env, name, &DiscoveryChainOverride::default()).await
}

/// Names of nodes end with the namespace, and on current servers with the partition.
fn tenancy(env: &Env) -> &'static str {
    if env.is_1_8 { "default" } else { "default.default" }
}

fn target(env: &Env, service: &str) -> String {
    format!("{service}.{}.dc1", tenancy(env))
}

fn node<'a>(chain: &'a DiscoveryChain, name: &str) -> &'a serde_json::Map<String, Value> {
    chain.nodes.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", chain.nodes.keys()))
}

async fn a_service_without_settings(env: &Env) {
    let web = env.name("web");
    let chain = chain(env, &web).await;
    assert_eq!((&chain.service_name, chain.protocol.as_str()), (&web, "tcp"));
    assert_eq!((chain.namespace.as_str(), chain.datacenter.as_str()), ("default", "dc1"));
    let target = target(env, &web);
    let start = format!("resolver:{target}");
    assert_eq!(chain.start_node, start);
    assert_eq!(
        *node(&chain, &start),
        *json!({ "Type": "resolver", "Name": target,
            "Resolver": { "ConnectTimeout": "5s", "Default": true, "Target": target } })
        .as_object()
        .unwrap()
    );
    let found = &chain.targets[&target];
    assert_eq!(
        (&found["ID"], &found["Service"], &found["Subset"]),
        (&json!(target), &json!(web), &json!({}))
    );
    let sni = found["SNI"].as_str().unwrap();
    let roots = env.client.connect_ca_roots(&read()).await.unwrap().value;
    assert_eq!(sni, format!("{web}.default.dc1.internal.{}", roots.trust_domain));
    assert_eq!(found["Name"], found["SNI"]);
    assert!(chain.customization_hash.is_empty() && chain.nodes.len() == 1);
}

async fn resolvers_lead_to_subsets_and_elsewhere(env: &Env) {
    let (web, old, backup) = (env.name("web"), env.name("old"), env.name("backup"));
    let settings = json!({
        "DefaultSubset": "v1", "ConnectTimeout": "15s",
        "Subsets": { "v1": { "Filter": "Service.Meta.v == 1" }, "v2": { "Filter": "Service.Meta.v == 2", "OnlyPassing": true } },
        "Failover": { "v1": { "Datacenters": ["dc2"] }, "*": { "Service": backup } },
    });
    set(env, "service-resolver", &web, settings).await.unwrap();
    let one = chain(env, &web).await;
    let v1 = target(env, &format!("v1.{web}"));
    let far = format!("v1.{web}.{}.dc2", tenancy(env));
    assert_eq!(one.start_node, format!("resolver:{v1}"));
    let resolver = &node(&one, &one.start_node)["Resolver"];
    assert_eq!(
        *resolver,
        json!({ "ConnectTimeout": "15s", "Target": v1, "Failover": { "Targets": [far] } })
    );
    assert_eq!(one.targets.keys().collect::<Vec<_>>(), [&v1, &far]);
    assert_eq!(one.targets[&v1]["Subset"], json!({ "Filter": "Service.Meta.v == 1" }));
    assert_eq!(one.targets[&v1]["ServiceSubset"], "v1");

    // A redirect leads to the other one's resolver, with its own failover.
    let redirect = json!({ "Redirect": { "Service": web, "ServiceSubset": "v2" } });
    set(env, "service-resolver", &old, redirect).await.unwrap();
    let redirected = chain(env, &old).await;
    let v2 = target(env, &format!("v2.{web}"));
    assert_eq!(redirected.start_node, format!("resolver:{v2}"));
    let failover = &node(&redirected, &redirected.start_node)["Resolver"]["Failover"];
    assert_eq!(*failover, json!({ "Targets": [target(env, &backup)] }));
    assert_eq!(redirected.targets.len(), 2);
    forget(env, &[("service-resolver", &old), ("service-resolver", &web)]).await;
}

async fn splitters_and_routers(env: &Env) {
    let (web, api) = (env.name("web"), env.name("api"));
    for name in [&web, &api] {
        set(env, "service-defaults", name, json!({ "Protocol": "http" })).await.unwrap();
    }
    let subsets = json!({ "Subsets": { "v1": {}, "v2": {} } });
    set(env, "service-resolver", &web, subsets).await.unwrap();
    let splits = json!({ "Splits": [{ "Weight": 90, "ServiceSubset": "v1" }, { "Weight": 10, "ServiceSubset": "v2" }] });
    set(env, "service-splitter", &web, splits).await.unwrap();
    let [v1, v2] =
        ["v1", "v2"].map(|subset| format!("resolver:{}", target(env, &format!("{subset}.{web}"))));
    let split = chain(env, &web).await;
    let splitter = format!("splitter:{web}.{}", tenancy(env));
    assert_eq!((&split.start_node, split.protocol.as_str()), (&splitter, "http"));
    let shares = |chain: &DiscoveryChain, name: &str| {
        let splits = node(chain, name)["Splits"].as_array().unwrap().clone();
        let share = |split: &Value| {
            (split["Weight"].as_f64().unwrap(), split["NextNode"].as_str().unwrap().to_owned())
        };
        splits.iter().map(share).collect::<Vec<_>>()
    };
    assert_eq!(shares(&split, &splitter), [(90.0, v1.clone()), (10.0, v2.clone())]);

    // What a splitter leads to comes in its place, also past another splitter.
    let outer = json!({ "Splits": [{ "Weight": 50 }, { "Weight": 50, "Service": web }] });
    set(env, "service-splitter", &api, outer).await.unwrap();
    let nested = chain(env, &api).await;
    let own = format!("resolver:{}", target(env, &api));
    let expected = [(50.0, own.clone()), (45.0, v1.clone()), (5.0, v2.clone())];
    assert_eq!(shares(&nested, &nested.start_node), expected);
    assert!(!nested.nodes.contains_key(&splitter), "nothing leads there any more");
    forget(env, &[("service-splitter", &api)]).await;

    let admin = json!({ "Match": { "HTTP": { "PathPrefix": "/admin" } }, "Destination": { "Service": api } });
    let beta = json!({
        "Match": { "HTTP": { "Header": [{ "Name": "x", "Exact": "1" }] } },
        "Destination": { "ServiceSubset": "v2" },
    });
    set(env, "service-router", &web, json!({ "Routes": [admin, beta] })).await.unwrap();
    let routed = chain(env, &web).await;
    assert_eq!(routed.start_node, format!("router:{web}.{}", tenancy(env)));
    let routes = node(&routed, &routed.start_node)["Routes"].as_array().unwrap();
    let next: Vec<_> = routes.iter().map(|route| route["NextNode"].as_str().unwrap()).collect();
    assert_eq!(next, [own.as_str(), &v2, &splitter]);
    assert_eq!(routes[0]["Definition"]["Match"], admin["Match"]);
    let rest = json!({ "Match": { "HTTP": { "PathPrefix": "/" } }, "Destination": { "Service": web, "Namespace": "default" } });
    assert_eq!(routes[2]["Definition"]["Match"], rest["Match"]);
    assert_eq!(routed.nodes.len(), 5);

    // Another protocol rules all that out.
    let mut plain = DiscoveryChainOverride::default();
    plain.protocol = Some("tcp".into());
    let plain = changed(env, &web, &plain).await;
    assert_eq!(plain.start_node, format!("resolver:{}", target(env, &web)));
    assert!(
        plain.nodes.len() == 1 && plain.protocol == "tcp" && plain.customization_hash.len() == 8
    );

    // Without the protocol there can be no router.
    let options = WriteOptions::default();
    let deleted = env.client.config_delete("service-defaults", &web, None, &options).await;
    assert_eq!(status(&deleted.unwrap_err()), 500);
    let order = [
        ("service-router", &web),
        ("service-splitter", &web),
        ("service-resolver", &web),
        ("service-defaults", &web),
        ("service-defaults", &api),
    ];
    forget(env, &order).await;
}

async fn what_a_proxy_changes(env: &Env) {
    let web = env.name("web");
    let settings = json!({ "Failover": { "*": { "Datacenters": ["dc2"] } } });
    set(env, "service-resolver", &web, settings).await.unwrap();
    let mut change = DiscoveryChainOverride::default();
    change.connect_timeout = Some(Duration::from_secs(7));
    let mut gateway = MeshGateway::default();
    gateway.mode = "local".into();
    change.mesh_gateway = Some(gateway);
    let found = changed(env, &web, &change).await;
    assert_eq!(node(&found, &found.start_node)["Resolver"]["ConnectTimeout"], "7s");
    let far = format!("{web}.{}.dc2", tenancy(env));
    assert_eq!(found.targets[&far]["MeshGateway"], json!({ "Mode": "local" }));
    let near = if env.is_1_8 { json!({}) } else { json!({ "Mode": "local" }) };
    assert_eq!(found.targets[&target(env, &web)]["MeshGateway"], near);
    assert_eq!(found.customization_hash.len(), 8);
    // What asks for what is so anyway changes nothing.
    let mut same = DiscoveryChainOverride::default();
    same.connect_timeout = Some(Duration::from_secs(5));
    assert!(changed(env, &web, &same).await.customization_hash.is_empty());
    let none = DiscoveryChainOverride::default();
    let from_afar = env.client.discovery_chain(&web, Some("dc9"), &none, &read()).await.unwrap();
    assert_eq!(from_afar.value.start_node, format!("resolver:{web}.{}.dc9", tenancy(env)));
    forget(env, &[("service-resolver", &web)]).await;
}

async fn what_cannot_be_put_together(env: &Env) {
    let (a, b, http) = (env.name("a"), env.name("b"), env.name("http"));
    set(env, "service-defaults", &http, json!({ "Protocol": "http" })).await.unwrap();
    set(env, "service-resolver", &a, json!({ "Redirect": { "Service": b } })).await.unwrap();
    for (kind, name, settings, problem) in [
        (
            "service-resolver",
            &b,
            json!({ "Redirect": { "Service": a } }),
            "detected circular resolver redirect: [".to_owned(),
        ),
        (
            "service-resolver",
            &b,
            json!({ "Redirect": { "Service": http } }),
            format!(
                "uses inconsistent protocols; service {http:?} has \"http\" which is not \"tcp\""
            ),
        ),
        (
            "service-router",
            &b,
            json!({ "Routes": [] }),
            "uses a protocol \"tcp\" that does not permit advanced routing or splitting behavior"
                .into(),
        ),
        (
            "service-resolver",
            &a,
            json!({ "Redirect": { "Service": b, "ServiceSubset": "none" } }),
            format!("service {b:?} does not have a subset named \"none\""),
        ),
    ] {
        let error = set(env, kind, name, settings).await.unwrap_err();
        assert_eq!(status(&error), 500, "{error}");
        assert!(error.to_string().contains(&problem), "{error}");
    }
    // What was refused is not there.
    assert_eq!(chain(env, &b).await.start_node, format!("resolver:{}", target(env, &b)));
    forget(env, &[("service-resolver", &a), ("service-defaults", &http)]).await;
}

async fn a_blocked_read_of_a_chain(env: &Env) {
    let web = env.name("web");
    let look = {
        let web = web.clone();
        move |client: Client, options: QueryOptions| {
            let web = web.clone();
            async move {
                let none = DiscoveryChainOverride::default();
                client.discovery_chain(&web, None, &none, &options).await
            }
        }
    };
    let written = set(env, "service-resolver", &web, json!({ "ConnectTimeout": "9s" }));
    let seen = env.observe(look.clone(), written).await;
    seen.assert_woken();
    let last = seen.last;
    assert_eq!(node(&last, &last.start_node)["Resolver"]["ConnectTimeout"], "9s");
    env.observe(look, forget(env, &[("service-resolver", &web)])).await.assert_woken();
}

async fn rights_over_chains(env: &Env) {
    let (web, db) = (env.name("web"), env.name("db"));
    let who = holder(env, &[format!("service {web:?} {{ policy = \"read\" }}")]).await;
    let none = DiscoveryChainOverride::default();
    who.discovery_chain(&web, None, &none, &read()).await.unwrap();
    let error = who.discovery_chain(&db, None, &none, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
}
