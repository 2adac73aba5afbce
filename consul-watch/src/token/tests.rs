//! Tests of token providers and of files that rotate.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt as _;
use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret;

use super::*;
use crate::{
    Client, ClientConfig, QueryOptions, Transport, Watcher,
    query::KvGet,
    transport::{ExchangeLimits, TransportError},
};

async fn shown(provider: &dyn TokenProvider) -> Option<String> {
    let token = provider.token().await.unwrap();
    token.map(|token| token.expose_secret().to_owned())
}

#[tokio::test]
async fn a_file_is_read_again_when_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, " one\n").unwrap();
    let provider = FileToken::open(&path).unwrap().every(Duration::from_millis(5));
    assert_eq!(shown(&provider).await.as_deref(), Some("one"));
    let known = provider.token().await.unwrap();
    let wait = async {
        let (first, second) = (provider.changed(known.as_ref()), provider.changed(known.as_ref()));
        tokio::join!(first, second);
    };
    let write = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // Neither missing nor empty is a change.
        fs::write(&path, "").unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(shown(&provider).await.as_deref(), Some("one"));
        fs::remove_file(&path).unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(shown(&provider).await.as_deref(), Some("one"));
        let new = folder.path().join("new");
        fs::write(&new, "two").unwrap();
        fs::rename(&new, &path).unwrap();
    };
    tokio::join!(wait, write);
    assert_eq!(shown(&provider).await.as_deref(), Some("two"));
    assert!(provider.changed(known.as_ref()).now_or_never().is_some(), "already another one");
    assert!(!format!("{provider:?}").contains("two"));
}

#[tokio::test]
async fn a_waiter_that_is_dropped_leaves_the_lookout_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    fs::write(&path, "one").unwrap();
    let provider = Arc::new(FileToken::open(&path).unwrap().every(Duration::from_millis(5)));
    let known: SecretString = "one".into();
    let first = {
        let (provider, known) = (Arc::clone(&provider), known.clone());
        tokio::spawn(async move { provider.changed(Some(&known)).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    let second = {
        let provider = Arc::clone(&provider);
        tokio::spawn(async move { provider.changed(Some(&known)).await })
    };
    tokio::time::sleep(Duration::from_millis(20)).await;
    first.abort();
    fs::write(&path, "longer").unwrap();
    tokio::time::timeout(Duration::from_secs(5), second).await.unwrap().unwrap();
}

#[test]
fn tokens_that_cannot_stand_in_a_header_are_refused() {
    assert!(StaticToken::new(Some("planted\n".into())).is_err());
    let token = SharedToken::new(None).unwrap();
    let error = token.set(Some("planted\n".into())).unwrap_err();
    assert!(!format!("{error:?} {token:?}").contains("planted"));
}

/// Lets only one token in, and holds requests with an index for ever.
#[derive(Debug, Default)]
struct Guarded {
    requests: AtomicUsize,
}

fn token(headers: &HeaderMap) -> &str {
    headers.get("x-consul-token").map_or("", |value| value.to_str().unwrap())
}

#[async_trait]
impl Transport for Guarded {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        _limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let answer = http::Response::builder().header("x-consul-index", "7");
        let (status, body) = match token(request.headers()) {
            "bad" => (StatusCode::FORBIDDEN, "Permission denied"),
            _ if request.uri().query().is_some_and(|query| query.contains("index=")) => {
                std::future::pending().await
            }
            "blind" => (StatusCode::NOT_FOUND, ""),
            _ => (StatusCode::OK, r#"[{"Key":"k","Value":"eA=="}]"#),
        };
        Ok(answer.status(status).body(Bytes::from_static(body.as_bytes())).unwrap())
    }
}

fn guarded(first: &str) -> (SharedToken, Client, Arc<Guarded>) {
    let token = SharedToken::new(Some(first.into())).unwrap();
    let config =
        ClientConfig { token_provider: Some(Arc::new(token.clone())), ..ClientConfig::default() };
    let transport = Arc::new(Guarded::default());
    let shared: Arc<dyn Transport> = Arc::<Guarded>::clone(&transport);
    (token, Client::with_transport(config, shared).unwrap(), transport)
}

#[tokio::test(start_paused = true)]
async fn a_request_that_blocks_begins_again_with_the_new_token() {
    let (token, client, transport) = guarded("blind");
    let options = QueryOptions { index: Some(7), ..QueryOptions::default() };
    let read = client.kv_get("k", &options);
    let rotate = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        token.set(Some("good".into())).unwrap();
    };
    let (answer, ()) = tokio::join!(read, rotate);
    assert!(answer.unwrap().value.is_some());
    assert_eq!(transport.requests.load(Ordering::SeqCst), 2);
}

/// The index is the same for both tokens, but what they may see is not.
#[tokio::test(start_paused = true)]
async fn a_watch_shows_what_the_new_token_may_see() {
    let (token, client, transport) = guarded("blind");
    let mut watch = Watcher::new(client).watch(KvGet::new("k"));
    assert_eq!(*watch.changed().await.unwrap().data, None);
    tokio::time::sleep(Duration::from_secs(5)).await;
    token.set(Some("good".into())).unwrap();
    let snapshot = watch.changed().await.unwrap();
    assert!(snapshot.data.is_some());
    tokio::time::sleep(Duration::from_secs(30)).await;
    // Two reads at once and two that block, and perhaps one that the change has cut short.
    assert!(transport.requests.load(Ordering::SeqCst) <= 5);
}

/// Spec: CP53
#[tokio::test(start_paused = true)]
async fn a_denied_watch_goes_on_at_once_with_a_new_token() {
    let (token, client, _transport) = guarded("bad");
    let mut watch = Watcher::new(client).watch(KvGet::new("k"));
    assert!(watch.changed().await.unwrap_err().cause().is_permission_denied());
    let denied = Instant::now();
    token.set(Some("good".into())).unwrap();
    assert!(watch.changed().await.unwrap().data.is_some());
    assert!(denied.elapsed() < Duration::from_secs(1));
}
