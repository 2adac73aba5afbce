//! TLS towards the platform holds for the very first request.

use std::{fs, path::Path, sync::Arc};

use cts_driver_tfc::{Settings, TfcFactory};
use cts_tasks::DriverFactory as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use crate::scene::read;

/// A platform over TLS that knows one organization, with a certificate for
/// `tfe.example.com` of an authority of its own.
struct Secure {
    port: u16,
    folder: tempfile::TempDir,
    server: JoinHandle<()>,
}

impl Secure {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_cert = authority.self_signed(&authority_key).unwrap();
        fs::write(folder.path().join("ca.pem"), authority_cert.pem()).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec!["tfe.example.com".to_owned()]).unwrap();
        let cert = server.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(serve(listener, acceptor));
        Self { port, folder, server }
    }

    /// What starting the driver with these settings of TLS comes to.
    async fn start_driver(&self, tls: Value) -> Result<(), String> {
        let settings = json!({
            "hostname": format!("https://127.0.0.1:{}", self.port), "tls": tls, "max_retry": 0,
        });
        let settings: Settings = read(&settings, &[]).unwrap().0;
        TfcFactory::new(settings, None).start().await.map_err(|error| error.to_string())
    }

    fn ca(&self) -> String {
        self.folder.path().join("ca.pem").to_string_lossy().into_owned()
    }
}

impl Drop for Secure {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let Ok(mut stream) = acceptor.accept(stream).await else { continue };
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { break };
            request.push(byte);
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let answer = if text.starts_with("GET /api/v2/ping ") {
            "HTTP/1.1 204 No Content\r\nTFP-AppName: Terraform Enterprise\r\nconnection: close\r\n\r\n".to_owned()
        } else {
            let body = r#"{"data":{"id":"my-org","type":"organizations","attributes":{}}}"#;
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
        };
        // A client that did not like the certificate is gone already.
        if stream.write_all(answer.as_bytes()).await.is_ok() {
            let closed = stream.shutdown().await;
            drop(closed);
        }
    }
}

/// Case TFC10: the first request uses the TLS settings, too.
#[tokio::test]
async fn a_private_authority_is_known_from_the_first_request_on() {
    let secure = Secure::start().await;
    let named = |more: Value| {
        let mut tls = json!({"ca_cert": secure.ca(), "server_name": "tfe.example.com"});
        for (key, value) in more.as_object().into_iter().flatten() {
            tls[key] = value.clone();
        }
        tls
    };
    secure.start_driver(named(json!({}))).await.unwrap();
    let folder = secure.folder.path().to_string_lossy().into_owned();
    secure
        .start_driver(json!({"ca_path": folder, "server_name": "tfe.example.com"}))
        .await
        .unwrap();
    secure.start_driver(json!({"verify": false})).await.unwrap();

    let unknown = secure.start_driver(json!({"server_name": "tfe.example.com"})).await.unwrap_err();
    assert!(unknown.contains("reach the platform") && unknown.contains("certificate"), "{unknown}");
    let off = secure.start_driver(named(json!({"enabled": false}))).await.unwrap_err();
    assert!(off.contains("certificate"), "{off}");
    let wrong = json!({"ca_cert": secure.ca(), "server_name": "other.example.com"});
    let wrong = secure.start_driver(wrong).await.unwrap_err();
    assert!(wrong.contains("not valid for name"), "{wrong}");
}

#[tokio::test]
async fn tls_files_that_cannot_be_used_are_named() {
    let secure = Secure::start().await;
    let empty = secure.folder.path().join("empty.pem");
    fs::write(&empty, "").unwrap();
    for (tls, setting) in [
        (json!({"ca_cert": "missing.pem"}), "tls.ca_cert: cannot read /nowhere/missing.pem"),
        (json!({"ca_cert": empty}), "holds no certificate"),
        (json!({"ca_path": "missing"}), "tls.ca_path: /nowhere/missing"),
        (json!({"cert": empty}), "tls.cert: "),
        (json!({"key": empty}), "tls.key: a key needs its certificate"),
    ] {
        let error = secure.start_driver(tls.clone()).await.unwrap_err();
        assert!(error.contains(setting), "{tls}: {error}");
    }
    assert!(Path::new(&secure.ca()).exists());
}
