//! Requests of ACL calls, as they go over the wire.

use secrecy::{ExposeSecret, SecretString};
use wiremock::matchers::{method, path};

use super::*;
use crate::{
    QueryOptions, WriteOptions,
    client::AclAuthorization,
    error_chain,
    types::{
        AclAuthMethod, AclBindingRule, AclLink, AclLogin, AclPolicy, AclRole, AclTokenRequest,
        BindType, JsonObject, NodeIdentity, ServiceIdentity,
    },
};

const ID: &str = "0ba897bc-5a40-b4b1-c9d5-45897c27a8e3";

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn write() -> WriteOptions {
    WriteOptions::default()
}

#[tokio::test]
async fn the_first_token() {
    let wire = Wire::new(200, captured!("acl-bootstrap")).await;
    let token = wire.client.acl_bootstrap(None).await.unwrap();
    assert_eq!(
        token.policies,
        [AclLink {
            id: "00000000-0000-0000-0000-000000000001".into(),
            name: "global-management".into(),
        }]
    );
    assert!(token.secret_id.is_some() && token.create_time.is_some());
    assert_eq!(wire.sent().await, "PUT /v1/acl/bootstrap");
    wire.client.acl_bootstrap(Some(&"planted".into())).await.unwrap();
    assert_eq!(wire.sent().await, r#"PUT /v1/acl/bootstrap {"BootstrapSecret":"planted"}"#);
}

#[tokio::test]
async fn what_a_token_may_do() {
    let answer = r#"[{"Resource":"key","Access":"write","Segment":"a/","Allow":true},
        {"Resource":"node","Access":"read","Segment":"","Allow":false}]"#;
    let wire = Wire::new(200, answer).await;
    let questions =
        [AclAuthorization::new("key", "write", "a/"), AclAuthorization::new("node", "read", "")];
    let allowed = wire.client.acl_authorize(&questions).await.unwrap();
    assert_eq!(allowed, Some(vec![true, false]));
    assert_eq!(
        wire.sent().await,
        r#"POST /v1/internal/acl/authorize [{"Resource":"key","Access":"write","Segment":"a/"},{"Resource":"node","Access":"read","Segment":""}]"#
    );
    let error = wire.client.acl_authorize(&questions[..1]).await.unwrap_err();
    assert!(error_chain(&error).contains("2 answers to 1 questions"), "{error:?}");

    let off = Wire::new(401, "ACL support disabled").await;
    assert_eq!(off.client.acl_authorize(&questions).await.unwrap(), None);
    let unknown = Wire::new(403, "ACL not found").await;
    let error = unknown.client.acl_authorize(&questions).await.unwrap_err();
    assert!(error.is_permission_denied());
}

#[tokio::test]
async fn the_servers_clock() {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let answer = ResponseTemplate::new(200).set_body_string("\"\"").insert_header("date", date);
    let wire = Wire::answering(answer).await;
    let time = wire.client.server_time().await.unwrap().unwrap();
    let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(since.as_secs(), 784_111_777);
    assert_eq!(wire.sent().await, "GET /v1/status/leader");
}

/// Spec: CP50
#[tokio::test]
async fn the_first_token_is_made_once() {
    let text = "Permission denied: ACL bootstrap no longer allowed (reset index: 14)";
    let wire = Wire::new(403, text).await;
    let error = wire.client.acl_bootstrap(None).await.unwrap_err();
    assert!(error.is_permission_denied() && !error.is_retryable());
}

#[tokio::test]
async fn tokens_are_read() {
    let wire = Wire::new(200, captured!("acl-token-read")).await;
    let token = wire.client.acl_token(ID, &read()).await.unwrap().value.unwrap();
    assert_eq!((token.description.as_str(), token.local), ("t", true));
    assert_eq!(token.service_identities, [ServiceIdentity::new("web")]);
    assert!(token.expiration_time > token.create_time);
    assert_eq!(wire.sent().await, format!("GET /v1/acl/token/{ID}"));
    let found = wire.client.acl_token_expanded(ID, &read()).await.unwrap().value.unwrap();
    assert!(found.token == token && found.expanded_policies.is_empty());
    assert_eq!(wire.sent().await, format!("GET /v1/acl/token/{ID}?expanded=true"));
    let own = wire.client.acl_token_self(&read()).await.unwrap().value;
    assert_eq!(own, token);
    assert_eq!(wire.sent().await, "GET /v1/acl/token/self");

    let wire = Wire::new(200, captured!("acl-tokens")).await;
    let filter = AclTokenFilter {
        policy: Some("p".into()),
        role: Some("r".into()),
        service_name: Some("s".into()),
        auth_method: Some("m".into()),
    };
    let tokens = wire.client.acl_tokens(&filter, &read()).await.unwrap().value;
    assert!(tokens.len() >= 3);
    assert_eq!(wire.sent().await, "GET /v1/acl/tokens?policy=p&role=r&servicename=s&authmethod=m");
}

