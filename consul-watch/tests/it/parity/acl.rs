//! What each right allows and what its absence refuses or hides.

use consul_watch::{
    Client, Error, QueryOptions, WriteOptions,
    client::{DeleteOptions, PutOptions, Request},
    types::{AclLink, AclPolicy, AclRole, AclTokenRequest, NodeIdentity, ServiceIdentity},
};
use http::StatusCode;
use serde_json::{Value, json};

use super::Env;

super::cases![
    sealed:
    each_right_is_needed_and_enough,
    one_rule_less_in_a_transaction,
    deleting_a_tree_needs_every_key_of_it,
    roles_and_identities_give_rights,
    the_anonymous_token_has_the_rights_it_is_given,
    cp51_token_without_rights,
    cp52_unknown_secret,
    cp53_token_goes_while_a_read_is_blocked,
];

fn write() -> WriteOptions {
    WriteOptions::default()
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

/// A client whose token has one policy with these rules.
pub(super) async fn holder(env: &Env, rules: &[String]) -> Client {
    let name = env.name("p");
    let policy = AclPolicy::new(&name, rules.join("\n"));
    env.client.acl_policy_create(&policy, &write()).await.unwrap();
    let mut token = AclTokenRequest::new("holder");
    token.policies.push(AclLink::name(&name));
    with(env, &token).await
}

async fn with(env: &Env, token: &AclTokenRequest) -> Client {
    let token = env.client.acl_token_create(token, &write()).await.unwrap();
    env.client.with_token(token.secret_id).unwrap()
}

/// What becomes of a request when a right is missing.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lacking {
    Refused,
    /// The answer lacks what may not be seen.
    Hidden,
}
use Lacking::{Hidden, Refused};

struct Row {
    method: &'static str,
    path: String,
    body: Value,
    lacking: Lacking,
    /// What an answer that shows everything contains.
    marker: String,
    rules: Vec<String>,
}

