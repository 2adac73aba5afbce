//! The client on real sockets.

use std::time::Duration;

use consul_watch::{Client, ClientConfig, Error, QueryOptions, testing::TestConsul};

fn client(address: impl Into<String>) -> Client {
    let mut config = ClientConfig::default();
    config.address = address.into();
    config.connect_timeout = Duration::from_secs(2);
    Client::new(config).unwrap()
}

#[tokio::test]
async fn a_closed_port_is_a_retryable_error_that_names_the_address() {
    let consul = TestConsul::new().serve().await.unwrap();
    let address = consul.address();
    drop(consul);
    let error = client(&address).status_leader().await.unwrap_err();
    assert!(
        error.is_retryable() && error.to_string().contains(&address),
        "{error}"
    );
}

/// Spec: CW17
#[tokio::test]
async fn a_unix_socket_is_spoken_to_over_http() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("consul.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _peer) = listener.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).await.unwrap();
        let body = "\"127.0.0.1:8300\"";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        request.truncate(read);
        String::from_utf8(request).unwrap()
    });
    let client = client(format!("unix://{}", path.display()));
    assert_eq!(
        client.status_leader().await.unwrap().as_deref(),
        Some("127.0.0.1:8300")
    );
    let request = server.await.unwrap().to_lowercase();
    assert!(
        request.starts_with("get /v1/status/leader http/1.1\r\n")
            && request.contains("host: localhost\r\n")
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_transport_error() {
    let consul = TestConsul::new().serve().await.unwrap();
    consul
        .consul()
        .inject(&consul_watch::testing::Fault::Drop, 1);
    let error = consul
        .client()
        .catalog_nodes(&QueryOptions::default())
        .await
        .unwrap_err();
    assert!(
        matches!(error, Error::Transport { .. }) && error.is_retryable(),
        "{error:?}"
    );
    assert!(
        consul
            .client()
            .catalog_nodes(&QueryOptions::default())
            .await
            .is_ok()
    );
}

/// Spec: CW43
#[tokio::test]
async fn compressed_pretty_and_unknown_parts_of_answers_are_read() {
    let server = wiremock::MockServer::start().await;
    let pretty =
        "[\n  {\n    \"Node\": \"n\",\n    \"Meta\": null,\n    \"New\": {\"x\": [1]}\n  }\n]";
    wiremock::Mock::given(wiremock::matchers::header_regex("accept-encoding", "gzip"))
        .respond_with(wiremock::ResponseTemplate::new(200).set_body_string(pretty))
        .mount(&server)
        .await;
    let nodes = client(server.uri())
        .catalog_nodes(&QueryOptions::default())
        .await
        .unwrap()
        .value;
    assert_eq!((nodes.len(), nodes[0].name.as_str()), (1, "n"));
}