#[tokio::test]
async fn tokens_are_written() {
    let wire = Wire::new(200, captured!("acl-token")).await;
    let mut request = AclTokenRequest::new("t");
    request.policies.push(AclLink::name("p1"));
    request.roles.push(AclLink::id("r"));
    request.service_identities.push(ServiceIdentity::new("web"));
    request.node_identities.push(NodeIdentity::new("n1", "dc1"));
    request.local = true;
    request.expiration_ttl = Some(Duration::from_hours(1));
    let body = r#"{"Description":"t","Policies":[{"Name":"p1"}],"Roles":[{"ID":"r"}],"ServiceIdentities":[{"ServiceName":"web"}],"NodeIdentities":[{"NodeName":"n1","Datacenter":"dc1"}],"Local":true,"ExpirationTTL":"1h0m0s"}"#;
    let options = WriteOptions { partition: Some("p".into()), ..write() };
    let token = wire.client.acl_token_create(&request, &options).await.unwrap();
    assert_eq!(token.auth_method, "");
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/token?partition=p {body}"));
    wire.client.acl_token_update(ID, &request, &write()).await.unwrap();
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/token/{ID} {body}"));
    wire.client.acl_token_clone(ID, "copy", &write()).await.unwrap();
    assert_eq!(
        wire.sent().await,
        format!(r#"PUT /v1/acl/token/{ID}/clone {{"Description":"copy"}}"#)
    );
}

#[tokio::test]
async fn what_is_not_there_counts_as_removed() {
    for (status, body) in [(200, "true"), (404, "Cannot find token to delete")] {
        let wire = Wire::new(status, body).await;
        let (client, options) = (&wire.client, write());
        client.acl_token_delete(ID, &options).await.unwrap();
        assert_eq!(wire.sent().await, format!("DELETE /v1/acl/token/{ID}"));
        client.acl_policy_delete(ID, &options).await.unwrap();
        assert_eq!(wire.sent().await, format!("DELETE /v1/acl/policy/{ID}"));
        client.acl_role_delete(ID, &options).await.unwrap();
        assert_eq!(wire.sent().await, format!("DELETE /v1/acl/role/{ID}"));
        client.acl_auth_method_delete("a b", &options).await.unwrap();
        assert_eq!(wire.sent().await, "DELETE /v1/acl/auth-method/a%20b");
        client.acl_binding_rule_delete(ID, &options).await.unwrap();
        assert_eq!(wire.sent().await, format!("DELETE /v1/acl/binding-rule/{ID}"));
    }
}

#[tokio::test]
async fn policies_and_roles() {
    let wire = Wire::new(200, captured!("acl-policy")).await;
    let policy = AclPolicy::new("p1", "key \"a\" {}");
    let made = wire.client.acl_policy_create(&policy, &write()).await.unwrap();
    assert_eq!((made.name.as_str(), made.datacenters.as_slice()), ("p1", &["dc1".to_owned()][..]));
    let body = r#"{"Name":"p1","Description":"","Rules":"key \"a\" {}"}"#;
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/policy {body}"));
    wire.client.acl_policy_update(&made, &write()).await.unwrap();
    let sent = wire.sent().await;
    assert!(sent.starts_with(&format!("PUT /v1/acl/policy/{} {{", made.id)), "{sent}");
    assert!(!sent.contains("Index") && !sent.contains("Hash"), "{sent}");
    assert_eq!(wire.client.acl_policy(&made.id, &read()).await.unwrap().value, Some(made.clone()));
    assert_eq!(wire.sent().await, format!("GET /v1/acl/policy/{}", made.id));
    wire.client.acl_policy_by_name("p1", &read()).await.unwrap();
    assert_eq!(wire.sent().await, "GET /v1/acl/policy/name/p1");

    let wire = Wire::new(200, captured!("acl-policies")).await;
    let policies = wire.client.acl_policies(&read()).await.unwrap().value;
    assert!(policies.iter().all(|policy| policy.rules.is_empty()));
    assert_eq!(wire.sent().await, "GET /v1/acl/policies");

    let wire = Wire::new(200, captured!("acl-role")).await;
    let mut role = AclRole::new("r1");
    role.policies.push(AclLink::name("p1"));
    let made = wire.client.acl_role_create(&role, &write()).await.unwrap();
    assert_eq!(made.node_identities, [NodeIdentity::new("n1", "dc1")]);
    let body = r#"{"Name":"r1","Description":"","Policies":[{"Name":"p1"}]}"#;
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/role {body}"));
    wire.client.acl_role_update(&made, &write()).await.unwrap();
    assert!(wire.sent().await.starts_with(&format!("PUT /v1/acl/role/{} {{", made.id)));
    assert!(wire.client.acl_role(&made.id, &read()).await.unwrap().value.is_some());
    wire.client.acl_role_by_name("r1", &read()).await.unwrap();
    assert_eq!(wire.sent().await, "GET /v1/acl/role/name/r1");
    let wire = Wire::new(200, captured!("acl-roles")).await;
    assert_eq!(wire.client.acl_roles(&read()).await.unwrap().value, [made]);
}

#[tokio::test]
async fn auth_methods_and_binding_rules() {
    let wire = Wire::new(200, captured!("acl-auth-method")).await;
    let mut config = JsonObject::new();
    config.insert("Secret".into(), "planted".into());
    let mut method = AclAuthMethod::new("jwt1", "jwt", config);
    method.max_token_ttl = Some(Duration::from_mins(5));
    assert!(!format!("{method:?}").contains("planted"));
    let made = wire.client.acl_auth_method_create(&method, &write()).await.unwrap();
    assert_eq!(made.max_token_ttl, Some(Duration::from_mins(5)));
    assert!(made.config.expose().contains_key("BoundIssuer"));
    let body = r#"{"Name":"jwt1","Type":"jwt","Description":"","MaxTokenTTL":"5m0s","Config":{"Secret":"planted"}}"#;
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/auth-method {body}"));
    wire.client.acl_auth_method_update(&method, &write()).await.unwrap();
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/auth-method/jwt1 {body}"));
    assert!(wire.client.acl_auth_method("jwt1", &read()).await.unwrap().value.is_some());
    assert_eq!(wire.sent().await, "GET /v1/acl/auth-method/jwt1");
    let wire = Wire::new(200, captured!("acl-auth-methods")).await;
    assert_eq!(wire.client.acl_auth_methods(&read()).await.unwrap().value.len(), 1);

    let wire = Wire::new(200, captured!("acl-binding-rule")).await;
    let rule = AclBindingRule::new("jwt1", BindType::Service, "${value.svc}");
    let made = wire.client.acl_binding_rule_create(&rule, &write()).await.unwrap();
    assert_eq!(
        (made.bind_type.clone(), made.selector.as_str()),
        (BindType::Service, "value.svc != \"\"")
    );
    let body = r#"{"Description":"","AuthMethod":"jwt1","Selector":"","BindType":"service","BindName":"${value.svc}"}"#;
    assert_eq!(wire.sent().await, format!("PUT /v1/acl/binding-rule {body}"));
    wire.client.acl_binding_rule_update(&made, &write()).await.unwrap();
    assert!(wire.sent().await.starts_with(&format!("PUT /v1/acl/binding-rule/{} ", made.id)));
    assert!(wire.client.acl_binding_rule(&made.id, &read()).await.unwrap().value.is_some());
    let wire = Wire::new(200, captured!("acl-binding-rules")).await;
    let rules = wire.client.acl_binding_rules(Some("jwt1"), &read()).await.unwrap().value;
    assert_eq!(rules, [made]);
    assert_eq!(wire.sent().await, "GET /v1/acl/binding-rules?authmethod=jwt1");
}

#[tokio::test]
async fn logins() {
    let wire = Wire::new(200, captured!("acl-login")).await;
    let mut login = AclLogin::new("jwt1", "planted".into());
    login.meta.insert("pod".into(), "x".into());
    let token = wire.client.acl_login(&login, &write()).await.unwrap();
    assert_eq!(token.auth_method, "jwt1");
    let body = r#"{"AuthMethod":"jwt1","BearerToken":"planted","Meta":{"pod":"x"}}"#;
    assert_eq!(wire.sent().await, format!("POST /v1/acl/login {body}"));
    let secret = token.secret_id.unwrap();
    let own = wire.client.with_token(Some(secret.clone())).unwrap();
    let wire = Wire { client: own, ..wire };
    wire.client.acl_logout(&write()).await.unwrap();
    assert_eq!(wire.sent().await, "POST /v1/acl/logout");
    assert_eq!(wire.header("x-consul-token").await.as_deref(), Some(secret.expose_secret()));
    let wire = Wire::new(200, captured!("acl-replication")).await;
    let state = wire.client.acl_replication(&read()).await.unwrap();
    assert_eq!((state.enabled, state.last_success), (false, None));
    assert_eq!(wire.sent().await, "GET /v1/acl/replication");
}

/// Answers 403 "ACL not found" to reads of objects, and `own` to the question who asks.
async fn old_server(own: ResponseTemplate) -> Wire {
    let server = MockServer::start().await;
    let with_index = ResponseTemplate::new(403).set_body_string("ACL not found");
    Mock::given(path("/v1/acl/token/self")).respond_with(own).mount(&server).await;
    Mock::given(method("GET")).respond_with(with_index).mount(&server).await;
    let client = Wire::client_of(&server);
    Wire { server, client }
}

#[tokio::test]
async fn an_object_that_old_servers_do_not_have_is_none() {
    let known = ResponseTemplate::new(200).set_body_string(captured!("acl-token-self"));
    let wire = old_server(known).await;
    assert!(wire.client.acl_token(ID, &read()).await.unwrap().value.is_none());
    assert!(wire.client.acl_policy_by_name("x", &read()).await.unwrap().value.is_none());
    let sent = wire.all_sent().await;
    assert_eq!(sent[2..], ["GET /v1/acl/policy/name/x", "GET /v1/acl/token/self"]);
}

/// Spec: CP52
#[tokio::test]
async fn an_own_token_that_is_not_known_is_an_error_and_not_an_absence() {
    let unknown = ResponseTemplate::new(403).set_body_string("ACL not found");
    let wire = old_server(unknown).await;
    let error = wire.client.acl_token(ID, &read()).await.unwrap_err();
    assert!(error.is_permission_denied(), "{error}");
    let down = ResponseTemplate::new(500).set_body_string("No cluster leader");
    let wire = old_server(down).await;
    let error = wire.client.acl_policy(ID, &read()).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn new_servers_and_other_objects_say_404() {
    for body in ["", "Cannot find token"] {
        let wire = Wire::new(404, body).await;
        assert!(wire.client.acl_token(ID, &read()).await.unwrap().value.is_none());
        assert!(wire.client.acl_role_by_name("x", &read()).await.unwrap().value.is_none());
        assert!(wire.client.acl_auth_method("x", &read()).await.unwrap().value.is_none());
        assert!(wire.client.acl_binding_rule(ID, &read()).await.unwrap().value.is_none());
        assert_eq!(wire.all_sent().await.len(), 4);
    }
}

/// Spec: CP56
#[tokio::test]
async fn acls_that_are_off_are_an_error() {
    let wire = Wire::new(401, "ACL support disabled").await;
    let client: &dyn AclApi = &wire.client;
    let error = client.acl_tokens(&AclTokenFilter::default(), &read()).await.unwrap_err();
    assert!(error.is_permission_denied() && !error.is_retryable());
    let secret: SecretString = "planted".into();
    let error = wire.client.agent_set_token(AgentTokenKind::Default, &secret).await.unwrap_err();
    assert!(error.is_permission_denied());
    assert_eq!(wire.sent().await, r#"PUT /v1/agent/token/default {"Token":"planted"}"#);
}
