//! Logins through auth methods: `jwt` on the double and the real server, and
//! `aws-iam`, which Consul knows since 1.12, on the double.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use consul_watch::{
    Client, Error, QueryOptions, Result, WriteOptions,
    client::{AclTokenFilter, Request},
    testing::{DefaultPolicy, LoginAttempt, LoginIdentity, TestConsul},
    types::{AclAuthMethod, AclBindingRule, AclLogin, AclRole, AclToken, BindType, JsonObject},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::Env;

super::cases![
    sealed:
    logins_by_jwt,
    auth_methods_are_checked,
    binding_rules_are_checked,
    an_auth_method_takes_its_logins_along,
];

const KEY: &str = include_str!("../../data/login/key.pub.pem");
const WEB: &str = include_str!("../../data/login/web.jwt");
const PLAIN: &str = include_str!("../../data/login/plain.jwt");
const ODD: &str = include_str!("../../data/login/odd.jwt");

fn write() -> WriteOptions {
    WriteOptions::default()
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else { panic!("{value} is no object") };
    object
}

fn jwt_config() -> JsonObject {
    object(json!({
        "JWTValidationPubKeys": [KEY], "JWTSupportedAlgs": ["ES256"],
        "BoundIssuer": "https://issuer.test", "BoundAudiences": ["consul"],
        "ClaimMappings": { "svc": "svc", "sub": "who" },
        "ListClaimMappings": { "groups": "groups" },
    }))
}

/// Knows the tokens of the test data; no other signature is right.
fn verify(attempt: &LoginAttempt<'_>) -> std::result::Result<LoginIdentity, String> {
    let token = attempt.bearer_token.expose_secret();
    if ![WEB, PLAIN, ODD].contains(&token) {
        return Err("error parsing token: no signature".to_owned());
    }
    let body = token.split('.').nth(1).unwrap_or_default();
    let claims: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(body).map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
    let groups = claims["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok(LoginIdentity::default()
        .claim("svc", claims["svc"].as_str().unwrap_or_default())
        .claim("who", claims["sub"].as_str().unwrap_or_default())
        .claims("groups", groups))
}

async fn jwt_method(env: &Env) -> AclAuthMethod {
    if let Some(double) = &env.double {
        double.set_login_verifier("jwt", verify);
    }
    let mut method = AclAuthMethod::new(env.name("jwt"), "jwt", jwt_config());
    method.max_token_ttl = Some(std::time::Duration::from_mins(5));
    env.client.acl_auth_method_create(&method, &write()).await.unwrap()
}

async fn bind(
    env: &Env,
    method: &str,
    kind: BindType,
    name: &str,
    selector: &str,
) -> AclBindingRule {
    let mut rule = AclBindingRule::new(method, kind, name);
    selector.clone_into(&mut rule.selector);
    env.client.acl_binding_rule_create(&rule, &write()).await.unwrap()
}

async fn login(client: &Client, method: &str, bearer: &str) -> Result<AclToken> {
    client.with_token(None)?.acl_login(&AclLogin::new(method, bearer.into()), &write()).await
}

