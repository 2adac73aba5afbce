//! Bearer tokens as they go over the wire: credentials from the container's endpoint, the caller's
//! identity from STS.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use consul_watch::{
    QueryOptions, WriteOptions,
    client::{AclTokenFilter, Request},
    testing::{DefaultPolicy, LoginAttempt, LoginIdentity, TestConsul},
    types::{AclAuthMethod, AclBindingRule, BindType},
};
use ecs_mesh_init::{
    Error, Result, Vars,
    config::LoginConfig,
    login::{AwsBearerTokens, BearerTokens as _},
    metadata::Task,
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{body_string, header, header_exists, header_regex, method, path},
};

use crate::volume::{NODE, Volume};

const KEY: &str = "planted-secret-access-key";
const SESSION: &str = "planted-session-token";
const TASK: &[u8] =
    br#"{"Cluster":"test","TaskARN":"arn:aws:ecs:us-east-1:123456789:task/test/abcdef"}"#;
const CALLER: &str = "<GetCallerIdentityResponse><GetCallerIdentityResult>\
    <Arn>arn:aws:sts::123456789:assumed-role/web-role/session</Arn>\
    </GetCallerIdentityResult></GetCallerIdentityResponse>";

/// The machine's endpoints: credentials below `/credentials`, STS below `/sts/`.
struct Aws(MockServer);

impl Aws {
    async fn start() -> Self {
        Self(MockServer::start().await)
    }

    async fn credentials(&self, answer: ResponseTemplate) {
        Mock::given(method("GET"))
            .and(path("/credentials"))
            .and(header("Authorization", "container-token"))
            .respond_with(answer)
            .mount(&self.0)
            .await;
    }

    async fn sts(&self, answer: ResponseTemplate) {
        Mock::given(method("POST"))
            .and(path("/sts/"))
            .and(body_string("Action=GetCallerIdentity&Version=2011-06-15"))
            .and(header("X-Amz-Security-Token", SESSION))
            .and(header("X-Consul-IAM-ServerID", "server"))
            .and(header_exists("X-Amz-Date"))
            .and(header_regex(
                "Authorization",
                "^AWS4-HMAC-SHA256 Credential=AKID/[0-9]{8}/us-west-2/sts/aws4_request, SignedHeaders=[a-z0-9;-]*x-consul-iam-serverid",
            ))
            .respond_with(answer)
            .mount(&self.0)
            .await;
    }

    /// The variables that ECS gives to a container.
    fn vars(&self) -> Vars {
        let full = format!("{}/credentials", self.0.uri());
        Arc::new(move |name| match name {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI" => Some(full.clone()),
            "AWS_CONTAINER_AUTHORIZATION_TOKEN" => Some("container-token".to_owned()),
            _ => None,
        })
    }

    async fn bearer_token(&self) -> Result<Value> {
        let mut login = LoginConfig::default();
        login.region = "us-west-2".into();
        // Slashes at the end do not count.
        login.sts_endpoint = format!("{}/sts//", self.0.uri());
        login.server_id_header_value = "server".into();
        let tokens = AwsBearerTokens::new(self.vars())?;
        let token = tokens.bearer_token(&login, &Task::parse(TASK)?).await?;
        Ok(serde_json::from_str(token.expose_secret()).unwrap())
    }
}

fn credentials() -> ResponseTemplate {
    ResponseTemplate::new(200)
        .set_body_json(json!({"AccessKeyId": "AKID", "SecretAccessKey": KEY, "Token": SESSION}))
}