/// `GET /path?flag=value` and the like, as a request.
async fn send(client: &Client, row: &Row) -> Result<String, Error> {
    let (path, query) = row.path.split_once('?').unwrap_or((&row.path, ""));
    let mut request = match row.method {
        "GET" => Request::get("row", path).accept(StatusCode::NOT_FOUND),
        "PUT" => Request::put("row", path),
        _ => Request::delete("row", path),
    };
    if !row.body.is_null() {
        request = request.json(&row.body);
    }
    match query {
        "" => {}
        "recurse" => request = request.flag("recurse"),
        "keys" => request = request.flag("keys"),
        "enable=true" => request = request.param("enable", "true"),
        other => panic!("{other}"),
    }
    let response = client.send(request).await?;
    Ok(String::from_utf8_lossy(response.body()).into_owned())
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows(env: &Env, id: &str) -> Vec<Row> {
    let (web, db, node, own) =
        (format!("{id}-web"), format!("{id}-db"), format!("{id}-n"), env.node);
    let service = |name: &str, policy| format!("service {name:?} {{ policy = {policy:?} }}");
    let on_node = |name: &str, policy| format!("node {name:?} {{ policy = {policy:?} }}");
    let rule = |kind, name: &str, policy| format!("{kind} {name:?} {{ policy = {policy:?} }}");
    let row = |method, path: String, body, lacking, marker: &str, rules: &[String]| Row {
        method,
        path,
        body,
        lacking,
        marker: marker.to_owned(),
        rules: rules.to_vec(),
    };
    let get = |path: String, lacking, marker: &str, rules: &[String]| {
        row("GET", path, Value::Null, lacking, marker, rules)
    };
    let put = |path: &str, body, rules: &[String]| {
        row("PUT", format!("/v1/{path}"), body, Refused, "", rules)
    };
    // Servers hold the instance's id against the rules here.
    let sees_id = [rule("service_prefix", &web, "read"), on_node(&node, "read")];
    let sees_web = [service(&web, "read"), on_node(&node, "read")];
    let instance = json!({ "Service": web, "ID": format!("{web}-2") });
    vec![
        get(format!("/v1/kv/{id}/a"), Refused, "dg==", &[rule("key", &format!("{id}/a"), "read")]),
        get(format!("/v1/kv/{id}/?recurse"), Hidden, "dg==", &[rule("key_prefix", id, "read")]),
        get(format!("/v1/kv/{id}/?keys"), Hidden, "/a", &[rule("key_prefix", id, "list")]),
        put(&format!("kv/{id}/b"), json!(1), &[rule("key", &format!("{id}/b"), "write")]),
        put("session/create", json!({ "NodeChecks": [] }), &[rule("session", own, "write")]),
        get("/v1/session/list".into(), Hidden, id, &[rule("session_prefix", "", "read")]),
        get("/v1/catalog/services".into(), Hidden, &web, &[service(&web, "read")]),
        get("/v1/catalog/nodes".into(), Hidden, &node, &[on_node(&node, "read")]),
        get(format!("/v1/catalog/service/{web}"), Hidden, &node, &sees_web),
        get(format!("/v1/health/service/{web}"), Hidden, &node, &sees_web),
        get(format!("/v1/health/checks/{web}"), Hidden, &node, &sees_web),
        get("/v1/health/state/any".into(), Hidden, &web, &sees_web),
        get(format!("/v1/health/node/{node}"), Hidden, "node-check", &[on_node(&node, "read")]),
        get(format!("/v1/catalog/node/{node}"), Hidden, &format!("\"{web}\""), &sees_id),
        get(format!("/v1/catalog/node-services/{node}"), Hidden, &format!("\"{web}\""), &sees_web),
        get(
            format!("/v1/catalog/connect/{web}"),
            Hidden,
            &format!("{web}-proxy"),
            &[sees_web[0].clone(), sees_web[1].clone(), service(&format!("{web}-proxy"), "read")],
        ),
        put(
            "catalog/register",
            json!({ "Node": format!("{node}-new"), "Address": "10.0.0.2", "Service": instance }),
            &[service(&web, "write"), on_node(&format!("{node}-new"), "write")],
        ),
        // The node is sent as it is.
        put(
            "catalog/register",
            json!({ "Node": node, "Address": "10.0.0.1", "Service": instance }),
            &[service(&web, "write")],
        ),
        // The instance takes the place of one of another service.
        put(
            "catalog/register",
            json!({
                "Node": node, "SkipNodeUpdate": true,
                "Service": { "Service": web, "ID": format!("{db}-1") },
            }),
            &[service(&web, "write"), service(&db, "write")],
        ),
        put(
            "catalog/register",
            json!({
                "Node": node, "Address": "10.0.0.1",
                "Check": { "CheckID": "extra", "ServiceID": format!("{web}-1"), "Node": node },
            }),
            &[service(&web, "write")],
        ),
        put(
            "catalog/register",
            json!({
                "Node": node, "Address": "10.0.0.1",
                "Check": { "CheckID": "node-extra", "Node": node },
            }),
            &[on_node(&node, "write")],
        ),
        put(
            "catalog/register",
            json!({
                "Node": node, "Address": "10.0.0.1",
                "Service": {
                    "Kind": "connect-proxy", "Service": format!("{id}-gate"), "Port": 1,
                    "Proxy": { "DestinationServiceName": web },
                },
            }),
            &[service(&web, "write"), service(&format!("{id}-gate"), "write")],
        ),
        put(
            "catalog/deregister",
            json!({ "Node": node, "ServiceID": format!("{web}-2") }),
            &[service(&web, "write")],
        ),
        put(
            "catalog/deregister",
            json!({ "Node": format!("{node}-x") }),
            &[on_node(&format!("{node}-x"), "write")],
        ),
        put(
            "agent/service/register",
            json!({ "Name": format!("{id}-own") }),
            &[service(&format!("{id}-own"), "write")],
        ),
        put(
            "agent/service/register",
            json!({ "Name": format!("{id}-own"), "Port": 1, "Connect": { "SidecarService": {} } }),
            &[
                service(&format!("{id}-own"), "write"),
                service(&format!("{id}-own-sidecar-proxy"), "write"),
            ],
        ),
        put(
            "agent/check/register",
            json!({ "Name": format!("{id}-c"), "TTL": "1h" }),
            &[on_node(own, "write")],
        ),
        put(&format!("agent/check/pass/{id}-c"), Value::Null, &[on_node(own, "write")]),
        put(&format!("agent/check/deregister/{id}-c"), Value::Null, &[on_node(own, "write")]),
        get(
            "/v1/agent/services".into(),
            Hidden,
            &format!("{id}-own\""),
            &[service(&format!("{id}-own"), "read")],
        ),
        get(
            format!("/v1/agent/service/{id}-own"),
            Refused,
            "ContentHash",
            &[service(&format!("{id}-own"), "read")],
        ),
        put(
            &format!("agent/service/maintenance/{id}-own?enable=true"),
            Value::Null,
            &[service(&format!("{id}-own"), "write")],
        ),
        get(
            "/v1/agent/checks".into(),
            Hidden,
            &format!("{id}-own\""),
            &[service(&format!("{id}-own"), "read")],
        ),
        put(
            &format!("agent/service/deregister/{id}-own"),
            Value::Null,
            &[service(&format!("{id}-own"), "write")],
        ),
        get("/v1/agent/self".into(), Refused, "Config", &[rule("agent", own, "read")]),
        get("/v1/agent/members".into(), Hidden, own, &[on_node(own, "read")]),
        get("/v1/acl/policies".into(), Refused, "global-management", &["acl = \"read\"".into()]),
        put("acl/policy", json!({ "Name": format!("{id}-made") }), &["acl = \"write\"".into()]),
    ]
}

async fn furnish(env: &Env, id: &str) {
    let (web, db, node) = (format!("{id}-web"), format!("{id}-db"), format!("{id}-n"));
    for body in [
        json!({
            "Node": node, "Address": "10.0.0.1",
            "Service": { "Service": web, "ID": format!("{web}-1"), "Port": 80 },
            "Checks": [
                { "CheckID": "c", "Status": "passing", "ServiceID": format!("{web}-1") },
                { "CheckID": "node-check", "Status": "passing" },
            ],
        }),
        json!({
            "Node": node, "Address": "10.0.0.1",
            "Service": { "Service": db, "ID": format!("{db}-1") },
        }),
        json!({
            "Node": node, "Address": "10.0.0.1",
            "Service": {
                "Kind": "connect-proxy", "Service": format!("{web}-proxy"), "Port": 81,
                "Proxy": { "DestinationServiceName": web },
            },
        }),
    ] {
        let request = Request::put("furnish", "/v1/catalog/register").json(&body);
        env.client.send(request).await.unwrap();
    }
    env.client.kv_put(&format!("{id}/a"), "v", &PutOptions::default()).await.unwrap();
    let mut session = consul_watch::types::SessionRequest::default();
    (session.name, session.node_checks) = (id.to_owned(), Some(Vec::new()));
    env.client.session_create(&session, &write()).await.unwrap();
}

/// `true` for the right over the service whose instance another one replaces: the one refusal
/// in which current servers do not say what is missing.
fn takes_a_place(row: &Row, missing: usize) -> bool {
    missing == 1 && row.path == "/v1/catalog/register" && row.rules[1].contains("-db\"")
}

/// A token with exactly the rules of a row gets what the row asks for; with any
/// one of them missing it is refused or sees less.
async fn each_right_is_needed_and_enough(env: &Env) {
    let id = env.name("x").replace('_', "-");
    furnish(env, &id).await;
    let mut wrong = Vec::new();
    for row in rows(env, &id) {
        for missing in 0..row.rules.len() {
            let mut rules = row.rules.clone();
            let gone = rules.remove(missing);
            let what = format!("{} {} without {gone}", row.method, row.path);
            match (send(&holder(env, &rules).await, &row).await, row.lacking) {
                (Ok(body), Hidden) if !body.contains(&row.marker) => {}
                (Err(error), Refused)
                    if error.status() == Some(StatusCode::FORBIDDEN)
                        && error.to_string().contains("Permission denied")
                        && error.to_string().contains("lacks permission")
                            == (!env.is_1_8 && !takes_a_place(&row, missing)) => {}
                (other, lacking) => wrong.push(format!("{what} not {lacking:?}: {other:?}")),
            }
        }
        match send(&holder(env, &row.rules).await, &row).await {
            Ok(body) if body.contains(&row.marker) => {}
            other => wrong.push(format!(
                "{} {} with {:?} does not show {}: {other:?}",
                row.method, row.path, row.rules, row.marker
            )),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

async fn txn(client: &Client, steps: Value) -> Value {
    let request = Request::put("txn", "/v1/txn").accept(StatusCode::CONFLICT).json(&steps);
    client.send(request).await.unwrap().json().unwrap()
}

async fn one_rule_less_in_a_transaction(env: &Env) {
    let id = env.name("t");
    env.client.kv_put(&format!("{id}/a"), "v", &PutOptions::default()).await.unwrap();
    env.client.kv_put(&format!("{id}/b"), "v", &PutOptions::default()).await.unwrap();
    let rules = [
        format!("key \"{id}/a\" {{ policy = \"read\" }}"),
        format!("key \"{id}/w\" {{ policy = \"write\" }}"),
    ];
    let client = holder(env, &rules).await;
    let step = |verb: &str, key: &str| json!({ "KV": { "Verb": verb, "Key": format!("{id}/{key}"), "Value": "" } });
    let found =
        txn(&client, json!([step("get", "a"), step("get", "b"), step("get-tree", "")])).await;
    let results = found["Results"].as_array().unwrap();
    assert_eq!(results.len(), 2, "what may not be read is left out: {found}");
    let refused = txn(
        &client,
        json!([
            step("set", "w"),
            step("set", "a"),
            step("check-index", "b"),
            step("check-not-exists", "a"),
            step("delete-tree", ""),
        ]),
    )
    .await;
    let errors = refused["Errors"].as_array().unwrap();
    let failed: Vec<u64> = errors.iter().map(|error| error["OpIndex"].as_u64().unwrap()).collect();
    assert_eq!(failed, [1, 2, 3, 4], "{refused}");
    assert!(
        errors.iter().all(|error| error["What"].as_str().unwrap().starts_with("Permission denied"))
    );
    let key = format!("{id}/w");
    assert!(env.client.kv_get(&key, &read()).await.unwrap().value.is_none(), "nothing is done");
    let done = txn(&client, json!([step("set", "w"), step("delete", "w")])).await;
    assert!(done["Errors"].is_null(), "{done}");
}

async fn deleting_a_tree_needs_every_key_of_it(env: &Env) {
    let id = env.name("d");
    let rules = [
        format!("key_prefix \"{id}/\" {{ policy = \"write\" }}"),
        format!("key \"{id}/x/ro\" {{ policy = \"read\" }}"),
    ];
    let client = holder(env, &rules).await;
    let mut options = DeleteOptions::default();
    options.recurse = true;
    for (prefix, allowed) in [("/x", false), ("/y", true), ("/", false), ("", false)] {
        let done = client.kv_delete(&format!("{id}{prefix}"), &options).await;
        match done {
            Ok(true) => assert!(allowed, "{prefix}"),
            Err(error) => assert!(!allowed && error.is_permission_denied(), "{prefix}: {error}"),
            Ok(false) => panic!("{prefix}"),
        }
    }
    let error =
        client.kv_put(&format!("{id}/x/ro"), "v", &PutOptions::default()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
}

async fn roles_and_identities_give_rights(env: &Env) {
    let id = env.name("r").replace('_', "-");
    furnish(env, &id).await;
    let (web, node) = (format!("{id}-web"), format!("{id}-n"));
    let register = |client: Client, name: String, node: String| async move {
        let body = json!({ "Node": node, "SkipNodeUpdate": true, "Service": { "Service": name } });
        client.send(Request::put("x", "/v1/catalog/register").json(&body)).await.is_ok()
    };
    let sees = |client: Client, name: String| async move {
        let found = client.health_service(&name, &read().into()).await;
        found.is_ok_and(|found| !found.value.is_empty())
    };
    let mut token = AclTokenRequest::new("service identity");
    token.service_identities.push(ServiceIdentity::new(&web));
    let client = with(env, &token).await;
    assert!(register(client.clone(), web.clone(), node.clone()).await);
    assert!(register(client.clone(), format!("{web}-sidecar-proxy"), node.clone()).await);
    assert!(!register(client.clone(), format!("{id}-db"), node.clone()).await);
    assert!(sees(client.clone(), format!("{id}-db")).await, "it finds all others");

    let mut token = AclTokenRequest::new("node identity");
    token.node_identities.push(NodeIdentity::new(&node, "dc1"));
    let client = with(env, &token).await;
    let body = json!({ "Node": node, "Address": "10.0.0.9" });
    client.send(Request::put("x", "/v1/catalog/register").json(&body)).await.unwrap();
    assert!(!register(client.clone(), web.clone(), node.clone()).await);

    // Identities and policies that hold elsewhere give nothing.
    let mut token = AclTokenRequest::new("elsewhere");
    let mut identity = ServiceIdentity::new(&web);
    identity.datacenters.push("dc9".into());
    token.service_identities.push(identity);
    token.node_identities.push(NodeIdentity::new(&node, "dc9"));
    let mut policy = AclPolicy::new(env.name("far"), "service_prefix \"\" { policy = \"write\" }");
    policy.datacenters.push("dc9".into());
    let policy = env.client.acl_policy_create(&policy, &write()).await.unwrap();
    token.policies.push(AclLink::id(&policy.id));
    let client = with(env, &token).await;
    assert!(!register(client.clone(), web.clone(), node.clone()).await);

    let mut role = AclRole::new(env.name("role"));
    role.service_identities.push(ServiceIdentity::new(&web));
    let role = env.client.acl_role_create(&role, &write()).await.unwrap();
    let mut token = AclTokenRequest::new("by role");
    token.roles.push(AclLink::name(&role.name));
    let client = with(env, &token).await;
    assert!(register(client.clone(), web.clone(), node.clone()).await);
    env.client.acl_role_delete(&role.id, &write()).await.unwrap();
    // A real server looks a role up again after a while only.
    if env.double.is_some() {
        assert!(!register(client, web, node).await, "the role is gone");
    }
}

async fn the_anonymous_token_has_the_rights_it_is_given(env: &Env) {
    const ANONYMOUS: &str = "00000000-0000-0000-0000-000000000002";
    let key = env.name("k");
    env.client.kv_put(&key, "v", &PutOptions::default()).await.unwrap();
    let nobody = env.client.with_token(None).unwrap();
    let error = nobody.kv_get(&key, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    assert_eq!(error.to_string().contains("anonymous token lacks permission"), !env.is_1_8);
    let error = nobody.acl_token_self(&read()).await.unwrap_err();
    assert!(error.to_string().contains("ACL not found"), "{error}");
    let rules = format!("key {key:?} {{ policy = \"read\" }}");
    let policy = AclPolicy::new(env.name("p"), rules);
    let policy = env.client.acl_policy_create(&policy, &write()).await.unwrap();
    let mut token = AclTokenRequest::new("Anonymous Token");
    token.policies.push(AclLink::id(&policy.id));
    env.client.acl_token_update(ANONYMOUS, &token, &write()).await.unwrap();
    // A real server keeps what it knows of a token for a while.
    if env.double.is_some() {
        assert!(nobody.kv_get(&key, &read()).await.unwrap().value.is_some());
    }
    token.policies.clear();
    env.client.acl_token_update(ANONYMOUS, &token, &write()).await.unwrap();
}

/// Spec: CP51
async fn cp51_token_without_rights(env: &Env) {
    let id = env.name("x").replace('_', "-");
    furnish(env, &id).await;
    let client = holder(env, &[]).await;
    let error = client.kv_get(&format!("{id}/a"), &read()).await.unwrap_err();
    assert!(error.is_permission_denied() && !error.is_retryable(), "{error}");
    let list = client.kv_list(&id, &read()).await.unwrap();
    assert!(list.value.is_empty());
    let health = client.health_service(&format!("{id}-web"), &read().into()).await.unwrap();
    assert!(health.value.is_empty());
    // Servers before 1.11 do not say that something was left out.
    assert_eq!(health.meta.filtered_by_acls, !env.is_1_8);
    assert_eq!(list.meta.filtered_by_acls, !env.is_1_8);
    let connect = client.health_connect(&format!("{id}-web"), &read().into()).await;
    match connect {
        Ok(found) => assert!(env.is_1_8 && found.value.is_empty()),
        Err(error) => assert!(!env.is_1_8 && error.is_permission_denied(), "{error}"),
    }
}

/// Spec: CP52
async fn cp52_unknown_secret(env: &Env) {
    let stranger = env.client.with_token(Some("0ddba11a-0000-4000-8000-000000000000".into()));
    let stranger = stranger.unwrap();
    for error in [
        stranger.kv_get("x", &read()).await.unwrap_err(),
        stranger.catalog_services(&read()).await.unwrap_err(),
        stranger.agent_self().await.unwrap_err(),
        stranger.acl_token_self(&read()).await.unwrap_err(),
        stranger.acl_logout(&write()).await.unwrap_err(),
    ] {
        assert_eq!(error.status(), Some(StatusCode::FORBIDDEN));
        assert!(error.to_string().contains("ACL not found"), "{error}");
    }
    assert!(
        stranger.status_leader().await.is_ok()
            && stranger.catalog_datacenters(&read()).await.is_ok()
    );
}

/// Spec: CP53
async fn cp53_token_goes_while_a_read_is_blocked(env: &Env) {
    let key = env.name("k");
    env.client.kv_put(&key, "v", &PutOptions::default()).await.unwrap();
    let rules = format!("key {key:?} {{ policy = \"read\" }}");
    let policy = AclPolicy::new(env.name("p"), rules);
    let policy = env.client.acl_policy_create(&policy, &write()).await.unwrap();
    let mut token = AclTokenRequest::new("short-lived");
    token.policies.push(AclLink::id(&policy.id));
    let token = env.client.acl_token_create(&token, &write()).await.unwrap();
    let client = env.client.with_token(token.secret_id).unwrap();
    let first = client.kv_get(&key, &read()).await.unwrap();
    let mut options = read();
    (options.index, options.wait) = (first.meta.index, Some(env.wait()));
    let held = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.kv_get(&key, &options).await }
    });
    if let Some(double) = &env.double {
        double.wait_for_blocked(1).await;
    }
    env.client.acl_token_delete(&token.accessor_id, &write()).await.unwrap();
    if let Err(error) = held.await.unwrap() {
        assert!(error.is_permission_denied(), "{error}");
    }
    let error = client.kv_get(&key, &read()).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::FORBIDDEN), "{error}");
}