async fn logins_by_jwt(env: &Env) {
    let method = jwt_method(env).await.name;
    let error = login(&env.client, &method, WEB).await.unwrap_err();
    assert!(error.is_permission_denied(), "no rule binds anything: {error}");

    let role =
        env.client.acl_role_create(&AclRole::new(env.name("r-web")), &write()).await.unwrap();
    let prefix = role.name.strip_suffix("web").unwrap();
    let filled = format!("{prefix}${{value.svc}}");
    bind(env, &method, BindType::Role, &filled, "admin in list.groups").await;
    bind(env, &method, BindType::Role, "no-such-role", "").await;
    bind(env, &method, BindType::Node, "n-${value.who}", "value.who == web").await;
    let service =
        bind(env, &method, BindType::Service, "${ value.svc }", "value.svc != \"\"").await;

    let mut shown = AclLogin::new(&method, WEB.into());
    shown.meta.insert("pod".into(), "p1".into());
    shown.meta.insert("a".into(), "b".into());
    let nobody = env.client.with_token(None).unwrap();
    let token = nobody.acl_login(&shown, &write()).await.unwrap();
    assert_eq!(token.description, r#"token created via login: {"a":"b","pod":"p1"}"#);
    assert_eq!(token.service_identities[0].service_name, "web", "names are in lower case");
    assert_eq!(token.node_identities[0].node_name, "n-web");
    let roles: Vec<&str> = token.roles.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(roles, [role.name.as_str()], "a role that does not exist is not bound");
    assert!(token.local && token.auth_method == method);
    let life = token.expiration_time.unwrap().duration_since(token.create_time.unwrap()).unwrap();
    assert_eq!(life.as_secs(), 300);

    let own = env.client.with_token(token.secret_id.clone()).unwrap();
    assert!(own.acl_token_self(&read()).await.unwrap().value == token);
    let found = own.catalog_services(&read()).await.unwrap().value;
    assert!(found.contains_key("consul"), "the identity finds services: {found:?}");
    own.acl_logout(&write()).await.unwrap();
    let error = own.acl_logout(&write()).await.unwrap_err();
    assert!(error.to_string().contains("ACL not found"), "{error}");
    let error = env.client.acl_logout(&write()).await.unwrap_err();
    assert!(error.is_permission_denied(), "a token that no login made: {error}");

    let error = login(&env.client, &method, PLAIN).await.unwrap_err();
    assert!(error.is_permission_denied(), "no selector takes it: {error}");
    let error = login(&env.client, &method, ODD).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(500));
    let problem = if env.is_1_8 {
        "bind name for bind target is invalid"
    } else {
        "invalid bind name: \"bad_\""
    };
    assert!(error.to_string().contains(problem), "{error}");
    let error = login(&env.client, &method, "forged").await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(500));
    assert!(error.to_string().contains("error parsing token"), "{error}");
    let error = login(&env.client, "nope", WEB).await.unwrap_err();
    assert!(error.to_string().contains("ACL not found"), "{error}");
    env.client.acl_binding_rule_delete(&service.id, &write()).await.unwrap();
    let token = login(&env.client, &method, WEB).await.unwrap();
    assert!(token.service_identities.is_empty() && token.description == "token created via login");
}

/// Status and text of a refused PUT.
async fn refused(env: &Env, path: &str, body: &Value) -> (u16, String) {
    let request = Request::put("put", &format!("/v1/acl/{path}")).json(body);
    match env.client.send(request).await {
        Err(Error::Status { status, message, .. }) => {
            (status.as_u16(), message.replace("Bad request: ", ""))
        }
        other => panic!("{body}: {other:?}"),
    }
}

