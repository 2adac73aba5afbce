//! Bearer tokens as they go over the wire: credentials from the container's endpoint, the caller's
//! identity from STS.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ecs_mesh_init::{
    Error, Result, Vars,
    config::LoginConfig,
    login::{AwsBearerTokens, BearerTokens as _},
    metadata::Task,
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use wiremock::{
    Mock, MockServer, ResponseTemplate,
    matchers::{body_string, header, header_exists, header_regex, method, path},
};

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

    async fn bearer_token(&self) -> Result<Value> {
        let full = format!("{}/credentials", self.0.uri());
        let vars: Vars = Arc::new(move |name| match name {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI" => Some(full.clone()),
            "AWS_CONTAINER_AUTHORIZATION_TOKEN" => Some("container-token".to_owned()),
            _ => None,
        });
        let mut login = LoginConfig::default();
        login.region = "us-west-2".into();
        // Slashes at the end do not count.
        login.sts_endpoint = format!("{}/sts//", self.0.uri());
        login.server_id_header_value = "server".into();
        let tokens = AwsBearerTokens::new(vars)?;
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
    assert_eq!(headers["X-Consul-IAM-ServerID"], json!(["server"]));
    assert_eq!(headers["X-Amz-Security-Token"], json!([SESSION]));
    assert_eq!(headers["Host"], Value::Null, "the server takes it from the URL");
    assert_eq!(
        headers["X-Consul-IAM-GetEntity-Body"],
        json!(["Action=GetRole&RoleName=web-role&Version=2010-05-08"])
    );
    assert_eq!(headers["X-Consul-IAM-GetEntity-URL"], json!(["https://iam.amazonaws.com/"]));
    let entity = headers["X-Consul-IAM-GetEntity-Headers"][0].as_str().unwrap();
    let entity: Value = serde_json::from_str(entity).unwrap();
    assert_eq!(entity["X-Consul-IAM-ServerID"], json!(["server"]));
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