fn decoded(token: &Value, member: &str) -> String {
    String::from_utf8(STANDARD.decode(token[member].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_token_carries_a_request_to_sts_with_one_to_iam_inside() {
    let aws = Aws::start().await;
    aws.credentials(credentials()).await;
    aws.sts(ResponseTemplate::new(200).set_body_string(CALLER)).await;
    let token = aws.bearer_token().await.unwrap();
    assert_eq!(token.as_object().unwrap().len(), 4);
    assert_eq!(token["iam_http_request_method"], "POST");
    assert_eq!(decoded(&token, "iam_request_url"), format!("{}/sts/", aws.0.uri()));
    assert_eq!(decoded(&token, "iam_request_body"), "Action=GetCallerIdentity&Version=2011-06-15");
    let headers: Value = serde_json::from_str(&decoded(&token, "iam_request_headers")).unwrap();
    assert_eq!(headers["X-Consul-Iam-Serverid"], json!(["server"]));
    assert_eq!(headers["X-Amz-Security-Token"], json!([SESSION]));
    assert_eq!(headers["Host"], Value::Null, "the server takes it from the URL");
    assert_eq!(
        headers["X-Consul-Iam-Getentity-Body"],
        json!(["Action=GetRole&RoleName=web-role&Version=2010-05-08"])
    );
    assert_eq!(headers["X-Consul-Iam-Getentity-Url"], json!(["https://iam.amazonaws.com/"]));
    let entity = headers["X-Consul-Iam-Getentity-Headers"][0].as_str().unwrap();
    let entity: Value = serde_json::from_str(entity).unwrap();
    assert_eq!(entity["X-Consul-Iam-Serverid"], json!(["server"]));
    let signed = headers["Authorization"][0].as_str().unwrap().to_lowercase();
    for name in ["getentity-method", "getentity-url", "getentity-headers", "getentity-body"] {
        assert!(signed.contains(&format!("x-consul-iam-{name}")), "{signed}");
    }
    assert!(!token.to_string().contains(KEY) && !headers.to_string().contains(KEY));
}

/// What fails is named, may be tried again, and tells no secret.
#[tokio::test]
async fn errors_name_the_step_and_no_secret() {
    let answer = |status: u16, body: &str| ResponseTemplate::new(status).set_body_string(body);
    let cases = [
        (answer(500, "oops"), None, "reading the container's AWS credentials"),
        (
            answer(200, &format!(r#"{{"AccessKeyId":"{KEY}"}}"#)),
            None,
            "not the form of credentials",
        ),
        (credentials(), Some(answer(403, SESSION)), "STS answered 403"),
        (credentials(), Some(answer(200, "<none/>")), "names no ARN"),
        (
            credentials(),
            Some(answer(200, "<Arn>arn:aws:sts::1:federated-user/x</Arn>")),
            "entity federated-user is not an IAM role or IAM user",
        ),
    ];
    for (credentials, sts, problem) in cases {
        let aws = Aws::start().await;
        aws.credentials(credentials).await;
        if let Some(sts) = sts {
            aws.sts(sts).await;
        }
        let error = aws.bearer_token().await.unwrap_err();
        let text = format!("{error:?} {}", consul_watch::error_chain(&error));
        assert!(text.contains(problem), "{problem}: {text}");
        assert!(!text.contains("planted") && !text.contains("container-token"), "{text}");
        assert_eq!(error.is_retryable(), !matches!(error, Error::Input { .. }), "{text}");
    }
}

/// Judges a bearer token as Consul's servers do, but for the signature, which only AWS can check.
fn judge(attempt: &LoginAttempt<'_>) -> std::result::Result<LoginIdentity, String> {
    let token: Value = serde_json::from_str(attempt.bearer_token.expose_secret())
        .map_err(|error| error.to_string())?;
    let headers: Value = serde_json::from_str(&decoded(&token, "iam_request_headers")).unwrap();
    let signed = headers["Authorization"][0].as_str().is_some_and(|it| it.contains("AKID"));
    let body = headers["X-Consul-Iam-Getentity-Body"][0].as_str().unwrap_or_default();
    match body.split('&').find_map(|pair| pair.strip_prefix("RoleName=")) {
        Some(role) if signed => {
            let arn = format!("arn:aws:iam::123456789:role/consul-ecs/{role}");
            Ok(LoginIdentity::aws_iam(arn, role, "AROA1", "123456789")
                .entity_tag("consul.hashicorp.com.service-name", "web"))
        }
        _ => Err("the entity is missing".to_owned()),
    }
}

/// The task's role gets a token, which is good for its service, and is gone at the end.
#[tokio::test]
async fn a_role_logs_in_registers_and_logs_out() {
    let aws = Aws::start().await;
    aws.credentials(credentials()).await;
    aws.sts(ResponseTemplate::new(200).set_body_string(CALLER)).await;
    let consul = TestConsul::builder().acls(DefaultPolicy::Deny).management_token("root").build();
    consul.set_login_verifier("aws-iam", judge);
    let served = consul.serve().await.unwrap();
    let (admin, options) = (served.client(), WriteOptions::default());
    let config = json!({"BoundIAMPrincipalARNs": ["arn:aws:iam::123456789:role/consul-ecs/*"],
        "EnableIAMEntityDetails": true, "IAMEntityTags": ["consul.hashicorp.com.service-name"]});
    let method = AclAuthMethod::new(
        "iam-ecs-service-token",
        "aws-iam",
        config.as_object().cloned().unwrap(),
    );
    admin.acl_auth_method_create(&method, &options).await.unwrap();
    let name = "${entity_tags.consul.hashicorp.com.service-name}";
    let rule = AclBindingRule::new("iam-ecs-service-token", BindType::Service, name);
    admin.acl_binding_rule_create(&rule, &options).await.unwrap();
    // What the controller does: the cluster's node.
    let node = json!({"Node": NODE, "Address": "127.0.0.1"});
    admin.send(Request::put("node", "/v1/catalog/register").json(&node)).await.unwrap();

    let volume = Volume::new();
    let port = served.address().rsplit_once(':').unwrap().1.to_owned();
    let config = json!({
        "bootstrapDir": "$DIR", "service": {"port": 8080}, "transparentProxy": {"enabled": false},
        "consulServers": {"hosts": "127.0.0.1", "defaults": {"tls": false},
            "http": {"https": false, "port": port.parse::<u16>().unwrap()}},
        "consulLogin": {"enabled": true, "region": "us-west-2", "serverIdHeaderValue": "server",
            "stsEndpoint": format!("{}/sts", aws.0.uri())},
    });
    let mut run = volume.run(&config.to_string(), &[]);
    run.bearer_tokens = Some(Arc::new(AwsBearerTokens::new(aws.vars()).unwrap()));
    run.run(CancellationToken::new()).await.unwrap();
    let found = admin.catalog_service("web", &QueryOptions::default()).await.unwrap().value;
    assert_eq!(found[0].service_id, "web-abcdef");
    let tokens =
        admin.acl_tokens(&AclTokenFilter::default(), &QueryOptions::default()).await.unwrap().value;
    let left: Vec<_> = tokens.iter().filter(|token| !token.auth_method.is_empty()).collect();
    assert!(left.is_empty(), "{left:?}");
    let dataplane = volume.read("consul-dataplane.json");
    assert_eq!(dataplane["consul"]["credentials"]["type"], "login");
}
