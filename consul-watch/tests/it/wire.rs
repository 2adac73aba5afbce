//! The client on real sockets.

use std::{io::Read as _, time::Duration};

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
    assert!(error.is_retryable() && error.to_string().contains(&address), "{error}");
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
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        request.truncate(read);
        String::from_utf8(request).unwrap()
    });
    let client = client(format!("unix://{}", path.display()));
    assert_eq!(client.status_leader().await.unwrap().as_deref(), Some("127.0.0.1:8300"));
    let request = server.await.unwrap().to_lowercase();
    assert!(
        request.starts_with("get /v1/status/leader http/1.1\r\n")
            && request.contains("host: localhost\r\n")
    );
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_transport_error() {
    let consul = TestConsul::new().serve().await.unwrap();
    consul.consul().inject(&consul_watch::testing::Fault::Drop, 1);
    let error = consul.client().catalog_nodes(&QueryOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }) && error.is_retryable(), "{error:?}");
    assert!(consul.client().catalog_nodes(&QueryOptions::default()).await.is_ok());
}

/// Spec: CW43
#[tokio::test]
async fn compressed_pretty_and_unknown_parts_of_answers_are_read() {
    let server = wiremock::MockServer::start().await;
    let pretty =
        "[\n  {\n    \"Node\": \"n\",\n    \"Meta\": null,\n    \"New\": {\"x\": [1]}\n  }\n]";
    let mut zip = flate2::read::GzEncoder::new(pretty.as_bytes(), flate2::Compression::fast());
    let mut zipped = Vec::new();
    zip.read_to_end(&mut zipped).unwrap();
    let answer = wiremock::ResponseTemplate::new(200)
        .insert_header("content-encoding", "gzip")
        .set_body_bytes(zipped);
    wiremock::Mock::given(wiremock::matchers::any()).respond_with(answer).mount(&server).await;
    let nodes = client(server.uri()).catalog_nodes(&QueryOptions::default()).await.unwrap().value;
    assert_eq!((nodes.len(), nodes[0].name.as_str()), (1, "n"));
    // A proxy may compress all the same. On this machine nobody is asked to.
    let requests = server.received_requests().await.unwrap();
    assert!(requests[0].headers.get("accept-encoding").is_none(), "{requests:?}");
}

/// Certificates that the real program makes: a CA, a server's and a client's.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn make(consul: &std::path::Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for arguments in [
            &["tls", "ca", "create"][..],
            &["tls", "cert", "create", "-server", "-dc", "dc1"],
            &["tls", "cert", "create", "-client", "-dc", "dc1"],
        ] {
            let output = std::process::Command::new(consul)
                .args(arguments)
                .current_dir(&folder)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

/// Spec: CW20
#[tokio::test]
async fn certificates_are_checked_on_both_sides() {
    use consul_watch::testing::{parts::Suite, real};
    let suite = Suite("consul-watch on the wire");
    for part in suite.parts("consul", "certificates_are_checked_on_both_sides") {
        let (right, wrong) = (Certificates::make(&part.path), Certificates::make(&part.path));
        let port = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let settings = serde_json::json!({
            "ports": { "https": port },
            "verify_incoming_https": true,
            "ca_file": right.path("consul-agent-ca.pem"),
            "cert_file": right.path("dc1-server-consul-0.pem"),
            "key_file": right.path("dc1-server-consul-0-key.pem"),
        });
        let _consul = real::Consul::start_with(&part.path, settings).await.expect("a real Consul");
        let config = || {
            let mut config = ClientConfig::default();
            config.address = format!("https://127.0.0.1:{port}");
            config.tls.ca_file = Some(right.path("consul-agent-ca.pem"));
            config.tls.client_cert = Some(right.path("dc1-client-consul-0.pem"));
            config.tls.client_key = Some(right.path("dc1-client-consul-0-key.pem"));
            config
        };
        let ask = |config: ClientConfig| async move { Client::new(config)?.status_leader().await };

        assert!(ask(config()).await.unwrap().is_some(), "all is right");
        let mut named = config();
        named.tls.server_name = Some("server.dc1.consul".into());
        assert!(ask(named).await.unwrap().is_some(), "the name is in the certificate");
        let mut other_name = config();
        other_name.tls.server_name = Some("other.dc1.consul".into());
        assert!(ask(other_name).await.is_err(), "the name is not in the certificate");
        let mut wrong_ca = config();
        wrong_ca.tls.ca_file = Some(wrong.path("consul-agent-ca.pem"));
        assert!(ask(wrong_ca.clone()).await.is_err(), "another authority");
        wrong_ca.tls.verify = false;
        assert!(ask(wrong_ca).await.unwrap().is_some(), "not verified");
        // The text wins over a file, which need not be there.
        let mut text = config();
        text.tls.ca_file = Some("/nowhere.pem".into());
        let pem = |of: &Certificates| std::fs::read_to_string(of.path("consul-agent-ca.pem")).ok();
        text.tls.ca_pem = pem(&right);
        assert!(ask(text.clone()).await.unwrap().is_some(), "the authority as text");
        text.tls.ca_pem = pem(&wrong);
        assert!(ask(text.clone()).await.is_err(), "another authority as text");
        text.tls.ca_pem = Some("no certificate".to_owned());
        let error = ask(text).await.unwrap_err().to_string();
        assert!(error.contains("ca_pem"), "{error}");
        let mut no_certificate = config();
        (no_certificate.tls.client_cert, no_certificate.tls.client_key) = (None, None);
        assert!(ask(no_certificate).await.is_err(), "the server wants a certificate");
        let mut half = config();
        half.tls.client_key = None;
        let error = ask(half).await.unwrap_err().to_string();
        assert!(error.contains("both client cert and client key must be provided"), "{error}");
    }
}
