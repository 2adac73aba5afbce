//! Servers' certificates that stand in the file of authorities themselves, and keys that are
//! too small, against real servers.
//!
//! The files in `tests/data/tls` were made with `openssl req -x509 -newkey … -nodes -days 36500
//! -addext subjectAltName=IP:127.0.0.1,DNS:localhost`; they guard nothing.

use std::path::{Path, PathBuf};

use consul_watch::{
    Client, ClientConfig, Error, Result, error_chain,
    testing::{
        parts::{Part, Suite},
        real,
    },
};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd};

const SUITE: Suite = Suite("consul-watch with certificates of one's own");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

/// A real server with this certificate on its HTTPS port.
struct Server {
    port: u16,
    _consul: real::Consul,
}

impl Server {
    async fn start(part: &Part, certificate: &Path, key: &Path) -> Self {
        let port = real::free_port().unwrap();
        let settings = serde_json::json!({
            "ports": { "https": port }, "cert_file": certificate, "key_file": key,
        });
        let consul = real::Consul::start_with(&part.path, settings).await.expect("a real Consul");
        Self { port, _consul: consul }
    }

    /// Asks the server, accepting these authorities and perhaps another name.
    async fn ask(&self, authorities: &str, name: Option<&str>) -> Result<Option<String>> {
        let mut config = ClientConfig::default();
        config.address = format!("https://127.0.0.1:{}", self.port);
        config.tls.ca_pem = Some(authorities.to_owned());
        config.tls.server_name = name.map(str::to_owned);
        Client::new(config)?.status_leader().await
    }
}

fn text(error: &Error) -> String {
    error_chain(error)
}

#[tokio::test]
async fn a_listed_certificate_is_accepted_although_it_is_an_authority() {
    let case = "a_listed_certificate_is_accepted_although_it_is_an_authority";
    for part in SUITE.parts("consul", case) {
        let (own, key) = (data("self-signed.pem"), data("self-signed-key.pem"));
        let server = Server::start(&part, &own, &key).await;
        let own = std::fs::read_to_string(own).unwrap();
        let other = std::fs::read_to_string(data("weak.pem")).unwrap();
        let asked = server.ask(&own, None).await.unwrap_or_else(|error| panic!("{}", text(&error)));
        assert!(asked.is_some());
        assert!(server.ask(&format!("{other}{own}"), Some("localhost")).await.is_ok(), "a bundle");
        let error = server.ask(&own, Some("other.example")).await.unwrap_err();
        assert!(text(&error).contains("not valid for name"), "{}", text(&error));
        assert!(server.ask(&other, None).await.is_err(), "it is not listed");
    }
}

type Change = fn(&mut CertificateParams);

/// A certificate signed by itself that is an authority, written to a folder.
fn make(folder: &Path, change: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
    let mut parameters = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    parameters.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    change(&mut parameters);
    let key = KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    let paths = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&paths.0, certificate.pem()).unwrap();
    std::fs::write(&paths.1, key.serialize_pem()).unwrap();
    paths
}

#[tokio::test]
async fn a_listed_certificate_is_refused_before_and_after_its_time_and_for_another_purpose() {
    let case = "a_listed_certificate_is_refused_before_and_after_its_time_and_for_another_purpose";
    let refused: [(Change, &str); 3] = [
        (|certificate| certificate.not_after = date_time_ymd(2020, 1, 1), "expired"),
        (|certificate| certificate.not_before = date_time_ymd(2200, 1, 1), "not valid yet"),
        (
            |certificate| {
                certificate.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            },
            "InvalidPurpose",
        ),
    ];
    for part in SUITE.parts("consul", case) {
        for (change, reason) in refused {
            let folder = tempfile::tempdir().unwrap();
            let (certificate, key) = make(folder.path(), change);
            let server = Server::start(&part, &certificate, &key).await;
            let own = std::fs::read_to_string(certificate).unwrap();
            let error = text(&server.ask(&own, None).await.unwrap_err());
            assert!(error.contains(reason), "{reason}: {error}");
        }
    }
}

#[tokio::test]
async fn an_rsa_key_that_is_too_small_is_named() {
    for part in SUITE.parts("consul", "an_rsa_key_that_is_too_small_is_named") {
        for (server, authority, subject) in
            [("weak", "weak", "CN=weak"), ("of-weak-ca", "weak-ca", "CN=weak-ca")]
        {
            let (certificate, key) =
                (data(&format!("{server}.pem")), data(&format!("{server}-key.pem")));
            let server = Server::start(&part, &certificate, &key).await;
            let authority = std::fs::read_to_string(data(&format!("{authority}.pem"))).unwrap();
            let error = text(&server.ask(&authority, None).await.unwrap_err());
            let expected = format!("{subject:?} has an RSA key of 1024 bits, at least 2048");
            assert!(error.contains(&expected), "{error}");
        }
    }
}

#[test]
fn a_small_key_of_ones_own_is_named() {
    let mut config = ClientConfig::default();
    config.address = "https://127.0.0.1:1".to_owned();
    config.tls.ca_file = Some(data("self-signed.pem"));
    config.tls.client_cert = Some(data("weak.pem"));
    config.tls.client_key = Some(data("weak-key.pem"));
    let error = Client::new(config).unwrap_err().to_string();
    assert!(error.contains("CONSUL_CLIENT_CERT") && error.contains("1024 bits"), "{error}");
}
