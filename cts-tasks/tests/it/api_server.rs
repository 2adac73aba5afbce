//! What holds for every request to the HTTP API: who may ask, ids, log lines
//! and errors.

use std::{fs, sync::Arc};

use consul_watch::testing::Log;
use cts_tasks::{
    ApiServer, Exposition, Single, Stop, StopReason,
    client::{Client, ClientConfig},
};
use reqwest::{Method, StatusCode};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig as TlsConfig, RootCertStore,
        pki_types::{CertificateDer, pem::PemObject as _},
    },
};

use crate::{
    api::Api,
    authority::{Authority, Pair, tls},
    scene::Scene,
};

/// An API that asks for the token in a file.
async fn guarded(file: &std::path::Path) -> Api {
    let server = Api::bind(&Scene::new(), Arc::new(Single)).await;
    Api::start(server.with_token_file(file.to_owned()).await.unwrap())
}

async fn ask(api: &Api, path: &str, authorization: &str) -> (StatusCode, Value) {
    let request = api.http.get(format!("{}{path}", api.url)).header("authorization", authorization);
    let answer = request.send().await.unwrap();
    let status = answer.status();
    if status == StatusCode::UNAUTHORIZED {
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    }
    (status, serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap())
}

#[tokio::test]
async fn only_who_bears_the_token_is_answered_except_about_the_health() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "  s3cret\n").unwrap();
    let api = guarded(&file).await;
    for wrong in
        ["", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret"]
    {
        for path in ["/v1/status", "/v1/tasks/x", "/v1/openapi.json", "/metrics", "/nowhere"] {
            let (status, answer) = ask(&api, path, wrong).await;
            assert_eq!(status, 401, "{path} with {wrong:?}");
            assert!(answer["error"]["message"].as_str().unwrap().contains("Bearer <token>"));
            assert!(uuid::Uuid::parse_str(answer["request_id"].as_str().unwrap()).is_ok());
        }
        assert_eq!(ask(&api, "/v1/health", wrong).await.0, 200);
    }
    for right in ["Bearer s3cret", "bearer s3cret", "Bearer  s3cret"] {
        assert_eq!(ask(&api, "/v1/status", right).await.0, 200, "{right}");
    }
    let preflight = api.http.request(Method::OPTIONS, format!("{}/v1/tasks", api.url));
    assert_eq!(preflight.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_new_token_holds_at_once_and_no_token_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "first").unwrap();
    let api = guarded(&file).await;
    assert_eq!(ask(&api, "/v1/status", "Bearer first").await.0, 200);
    fs::write(&file, "other").unwrap();
    assert_eq!(ask(&api, "/v1/status", "Bearer first").await.0, 401);
    assert_eq!(ask(&api, "/v1/status", "Bearer other").await.0, 200);
    for gone in [true, false] {
        if gone {
            fs::remove_file(&file).unwrap();
        } else {
            fs::write(&file, "\n").unwrap();
        }
        for given in ["Bearer other", "Bearer ", ""] {
            let (status, answer) = ask(&api, "/v1/status", given).await;
            assert_eq!(status, 503);
            let text = "the server cannot read its token; its log says why";
            assert_eq!(answer["error"]["message"], text);
        }
    }
}

#[tokio::test]
async fn a_token_file_without_a_token_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    for text in [None, Some(" \n".to_owned()), Some("x".repeat(20_000))] {
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
        }
        let server = Api::bind(&Scene::new(), Arc::new(Single)).await;
        let error = server.with_token_file(file.clone()).await.unwrap_err();
        let shown = consul_watch::error_chain(&error);
        assert!(shown.contains("api_token_file") && shown.contains("token"), "{shown}");
    }
}

