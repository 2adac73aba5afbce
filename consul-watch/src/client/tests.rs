//! Tests of the client over a transport that records requests.

use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;

use super::*;
use crate::{QueryOptions, types::SessionId};

/// Answers everything with one prepared answer and keeps what it was sent.
#[derive(Debug)]
struct Recorded {
    answer: (u16, Vec<(&'static str, &'static str)>, &'static str),
    seen: Mutex<Vec<http::Request<Bytes>>>,
}

#[async_trait]
impl Transport for Recorded {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        _limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        self.seen.lock().unwrap().push(request);
        let (status, headers, body) = &self.answer;
        let mut answer = http::Response::builder().status(*status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        Ok(answer.body(Bytes::from_static(body.as_bytes())).unwrap())
    }
}

fn client(
    config: ClientConfig,
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: &'static str,
) -> (Client, Arc<Recorded>) {
    let transport = Arc::new(Recorded { answer: (status, headers, body), seen: Mutex::default() });
    let shared: Arc<dyn Transport> = Arc::<Recorded>::clone(&transport);
    (Client::with_transport(config, shared).unwrap(), transport)
}

fn uris(transport: &Recorded) -> Vec<String> {
    transport.seen.lock().unwrap().iter().map(|request| request.uri().to_string()).collect()
}

/// Spec: CW16
#[tokio::test]
async fn the_prefix_of_the_address_stands_before_every_path() {
    let config =
        ClientConfig { address: "https://1.2.3.4:5678/prefix".into(), ..ClientConfig::default() };
    let (client, transport) = client(config, 200, vec![], "\"127.0.0.1:8300\"");
    assert_eq!(client.status_leader().await.unwrap().as_deref(), Some("127.0.0.1:8300"));
    assert_eq!(uris(&transport), ["https://1.2.3.4:5678/prefix/v1/status/leader"]);
}

#[tokio::test]
async fn the_clients_namespace_holds_unless_a_request_names_one() {
    let config = ClientConfig {
        namespace: Some("n1".into()),
        partition: Some("p1".into()),
        datacenter: Some("dc1".into()),
        consistency: Consistency::Stale,
        ..ClientConfig::default()
    };
    let (client, transport) = client(config, 200, vec![], "[]");
    client.catalog_nodes(&QueryOptions::default()).await.unwrap();
    let options = QueryOptions {
        namespace: Some("n2".into()),
        consistency: Consistency::Consistent,
        ..QueryOptions::default()
    };
    client.catalog_nodes(&options).await.unwrap();
    let base = "http://127.0.0.1:8500/v1/catalog/nodes";
    assert_eq!(
        uris(&transport),
        [
            format!("{base}?ns=n1&partition=p1&dc=dc1&stale"),
            format!("{base}?ns=n2&partition=p1&dc=dc1&consistent"),
        ]
    );
}

#[tokio::test]
async fn kv_writes_send_octets_and_everything_else_json() {
    let (client, transport) = client(ClientConfig::default(), 200, vec![], "true");
    assert!(client.kv_put("a b", "x", &PutOptions::default()).await.unwrap());
    let session: SessionId = "s".parse().unwrap();
    client.kv_put("a", "x", &PutOptions::when(PutCondition::Acquire(session))).await.unwrap();
    client.kv_delete("a", &DeleteOptions::at(7)).await.unwrap();
    let seen = transport.seen.lock().unwrap();
    let sent: Vec<_> = seen
        .iter()
        .map(|request| {
            let kind = request.headers().get("content-type").unwrap().to_str().unwrap();
            format!("{} {} {kind}", request.method(), request.uri().path_and_query().unwrap())
        })
        .collect();
    assert_eq!(
        sent,
        [
            "PUT /v1/kv/a%20b application/octet-stream",
            "PUT /v1/kv/a?acquire=s application/octet-stream",
            "DELETE /v1/kv/a?cas=7 application/json",
        ]
    );
}

#[tokio::test]
async fn a_planted_token_shows_nowhere_but_in_its_header() {
    const PLANTED: &str = "planted-5f1c";
    let config = ClientConfig {
        token: Some(PLANTED.into()),
        basic_auth: Some(BasicAuth { user: "u".into(), password: Some(PLANTED.into()) }),
        ..ClientConfig::default()
    };
    assert!(!format!("{config:?}").contains(PLANTED));
    let (client, transport) = client(config, 403, vec![], "token planted-5f1c lacks permission");
    let error = client.kv_get("a", &QueryOptions::default()).await.unwrap_err();
    assert!(error.is_permission_denied());
    assert!(!format!("{client:?} {error:?} {error}").contains(PLANTED));
    let seen = transport.seen.lock().unwrap();
    assert_eq!(seen[0].headers().get("x-consul-token").unwrap(), PLANTED);
    assert!(!format!("{seen:?}").contains(PLANTED));
    assert!(!seen[0].uri().to_string().contains(PLANTED));
    let broken = client.with_token(Some("planted-5f1c\n".into())).unwrap_err();
    assert!(!format!("{broken:?}").contains(PLANTED));
}

#[tokio::test]
async fn an_echoed_password_is_cut_from_the_error_in_both_its_forms() {
    let config = ClientConfig {
        basic_auth: Some(BasicAuth { user: "u".into(), password: Some("planted-77aa".into()) }),
        ..ClientConfig::default()
    };
    // The base64 of `u:planted-77aa`.
    let echo = "Authorization: Basic dTpwbGFudGVkLTc3YWE= (u:planted-77aa)";
    let (client, transport) = client(config, 407, vec![], echo);
    let error = client.status_leader().await.unwrap_err();
    let seen = transport.seen.lock().unwrap();
    let sent = seen[0].headers().get("authorization").unwrap();
    assert_eq!(sent, "Basic dTpwbGFudGVkLTc3YWE=", "the planted echo is what was sent");
    let text = format!("{error} {error:?}");
    assert!(!text.contains("dTpwbGFudGVkLTc3YWE") && !text.contains("planted-77aa"), "{text}");
    assert!(text.contains("(u:<password>)"), "{text}");
}

#[tokio::test]
async fn an_absent_key_is_an_answer_with_an_index() {
    let (client, _transport) =
        client(ClientConfig::default(), 404, vec![("x-consul-index", "17")], "");
    let answer = client.kv_get("a", &QueryOptions::default()).await.unwrap();
    assert_eq!((answer.value, answer.meta.index), (None, Some(17)));
    assert!(client.kv_list("a", &QueryOptions::default()).await.unwrap().value.is_empty());
    assert!(client.kv_keys("a", None, &QueryOptions::default()).await.unwrap().value.is_empty());
}

#[tokio::test]
async fn a_redirect_is_an_error() {
    let (client, _transport) =
        client(ClientConfig::default(), 301, vec![("location", "/v1/kv/b")], "");
    let error = client.kv_get("a", &QueryOptions::default()).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::MOVED_PERMANENTLY));
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn retry_after_is_kept() {
    let (client, _transport) =
        client(ClientConfig::default(), 429, vec![("retry-after", "3")], "slow down");
    let error = client.catalog_nodes(&QueryOptions::default()).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    assert!(error.is_retryable());
}
