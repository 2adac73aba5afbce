//! An endpoint of AWS whose answers a test gives.

use std::{sync::Arc, time::Duration};

use acl_controller::aws::{Aws, AwsCredentials, AwsSettings};
use secrecy::SecretString;
use serde_json::{Value, json};
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::any};

/// Answers an action (`ListTasks`, …) with its input.
type Answers = dyn Fn(&str, &Value) -> ResponseTemplate + Send + Sync;

/// An endpoint of AWS that a test scripts. Its calls are counted.
pub(super) struct Stub {
    server: MockServer,
}

impl Stub {
    pub(super) async fn start(
        answers: impl Fn(&str, &Value) -> ResponseTemplate + Send + Sync + 'static,
    ) -> Self {
        let answers: Arc<Answers> = Arc::new(answers);
        let server = MockServer::start().await;
        Mock::given(any())
            .respond_with(move |request: &Request| {
                answers(&action(request), &request.body_json().unwrap())
            })
            .mount(&server)
            .await;
        Self { server }
    }

    /// Makes so many attempts of each call, and gives up then.
    pub(super) async fn aws(&self, attempts: u32) -> Aws {
        let mut settings = settings(&self.server.uri());
        settings.attempts = attempts;
        settings.throttle_patience = Duration::ZERO;
        Aws::connect(settings).await.unwrap()
    }

    /// As a program that says no more than where AWS is.
    pub(super) async fn aws_by_default(&self) -> Aws {
        Aws::connect(settings(&self.server.uri())).await.unwrap()
    }

    /// The actions that were asked for, with their inputs.
    pub(super) async fn calls(&self) -> Vec<(String, Value)> {
        let requests = self.server.received_requests().await.unwrap();
        requests.iter().map(|request| (action(request), request.body_json().unwrap())).collect()
    }

    pub(super) async fn count(&self, action: &str) -> usize {
        self.calls().await.iter().filter(|(called, _)| called == action).count()
    }
}

pub(super) async fn connect(endpoint: &str, attempts: u32) -> Aws {
    let mut settings = settings(endpoint);
    settings.attempts = attempts;
    Aws::connect(settings).await.unwrap()
}

fn settings(endpoint: &str) -> AwsSettings {
    let mut settings = AwsSettings::default();
    settings.region = Some("us-east-1".to_owned());
    settings.endpoint = Some(endpoint.to_owned());
    settings.credentials = Some(AwsCredentials {
        access_key_id: "AKIDEXAMPLE".to_owned(),
        secret_access_key: SecretString::from("wJalrXUtnFEMI"),
        session_token: None,
    });
    settings
}

fn action(request: &Request) -> String {
    let target = request.headers["x-amz-target"].to_str().unwrap();
    target.rsplit_once('.').unwrap().1.to_owned()
}

pub(super) fn ok(body: &Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(body.to_string(), "application/x-amz-json-1.1")
}

/// A refusal, as AWS words it: some services put a namespace before the code.
pub(super) fn refused(status: u16, code: &str, message: &str) -> ResponseTemplate {
    let body = json!({"__type": format!("com.amazonaws#{code}"), "message": message});
    ResponseTemplate::new(status).set_body_raw(body.to_string(), "application/x-amz-json-1.1")
}