/// Spec: CTS84
#[tokio::test]
async fn a_request_is_logged_with_its_id_and_a_question_for_the_health_never() {
    let log = Log::start();
    let api = Api::serve(&Scene::new(), Arc::new(Single)).await;
    let answer = api.http.get(format!("{}/v1/health", api.url)).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(log.with("request"), Vec::<String>::new());

    let answer = api.http.get(format!("{}/v1/tasks/gone", api.url)).send().await.unwrap();
    let id = format!("request_id={}", answer.headers()["x-request-id"].to_str().unwrap());
    let lines = log.with("request_id");
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines[0].contains("received request") && lines[0].contains(&id), "{lines:?}");
    assert!(lines[1].contains("request complete") && lines[1].contains(&id), "{lines:?}");
    assert!(lines[1].contains("status_code=404") && lines[1].contains("duration="), "{lines:?}");
}

#[tokio::test]
async fn errors_of_the_framework_are_documents_too() {
    let api = Api::serve(&Scene::new(), Arc::new(Single)).await;
    for (path, expected) in
        [("/v1/tasks/%FF", 400), ("/v1/status/tasks/%FF", 400), ("/metrics", 404), ("/", 404)]
    {
        let exchange = api.exchange(Method::GET, path, &[], Vec::new()).await;
        let answer: Value = serde_json::from_str(&exchange.answer).unwrap();
        assert_eq!(exchange.status, expected, "{path}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty());
        let id = answer["request_id"].as_str().unwrap();
        assert!(uuid::Uuid::parse_str(id).is_ok());
        assert_eq!(exchange.request_id.as_deref(), Some(id));
    }
}

#[tokio::test]
async fn https_speaks_http_1_1_also_with_who_prefers_2() {
    let authority = Authority::new();
    let pair = authority.sign("server", &["localhost"]);
    let server = Api::bind(&Scene::new(), Arc::new(Single)).await;
    let server = server.with_tls(&tls(&pair, "")).unwrap();
    let address = server.local_addr().unwrap();
    let _serving = Api::start(server);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca_file()).unwrap()).unwrap();
    let mut client = TlsConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
}

/// Connects as who trusts `authority`, and returns the certificate that the server shows.
async fn shown(
    address: std::net::SocketAddr,
    authority: &Authority,
) -> std::io::Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.ca_file()).unwrap()).unwrap();
    let client = TlsConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = "localhost".try_into().unwrap();
    let stream = TlsConnector::from(Arc::new(client)).connect(name, stream).await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned())
}