async fn auth_methods_are_checked(env: &Env) {
    let method = jwt_method(env).await.name;
    let jwt = |more: Value| {
        let mut body =
            object(json!({ "Name": env.name("m"), "Type": "jwt", "Config": jwt_config() }));
        body.extend(object(more));
        Value::Object(body)
    };
    let kinds = if env.is_1_8 { "jwt kubernetes" } else { "aws-iam jwt kubernetes" };
    let named = format!("auth-method/{method}");
    let mut wrong = Vec::new();
    for (path, body, status, text) in [
        ("auth-method", jwt(json!({ "Type": "bogus" })), 500, format!("Invalid Auth Method: Type should be one of: [{kinds}]")),
        ("auth-method", jwt(json!({ "Name": "" })), 500, "Invalid Auth Method: no Name is set".into()),
        (
            "auth-method",
            jwt(json!({ "Name": "a b" })),
            500,
            "Invalid Auth Method: invalid Name. Only alphanumeric characters, '-' and '_' are allowed".into(),
        ),
        (
            "auth-method",
            jwt(json!({ "Type": "kubernetes", "Config": {} })),
            500,
            "Invalid Auth Method: Config.Host is required".into(),
        ),
        ("auth-method", jwt(json!({ "MaxTokenTTL": "5s" })), 500, "MaxTokenTTL 5s cannot be less than 1m0s".into()),
        (
            "auth-method",
            jwt(json!({ "TokenLocality": "x" })),
            500,
            "Invalid Auth Method: TokenLocality should be one of 'local' or 'global'".into(),
        ),
        (&named, jwt(json!({ "Name": method, "Type": "kubernetes" })), 500, "the Type field of an Auth Method is immutable".into()),
        (&named, jwt(json!({ "Name": "other" })), 400, "AuthMethod Name in URL and payload do not match".into()),
    ] {
        let found = refused(env, path, &body).await;
        if found != (status, text.clone()) {
            wrong.push(format!("{path} {body}: {found:?} instead of {:?}", (status, text)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Only servers of old have a longest life of tokens.
    let mut long = AclAuthMethod::new(env.name("long"), "jwt", jwt_config());
    long.max_token_ttl = Some(std::time::Duration::from_hours(25));
    match env.client.acl_auth_method_create(&long, &write()).await {
        Ok(made) => assert!(!env.is_1_8 && made.max_token_ttl == long.max_token_ttl),
        Err(error) => {
            assert!(env.is_1_8, "{error}");
            let text = "MaxTokenTTL 25h0m0s cannot be more than 24h0m0s";
            assert!(error.to_string().contains(text), "{error}");
        }
    }
    let mut changed = AclAuthMethod::new(&method, "jwt", jwt_config());
    changed.description = "changed".into();
    let changed = env.client.acl_auth_method_update(&changed, &write()).await.unwrap();
    assert!(changed.modify_index > changed.create_index);
    let listed = env.client.acl_auth_methods(&read()).await.unwrap().value;
    let listed = listed.iter().find(|found| found.name == method).unwrap();
    assert!(listed.config.is_empty() && listed.description == "changed");
    let read = env.client.acl_auth_method(&method, &read()).await.unwrap().value.unwrap();
    assert!(read.config.expose().contains_key("BoundIssuer"));
}

async fn binding_rules_are_checked(env: &Env) {
    let method = jwt_method(env).await.name;
    let rule = |kind: &str, name: &str, selector: &str| json!({ "AuthMethod": method, "BindType": kind, "BindName": name, "Selector": selector });
    let bad = |text: &str| (500, format!("Invalid Binding Rule: {text}"));
    let old = env.is_1_8;
    let unbound = |before: &str, now: &str| {
        let start = "invalid BindName or BindVars: failed to validate bindType \"service\"";
        if old { bad(before) } else { bad(&format!("{start}: {now}")) }
    };
    let mut wrong = Vec::new();
    for (body, wanted) in [
        (json!({ "AuthMethod": "nope", "BindType": "service", "BindName": "x" }), (500, "cannot find auth method with name \"nope\"".to_owned())),
        (json!({ "BindType": "service", "BindName": "x" }), bad("no AuthMethod is set")),
        (rule("x", "x", ""), bad(if old { "unknown BindType \"x\"" } else { "invalid BindName or BindVars: invalid Binding Rule: unknown BindType \"x\"" })),
        (rule("service", "", ""), bad("no BindName is set")),
        (rule("service", "${bad}", ""), unbound("invalid BindName: 1:3: unknown variable accessed: bad", "error interpreting template: 1:3: unknown variable accessed: bad")),
        (rule("service", "A-${value.svc}", ""), unbound("invalid BindName", "invalid bind name: \"A-fake\"")),
        (rule("service", "x{y}", ""), unbound("invalid BindName", "invalid bind name: \"x{y}\"")),
        (
            rule("service", "${value.svc", ""),
            unbound(
                "invalid BindName: parse error: syntax error",
                "error interpreting template: parse error at 1:12: expected \"}\" but found end of string",
            ),
        ),
        (
            rule("service", "x", "foo == bar"),
            (500, "invalid Binding Rule: Selector is invalid: Selector \"foo\" is not valid".to_owned()),
        ),
        (
            rule("service", "x", "value.svc =="),
            (
                500,
                r#"invalid Binding Rule: Selector is invalid: 1:13 (12): no match found, expected: "-", "0", "\"", "`", [ \t\r\n], [1-9] or [a-zA-Z]"#.to_owned(),
            ),
        ),
    ] {
        let found = refused(env, "binding-rule", &body).await;
        if found != wanted {
            wrong.push(format!("{body}: {found:?} instead of {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let made = bind(env, &method, BindType::Service, "x", "").await;
    let path = format!("binding-rule/{}", made.id);
    let other = jwt_method(env).await.name;
    let body = json!({ "AuthMethod": other, "BindType": "service", "BindName": "x" });
    let text = "the AuthMethod field of an Binding Rule is immutable".to_owned();
    assert_eq!(refused(env, &path, &body).await, (500, text));
    let mut changed = made.clone();
    changed.bind_name = "y".into();
    env.client.acl_binding_rule_update(&changed, &write()).await.unwrap();
    let found = env.client.acl_binding_rules(Some(&method), &read()).await.unwrap().value;
    assert_eq!(found.iter().map(|rule| rule.bind_name.as_str()).collect::<Vec<_>>(), ["y"]);
}

async fn an_auth_method_takes_its_logins_along(env: &Env) {
    let method = jwt_method(env).await.name;
    bind(env, &method, BindType::Service, "x", "").await;
    let token = login(&env.client, &method, WEB).await.unwrap();
    let mut filter = AclTokenFilter::default();
    filter.auth_method = Some(method.clone());
    assert_eq!(env.client.acl_tokens(&filter, &read()).await.unwrap().value.len(), 1);
    env.client.acl_auth_method_delete(&method, &write()).await.unwrap();
    assert!(env.client.acl_token(&token.accessor_id, &read()).await.unwrap().value.is_none());
    assert!(env.client.acl_binding_rules(Some(&method), &read()).await.unwrap().value.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_login_by_aws_iam_on_the_double() {
    super::SUITE.double("consul");
    let builder = TestConsul::builder().acls(DefaultPolicy::Deny);
    let consul = builder.management_token(super::ROOT).build();
    consul.set_login_verifier("aws-iam", |attempt: &LoginAttempt<'_>| {
        assert_eq!((attempt.auth_method, attempt.kind), ("iam", "aws-iam"));
        assert!(attempt.config.contains_key("BoundIAMPrincipalARNs"));
        let role = attempt.bearer_token.expose_secret().strip_prefix("signed:");
        let role = role.ok_or("the signature is wrong")?;
        let arn = format!("arn:aws:iam::1:role/ecs/{role}");
        Ok(LoginIdentity::aws_iam(arn, role, "AROA", "1")
            .entity_path("/ecs/")
            .entity_tag("consul.hashicorp.com.service-name", "Api")
            .entity_tag("not-asked-for", "x"))
    });
    let admin = consul.client();
    let create = |config: Value| {
        let admin = admin.clone();
        let method = AclAuthMethod::new("iam", "aws-iam", object(config));
        async move { admin.acl_auth_method_create(&method, &write()).await }
    };
    assert!(
        create(json!({}))
            .await
            .unwrap_err()
            .to_string()
            .contains("BoundIAMPrincipalARNs is required")
    );
    let tags = json!(["consul.hashicorp.com.service-name"]);
    let arns = json!(["arn:aws:iam::1:role/ecs/*"]);
    let error = create(json!({ "BoundIAMPrincipalARNs": arns, "IAMEntityTags": tags })).await;
    assert!(error.unwrap_err().to_string().contains("EnableIAMEntityDetails"));
    create(json!({
        "BoundIAMPrincipalARNs": arns, "EnableIAMEntityDetails": true, "IAMEntityTags": tags,
    }))
    .await
    .unwrap();
    let bind = |name: &str, selector: &str| {
        let mut rule = AclBindingRule::new("iam", BindType::Service, name);
        selector.clone_into(&mut rule.selector);
        let admin = admin.clone();
        async move { admin.acl_binding_rule_create(&rule, &write()).await }
    };
    let tagged = "${entity_tags.consul.hashicorp.com.service-name}";
    bind(tagged, "entity_path == `/ecs/` and account_id == 1").await.unwrap();
    bind("${entity_name}", "entity_tags[`not-asked-for`] == x").await.unwrap();
    assert!(bind("${entity_tags.not-asked-for}", "").await.is_err());
    let token = login(&admin, "iam", "signed:web").await.unwrap();
    let names: Vec<&str> =
        token.service_identities.iter().map(|identity| identity.service_name.as_str()).collect();
    assert_eq!(names, ["api"], "a tag that the method does not name does not count");
    let error = login(&admin, "iam", "forged").await.unwrap_err();
    assert!(error.to_string().contains("the signature is wrong"), "{error}");
    consul.set_login_verifier("aws-iam", |_: &LoginAttempt<'_>| {
        Ok(LoginIdentity::aws_iam("arn:aws:iam::2:role/web", "web", "AROA", "2"))
    });
    let error = login(&admin, "iam", "signed:web").await.unwrap_err();
    assert!(error.to_string().contains("IAM principal arn:aws:iam::2:role/web is not trusted"));
    // Tokens of logins end by themselves.
    let mut method = admin.acl_auth_method("iam", &read()).await.unwrap().value.unwrap();
    method.max_token_ttl = Some(std::time::Duration::from_mins(1));
    admin.acl_auth_method_update(&method, &write()).await.unwrap();
    consul.set_login_verifier("aws-iam", |_: &LoginAttempt<'_>| {
        let identity = LoginIdentity::aws_iam("arn:aws:iam::1:role/ecs/x", "x", "AROA", "1");
        let tag = "consul.hashicorp.com.service-name";
        Ok(identity.entity_path("/ecs/").entity_tag(tag, "api"))
    });
    let token = login(&admin, "iam", "signed:web").await.unwrap();
    let own = admin.with_token(token.secret_id).unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(59)).await;
    assert!(own.acl_token_self(&read()).await.is_ok());
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(own.acl_token_self(&read()).await.is_err());
}
