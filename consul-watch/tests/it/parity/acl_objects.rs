//! How policies, tokens, roles, auth methods and binding rules are made,
//! checked, linked and removed. Texts are those of Consul 1.8.7; newer servers
//! leave "Bad request: " out.

use consul_watch::{
    Error, QueryOptions, WriteOptions,
    client::{AclTokenFilter, Request},
    testing::{Behaviour, DefaultPolicy, TestConsul, real::Consul},
    types::{AclLink, AclPolicy, AclRole, AclTokenRequest, ServiceIdentity},
};
use serde_json::{Value, json};

use super::Env;

super::cases![
    sealed:
    rules_are_checked,
    bodies_are_checked,
    links_follow_names_and_lose_what_is_gone,
    tokens_are_filtered_hidden_cloned_and_kept,
    what_is_not_there,
    cp50_bootstrap_twice,
];

const NOWHERE: &str = "0b0d1e50-0000-4000-8000-00000000dead";

fn write() -> WriteOptions {
    WriteOptions::default()
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

/// Status and text of what comes of a PUT.
async fn put(env: &Env, path: &str, body: &Value) -> (u16, String) {
    let request = Request::put("put", &format!("/v1/acl/{path}")).json(body);
    outcome(env, request).await
}

async fn outcome(env: &Env, request: Request) -> (u16, String) {
    match env.client.send(request).await {
        Ok(response) => {
            (response.status().as_u16(), String::from_utf8_lossy(response.body()).into_owned())
        }
        Err(Error::Status { status, message, .. }) => {
            (status.as_u16(), message.replace("Bad request: ", ""))
        }
        Err(error) => panic!("{error}"),
    }
}

async fn rules_are_checked(env: &Env) {
    for (rules, refused) in [
        ("key \"a\" { policy = \"read\" }", ""),
        ("acl = \"write\" operator = \"read\" keyring=\"read\"", ""),
        ("{\"key_prefix\":{\"foo\":{\"policy\":\"read\"}},\"acl\":\"write\"}", ""),
        ("{\"key\":[{\"a\":{\"policy\":\"read\"}}]}", ""),
        ("service \"web\" { policy = \"write\" intentions = \"read\" }", ""),
        ("bogus \"a\" { policy = \"read\" }", ""),
        ("key \"a\" { policy = \"read\" foo=\"x\" }", ""),
        ("\"key\" \"a\" { policy = \"read\" }, # c\nacl = \"read\"", ""),
        ("operator=\"deny\"", ""),
        ("", ""),
        ("key \"a\" { policy=\"read\" sentinel { code=\"x\" } }", ""),
        (
            "key \"a\" { policy = \"bogus\" }",
            "Invalid key policy: &acl.KeyRule{Prefix:\"a\", Policy:\"bogus\", EnterpriseRule:acl.EnterpriseRule{}}",
        ),
        (
            "service \"a\" { }",
            "Invalid service policy: &acl.ServiceRule{Name:\"a\", Policy:\"\", Intentions:\"\", EnterpriseRule:acl.EnterpriseRule{}}",
        ),
        (
            "service \"a\" { policy = \"read\" intentions = \"bogus\" }",
            "Invalid service intentions policy: &acl.ServiceRule{Name:\"a\", Policy:\"read\", Intentions:\"bogus\", EnterpriseRule:acl.EnterpriseRule{}}",
        ),
        (
            "agent \"a\" { policy=\"list\" }",
            "Invalid agent policy: &acl.AgentRule{Node:\"a\", Policy:\"list\"}",
        ),
        ("acl = \"x\"", "Invalid acl policy: \"x\""),
        ("acl = \"list\"", "Invalid acl policy: \"list\""),
        ("keyring=\"x\"", "Invalid keyring policy: \"x\""),
        ("operator=\"x\"", "Invalid operator policy: \"x\""),
        (
            "key_prefix \"\" { policy = \"list\" } key \"b\" = { policy=\"deny\" }",
            "Failed to parse ACL rules: At 1:43: nested object expected: LBRACE got: ASSIGN",
        ),
        (
            "key \"a\" {",
            "Failed to parse ACL rules: At 1:11: object expected closing RBRACE got: EOF",
        ),
    ] {
        let body = json!({ "Name": env.name("p"), "Rules": rules });
        let (status, text) = put(env, "policy", &body).await;
        if refused.is_empty() {
            assert_eq!(status, 200, "{rules}: {text}");
        } else {
            assert_eq!((status, text.as_str()), (500, refused), "{rules}");
        }
    }
}

#[expect(clippy::too_many_lines, reason = "a table")]
async fn bodies_are_checked(env: &Env) {
    let name = env.name("taken");
    let policy = env.client.acl_policy_create(&AclPolicy::new(&name, ""), &write()).await.unwrap();
    let role = env.client.acl_role_create(&AclRole::new(&name), &write()).await.unwrap();
    let token = env.client.acl_token_create(&AclTokenRequest::new("t"), &write()).await.unwrap();
    let accessor = token.accessor_id;
    let token = format!("token/{accessor}");
    let name_rule = "Only alphanumeric characters, '-' and '_' are allowed";
    let policy_rule = if env.is_1_8 {
        name_rule
    } else {
        "Only alphanumeric characters, a single '/', '-' and '_' are allowed"
    };
    let identity = |name: &str| json!({ "ServiceIdentities": [{ "ServiceName": name }] });
    let identity_rule = if env.is_1_8 {
        name_rule
    } else {
        "Only lowercase alphanumeric characters, '-' and '_' are allowed"
    };
    let mut wrong = Vec::new();
    for (path, body, status, text) in [
        (
            "policy",
            json!({ "Name": name }),
            500,
            format!("Invalid Policy: A Policy with Name {name:?} already exists"),
        ),
        (
            "policy",
            json!({ "Name": "a b" }),
            500,
            format!("Invalid Policy: invalid Name. {policy_rule}"),
        ),
        ("policy", json!({ "Name": "" }), 500, "Invalid Policy: no Name is set".into()),
        (
            "policy",
            json!({ "ID": NOWHERE, "Name": "x" }),
            400,
            "Cannot specify the ID when creating a new policy".into(),
        ),
        (
            "policy",
            json!({ "Foo": "x" }),
            400,
            "Policy decoding failed: json: unknown field \"Foo\"".into(),
        ),
        (
            &format!("policy/{NOWHERE}"),
            json!({ "Name": "q" }),
            500,
            format!("cannot find policy {NOWHERE}"),
        ),
        (
            "policy/00000000-0000-0000-0000-000000000001",
            json!({ "Name": "q", "Rules": "acl = \"write\"" }),
            500,
            "Changing the Rules for the builtin global-management policy is not permitted".into(),
        ),
        (
            "role",
            json!({ "Name": name }),
            500,
            format!("Invalid Role: A Role with Name {name:?} already exists"),
        ),
        ("role", json!({ "Name": "a b" }), 500, format!("Invalid Role: invalid Name. {name_rule}")),
        ("role", json!({ "Name": "" }), 500, "Invalid Role: no Name is set".into()),
        (
            "role",
            json!({ "ID": NOWHERE, "Name": "x" }),
            400,
            "Role ID in URL and payload do not match".into(),
        ),
        (
            "role",
            json!({ "Name": "x", "Policies": [{ "Name": "nope" }] }),
            500,
            "No such ACL policy with name \"nope\"".into(),
        ),
        (
            &format!("role/{NOWHERE}"),
            json!({ "Name": "x" }),
            500,
            format!("cannot find role {NOWHERE}"),
        ),
        (
            &format!("role/{}", role.id),
            json!({ "Description": "x" }),
            500,
            "Invalid Role: no Name is set".into(),
        ),
        (
            "token",
            json!({ "Policies": [{ "Name": "nope" }] }),
            500,
            "No such ACL policy with name \"nope\"".into(),
        ),
        (
            "token",
            json!({ "Policies": [{ "ID": NOWHERE }] }),
            500,
            format!("No such ACL policy with ID {NOWHERE:?}"),
        ),
        (
            "token",
            json!({ "Roles": [{ "Name": "nope" }] }),
            500,
            "No such ACL role with name \"nope\"".into(),
        ),
        (
            "token",
            json!({ "SecretID": "x" }),
            500,
            format!(
                "Invalid Token: SecretID {} not a valid UUID",
                if env.is_1_8 { "is" } else { "-" }
            ),
        ),
        (
            "token",
            json!({ "SecretID": super::ROOT }),
            500,
            "Invalid Token: SecretID is already in use".into(),
        ),
        (
            "token",
            json!({ "ExpirationTTL": "1s" }),
            500,
            "ExpirationTime cannot be less than 1m0s in the future (was 1s)".into(),
        ),
        (
            "token",
            identity("Web"),
            500,
            format!("Service identity \"Web\" has an invalid name. {identity_rule}"),
        ),
        (
            "token",
            identity(""),
            500,
            "Service identity is missing the service name field on this token".into(),
        ),
        (
            "token",
            json!({ "NodeIdentities": [{ "NodeName": "n" }] }),
            500,
            "Node identity is missing the datacenter field on this token".into(),
        ),
        (
            "token",
            json!({ "NodeIdentities": [{ "NodeName": "N", "Datacenter": "dc1" }] }),
            500,
            format!("Node identity has an invalid name. {identity_rule}"),
        ),
        (
            "token",
            json!({ "Local": true, "ServiceIdentities": [{ "ServiceName": "web", "Datacenters": ["dc2"] }] }),
            500,
            "Service identity \"web\" cannot specify a list of datacenters on a local token".into(),
        ),
        (
            "token",
            json!({ "Foo": 1 }),
            400,
            "Token decoding failed: json: unknown field \"Foo\"".into(),
        ),
        (
            &token,
            json!({ "SecretID": NOWHERE }),
            500,
            format!(
                "Changing a {} SecretID is not permitted",
                if env.is_1_8 { "tokens" } else { "token's" }
            ),
        ),
        (
            &token,
            json!({ "AccessorID": NOWHERE }),
            400,
            "Token Accessor ID in URL and payload do not match".into(),
        ),
        (
            &token,
            json!({ "Local": true }),
            500,
            format!(
                "{} toggle local mode of {accessor}",
                if env.is_1_8 { "cannot" } else { "Cannot" }
            ),
        ),
        (&format!("token/{NOWHERE}"), json!({}), 500, format!("Cannot find token {NOWHERE:?}")),
    ] {
        let found = put(env, path, &body).await;
        if found != (status, text.clone()) {
            wrong.push(format!("{path} {body}: {found:?} instead of {:?}", (status, text)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Only servers of old have a longest life of tokens.
    let (status, text) = put(env, "token", &json!({ "ExpirationTTL": "25h" })).await;
    assert_eq!(status, if env.is_1_8 { 500 } else { 200 });
    let limit = "ExpirationTime cannot be more than 24h0m0s in the future (was 25h0m0s)";
    assert_eq!(text == limit, env.is_1_8, "{text}");
    let request = Request::put("x", &format!("/v1/acl/policy/{}", policy.id));
    let (status, text) = outcome(env, request.bytes("{".into())).await;
    assert_eq!((status, text.as_str()), (400, "Policy decoding failed: unexpected EOF"));
    for (path, text) in [
        (
            "token/00000000-0000-0000-0000-000000000002",
            "Delete operation not permitted on the anonymous token",
        ),
        (
            "policy/00000000-0000-0000-0000-000000000001",
            "Delete operation not permitted on the builtin global-management policy",
        ),
        ("token/x", "Accessor ID is missing or an invalid UUID"),
    ] {
        let (status, found) = outcome(env, Request::delete("x", &format!("/v1/acl/{path}"))).await;
        assert_eq!((status, found.as_str()), (500, text), "{path}");
    }
    for (path, what) in [("token/x", "token"), ("policy/x", "policy"), ("role/x", "role")] {
        let (status, found) = outcome(env, Request::get("x", &format!("/v1/acl/{path}"))).await;
        let text = format!("failed acl {what} lookup: index error: UUID must be 36 characters");
        assert_eq!((status, found), (500, text), "{path}");
    }
}

async fn links_follow_names_and_lose_what_is_gone(env: &Env) {
    let (name, renamed) = (env.name("p"), env.name("q"));
    let mut policy =
        env.client.acl_policy_create(&AclPolicy::new(&name, ""), &write()).await.unwrap();
    let mut role = AclRole::new(env.name("r"));
    role.policies.push(AclLink::name(&name));
    let role = env.client.acl_role_create(&role, &write()).await.unwrap();
    let mut token = AclTokenRequest::new("linked");
    token.policies = vec![AclLink::name(&name), AclLink::name(&name)];
    token.roles.push(AclLink::name(&role.name));
    token.service_identities = vec![ServiceIdentity::new("web"), ServiceIdentity::new("web")];
    let token = env.client.acl_token_create(&token, &write()).await.unwrap();
    assert_eq!((token.policies.len(), token.service_identities.len()), (1, 1), "each once");
    policy.name.clone_from(&renamed);
    env.client.acl_policy_update(&policy, &write()).await.unwrap();
    let again = || async {
        env.client.acl_token(&token.accessor_id, &read()).await.unwrap().value.unwrap()
    };
    assert_eq!(again().await.policies[0].name, renamed);
    let filter = |change: fn(&mut AclTokenFilter, String), value: &str| {
        let mut filter = AclTokenFilter::default();
        change(&mut filter, value.to_owned());
        filter
    };
    for filter in [
        filter(|filter, id| filter.policy = Some(id), &policy.id),
        filter(|filter, id| filter.role = Some(id), &role.id),
    ] {
        let found = env.client.acl_tokens(&filter, &read()).await.unwrap().value;
        let accessors: Vec<&str> = found.iter().map(|found| found.accessor_id.as_str()).collect();
        assert_eq!(accessors, [token.accessor_id.as_str()]);
    }
    env.client.acl_policy_delete(&policy.id, &write()).await.unwrap();
    env.client.acl_role_delete(&role.id, &write()).await.unwrap();
    let left = again().await;
    assert!(left.policies.is_empty() && left.roles.is_empty());
}

async fn tokens_are_filtered_hidden_cloned_and_kept(env: &Env) {
    let mut request = AclTokenRequest::new("original");
    request.service_identities.push(ServiceIdentity::new("web"));
    request.expiration_ttl = Some(std::time::Duration::from_hours(1));
    let token = env.client.acl_token_create(&request, &write()).await.unwrap();
    let (from, to) = (token.create_time.unwrap(), token.expiration_time.unwrap());
    assert_eq!(to.duration_since(from).unwrap().as_secs(), 3600);
    let copy = env.client.acl_token_clone(&token.accessor_id, "copy", &write()).await.unwrap();
    assert_eq!(copy.service_identities, token.service_identities);
    assert!(copy.accessor_id != token.accessor_id && copy.secret_id.is_some());
    // A body without links takes them away; the secret stays.
    let bare = AclTokenRequest::new("bare");
    let changed = env.client.acl_token_update(&token.accessor_id, &bare, &write()).await.unwrap();
    assert!(changed.service_identities.is_empty() && changed.description == "bare");
    assert!(
        changed.modify_index > changed.create_index && changed.create_index == token.create_index
    );

    let mut reader = AclTokenRequest::new("reader");
    let policy = AclPolicy::new(env.name("p"), "acl = \"read\"");
    let policy = env.client.acl_policy_create(&policy, &write()).await.unwrap();
    reader.policies.push(AclLink::id(&policy.id));
    let reader = env.client.acl_token_create(&reader, &write()).await.unwrap();
    let reader = env.client.with_token(reader.secret_id).unwrap();
    let hidden = reader.acl_token(&token.accessor_id, &read()).await.unwrap().value.unwrap();
    assert!(hidden.secret_id.is_none(), "the secret is hidden from who only reads");
    let shown = env.client.acl_token(&token.accessor_id, &read()).await.unwrap().value.unwrap();
    assert!(shown.secret_id.is_some());
    let error = reader.acl_token_create(&bare, &write()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
}

async fn what_is_not_there(env: &Env) {
    assert!(env.client.acl_token(NOWHERE, &read()).await.unwrap().value.is_none());
    assert!(env.client.acl_policy(NOWHERE, &read()).await.unwrap().value.is_none());
    assert!(env.client.acl_policy_by_name("nope", &read()).await.unwrap().value.is_none());
    assert!(env.client.acl_role_by_name("nope", &read()).await.unwrap().value.is_none());
    assert!(env.client.acl_auth_method("nope", &read()).await.unwrap().value.is_none());
    assert!(env.client.acl_binding_rule(NOWHERE, &read()).await.unwrap().value.is_none());
    let none = env.client.acl_binding_rules(Some("nope"), &read()).await.unwrap().value;
    assert!(none.is_empty());
    for path in ["token", "policy", "role"] {
        let request = Request::get("x", &format!("/v1/acl/{path}/{NOWHERE}"));
        let (status, _) = outcome(env, request).await;
        let old = if path == "role" { 404 } else { 403 };
        let current = if path == "token" { 403 } else { 404 };
        assert_eq!(status, if env.is_1_8 { old } else { current }, "{path}");
        let request = Request::delete("x", &format!("/v1/acl/{path}/{NOWHERE}"));
        let (status, _) = outcome(env, request).await;
        assert_eq!(status, if env.is_1_8 { 200 } else { 404 }, "{path}");
    }
    env.client.acl_token_delete(NOWHERE, &write()).await.unwrap();
}

/// Spec: CP50
async fn cp50_bootstrap_twice(env: &Env) {
    // There is a management token already.
    let error = env.client.acl_bootstrap(None).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    assert!(
        error.to_string().contains("ACL bootstrap no longer allowed (reset index: "),
        "{error}"
    );
    let mut real = None;
    let fresh = if env.double.is_some() {
        let behaviour = if env.is_1_8 { Behaviour::V1_8 } else { Behaviour::Current };
        TestConsul::builder().behaviour(behaviour).acls(DefaultPolicy::Deny).build().client()
    } else {
        let part = super::SUITE.part("consul", env.case).expect("it is there");
        let settings = json!({ "acl": { "enabled": true, "default_policy": "deny" } });
        let consul = Consul::start_with(&part.path, settings).await.expect("a real Consul");
        real.insert(consul).client()
    };
    let first = loop {
        match fresh.acl_bootstrap(None).await {
            Ok(first) => break first,
            // A real server is not ready for it at once.
            Err(error) => assert!(error.to_string().contains("legacy mode"), "{error}"),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(first.policies[0].name, "global-management");
    let root = fresh.with_token(first.secret_id.clone()).unwrap();
    assert!(root.acl_token_self(&read()).await.unwrap().value == first);
    assert!(root.acl_bootstrap(None).await.unwrap_err().is_permission_denied());
    drop(real);
}