/// Waits until new connections are shown this certificate.
async fn shows(address: std::net::SocketAddr, authority: &Authority, file: &std::path::Path) {
    let expected = CertificateDer::from_pem_file(file).unwrap();
    let begun = tokio::time::Instant::now();
    while shown(address, authority).await.unwrap() != expected {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{}", file.display());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn certificates_are_read_again_when_they_change_and_half_a_pair_keeps_the_old_ones() {
    let log = Log::start();
    let authority = Authority::new();
    let (first, second) =
        (authority.sign("first", &["localhost"]), authority.sign("second", &["localhost"]));
    let folder = tempfile::tempdir().unwrap();
    let served = Pair { cert: folder.path().join("cert"), key: folder.path().join("key") };
    fs::copy(&first.cert, &served.cert).unwrap();
    fs::copy(&first.key, &served.key).unwrap();
    let server = Api::bind(&Scene::new(), Arc::new(Single)).await;
    let server = server.with_tls(&tls(&served, "")).unwrap();
    let address = server.local_addr().unwrap();
    let _serving = Api::start(server);
    shows(address, &authority, &first.cert).await;

    // As a tool does that writes one file after the other.
    fs::copy(&second.cert, &served.cert).unwrap();
    let refused = "the new certificates of the API cannot be used";
    let begun = tokio::time::Instant::now();
    while log.with(refused).is_empty() {
        let now = shown(address, &authority).await.unwrap();
        assert_eq!(now, CertificateDer::from_pem_file(&first.cert).unwrap());
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{}", log.text());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(log.with(refused)[0].contains("not the key of the certificate"), "{}", log.text());
    fs::copy(&second.key, &served.key).unwrap();
    shows(address, &authority, &second.cert).await;
    assert_eq!(log.with(refused).len(), 1, "told once: {}", log.text());
    assert_eq!(log.with("the API has new certificates").len(), 1);

    // What is gone or cut off changes nothing either.
    fs::remove_file(&served.key).unwrap();
    while log.with(refused).len() < 2 {
        shown(address, &authority).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    shows(address, &authority, &second.cert).await;
}

#[tokio::test]
async fn metrics_are_served_and_a_panic_ends_one_request_only() {
    let server = Api::bind(&Scene::new(), Arc::new(Single)).await;
    let api = Api::start(server.with_metrics(Exposition::new(|| "cts_tasks 3\n".to_owned())));
    let answer = api.http.get(format!("{}/metrics", api.url)).send().await.unwrap();
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert_eq!(answer.text().await.unwrap(), "cts_tasks 3\n");
    assert_eq!(api.request(Method::POST, "/metrics").await.0, 405);

    let server = Api::bind(&Scene::new(), Arc::new(Single)).await;
    let api = Api::start(server.with_metrics(Exposition::new(|| panic!("planted"))));
    let (status, answer) = api.get("/metrics").await;
    assert_eq!(status, 500);
    assert!(!answer.to_string().contains("planted"), "{answer}");
    assert_eq!(api.get("/v1/status").await.0, 200);
}

#[tokio::test]
async fn every_interface_is_served_for_both_versions_of_ip() {
    let scene = Scene::new();
    let server = ApiServer::bind_everywhere(0, scene.engine.clone(), Arc::new(Single)).await;
    let server = server.unwrap();
    let port = server.local_addr().unwrap().port();
    let again = ApiServer::bind_everywhere(port, scene.engine.clone(), Arc::new(Single)).await;
    let error = consul_watch::error_chain(&again.unwrap_err());
    assert!(
        error.contains(&format!("cannot listen on port {port} (the setting `port`)")),
        "{error}"
    );
    let both = server.local_addr().unwrap().is_ipv6();
    let stop = Stop::new();
    let serving = tokio::spawn(server.serve(stop.clone()));
    for host in ["127.0.0.1", "[::1]"].into_iter().take(if both { 2 } else { 1 }) {
        let mut config = ClientConfig::default();
        config.address = format!("http://{host}:{port}");
        Client::new(&config).unwrap().health().await.unwrap();
    }
    stop.stop(StopReason::Shutdown);
    serving.await.unwrap().unwrap();
}

/// Serves on every interface, ends at once, and gives the warnings of that.
async fn warnings(change: impl AsyncFnOnce(ApiServer) -> ApiServer) -> Vec<String> {
    let log = Log::start();
    let engine = Scene::new().engine;
    let server = ApiServer::bind_everywhere(0, engine, Arc::new(Single)).await.unwrap();
    let stop = Stop::new();
    stop.stop(StopReason::Shutdown);
    change(server).await.serve(stop).await.unwrap();
    log.with("WARN")
}

#[tokio::test]
async fn an_api_that_is_open_to_everyone_says_so() {
    let authority = Authority::new();
    let pair = authority.sign("server", &["localhost"]);
    let mutual = format!(" verify_incoming = true\n ca_cert = {:?}", authority.ca_file());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "s3cret").unwrap();

    let open = warnings(async |server| server).await;
    assert!(open.len() == 1 && open[0].contains("set api_token_file"), "{open:?}");
    let only_tls = warnings(async |server| server.with_tls(&tls(&pair, "")).unwrap()).await;
    assert!(only_tls.len() == 1 && only_tls[0].contains("set api_token_file"), "{only_tls:?}");
    let plain = warnings(async |server| server.with_token_file(file.clone()).await.unwrap()).await;
    assert!(plain.len() == 1 && plain[0].contains("configure the tls block"), "{plain:?}");
    let closed = warnings(async |server| server.with_tls(&tls(&pair, &mutual)).unwrap()).await;
    assert_eq!(closed, Vec::<String>::new());
    let both = warnings(async |server| {
        let server = server.with_tls(&tls(&pair, "")).unwrap();
        server.with_token_file(file.clone()).await.unwrap()
    })
    .await;
    assert_eq!(both, Vec::<String>::new());
}
