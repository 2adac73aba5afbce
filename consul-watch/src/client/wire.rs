//! The wire form of each call: method, path, parameters, body.

mod acl;
mod cluster;
mod mesh;
mod tenancy;

use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

use super::*;

/// A captured answer of Consul 1.8.7.
macro_rules! captured {
    ($name:literal) => {
        include_str!(concat!("../../../tests/data/1.8.7/", $name, ".json"))
    };
}
use captured;

/// A server that gives one answer to everything, and a client for it.
struct Wire {
    server: MockServer,
    client: Client,
}

impl Wire {
    async fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::answering(ResponseTemplate::new(status).set_body_bytes(body)).await
    }

    async fn answering(answer: ResponseTemplate) -> Self {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(answer).mount(&server).await;
        let client = Self::client_of(&server);
        Self { server, client }
    }

    fn client_of(server: &MockServer) -> Client {
        let config = ClientConfig { address: server.uri(), ..ClientConfig::default() };
        Client::new(config).unwrap()
    }

    /// Returns everything that was sent, oldest first: method, path with
    /// parameters, body.
    async fn all_sent(&self) -> Vec<String> {
        let requests = self.server.received_requests().await.unwrap();
        let shown = requests.iter().map(|request| {
            let query = request.url.query().map(|query| format!("?{query}")).unwrap_or_default();
            let body = String::from_utf8_lossy(&request.body);
            let text = format!("{} {}{query} {body}", request.method, request.url.path());
            text.trim_end().to_owned()
        });
        shown.collect()
    }

    /// Request that was sent last.
    async fn sent(&self) -> String {
        self.all_sent().await.pop().unwrap()
    }

    /// A header of what was sent last.
    async fn header(&self, name: &str) -> Option<String> {
        let requests = self.server.received_requests().await.unwrap();
        let value = requests.last()?.headers.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn statuses_that_tell_a_state_are_errors_when_the_body_is_text() {
    let wire = Wire::new(429, "Your IP is issuing too many concurrent connections").await;
    let query = crate::QueryOptions::default();
    let error = wire.client.operator_autopilot_health(&query).await.unwrap_err();
    assert!(error.is_retryable() && error.status() == Some(StatusCode::TOO_MANY_REQUESTS));
    let error = wire.client.agent_health_service_by_name("web").await.unwrap_err();
    assert!(error.is_retryable());
    let wire = Wire::new(409, "conflict").await;
    let error = wire.client.txn(&[], &TxnOptions::default()).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::CONFLICT));
}

/// `null`, as gzip has it.
const GZIPPED_NULL: &[u8] = &[
    31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 203, 43, 205, 201, 225, 2, 0, 110, 145, 145, 212, 5, 0, 0, 0,
];

/// Spec: CW43
#[tokio::test]
async fn compressed_and_indented_answers_with_unknown_members_are_read() {
    let plain = "[ {\"Node\": \"n1\", \"New\": {\"a\": [1]}, \"Coord\": {\"Vec\": null}} ]\n";
    let wire = Wire::new(200, plain).await;
    let query = crate::QueryOptions::default();
    let nodes = wire.client.coordinate_nodes(&query).await.unwrap().value;
    assert_eq!((nodes.len(), nodes[0].node.as_str()), (1, "n1"));
    assert_eq!(wire.header("accept-encoding").await, None, "it costs more than it saves here");
    let answer = ResponseTemplate::new(200)
        .insert_header("content-encoding", "gzip")
        .set_body_bytes(GZIPPED_NULL);
    let wire = Wire::answering(answer).await;
    assert!(wire.client.coordinate_nodes(&query).await.unwrap().value.is_empty());
}

#[tokio::test]
async fn a_planted_body_does_not_show_in_a_request() {
    let request = Request::put("x", "/v1/x")
        .param("token", "planted")
        .json(&serde_json::json!({ "a": "planted" }));
    assert!(!format!("{request:?}").contains("planted"));
}
