//! Users, certificates, prefixes, and what is said when they are wrong.

use std::{fs, path::Path, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use resource_store::backend::{
    Backend as _, Consistency,
    etcd::{EtcdBackend, EtcdConfig, EtcdUser},
};
use serde_json::json;

use super::{
    server::Servers,
    world::{SUITE, World, id, on_both, thing, upserted, watch_after},
};

on_both! { stores_with_other_prefixes_are_apart }

const PASSWORD: &str = "planted-password-of-etcd";

async fn stores_with_other_prefixes_are_apart(world: World) {
    let mut config = EtcdConfig::new([world.endpoint()]);
    "other/".clone_into(&mut config.prefix);
    let (one, other) = (world.backend().await, EtcdBackend::connect(&config).await.unwrap());
    one.write_cas(thing("x")).await.unwrap();
    let mut watch = watch_after(&other, 0).await;
    let stored = other.write_cas(thing("y")).await.unwrap();
    upserted(&mut watch, &stored).await;
    assert!(other.read(Consistency::Strong, &id("x")).await.is_err());
}

/// A user that may use one prefix only.
#[tokio::test]
async fn a_user_needs_its_prefix_only() {
    for part in SUITE.parts("etcd", "a user needs its prefix only") {
        let servers = Servers::start(&part.path, 1).await;
        let prefix = "cmVzb3VyY2Utc3RvcmUv";
        let end = "cmVzb3VyY2Utc3RvcmUw";
        for (path, body) in [
            ("user/add", json!({ "name": "root", "password": "root" })),
            ("role/add", json!({ "name": "root" })),
            ("user/grant", json!({ "user": "root", "role": "root" })),
            ("user/add", json!({ "name": "keeper", "password": PASSWORD })),
            ("role/add", json!({ "name": "keeper" })),
            (
                "role/grant",
                json!({ "name": "keeper",
            "perm": { "permType": "READWRITE", "key": prefix, "range_end": end } }),
            ),
            ("user/grant", json!({ "user": "keeper", "role": "keeper" })),
            ("enable", json!({})),
        ] {
            servers.call(0, &format!("/v3/auth/{path}"), body).await;
        }
        let mut config = servers.config();
        let refused = EtcdBackend::connect(&config).await.unwrap_err();
        assert!(!refused.is_retryable(), "{refused}");

        let user = |password: &str| EtcdUser {
            name: "keeper".to_owned(),
            password: password.to_owned().into(),
        };
        config.user = Some(user("planted-wrong-password"));
        let refused = EtcdBackend::connect(&config).await.unwrap_err();
        assert!(refused.to_string().contains("authentication failed"), "{refused}");
        assert!(!format!("{refused} {refused:?} {config:?}").contains("planted"));

        config.user = Some(user(PASSWORD));
        let backend = EtcdBackend::connect(&config).await.unwrap();
        let mut watch = watch_after(&backend, 0).await;
        let stored = backend.write_cas(thing("x")).await.unwrap();
        upserted(&mut watch, &stored).await;
        assert!(!format!("{backend:?} {config:?}").contains("planted"));

        "other/".clone_into(&mut config.prefix);
        let refused = EtcdBackend::connect(&config).await.unwrap_err();
        assert!(refused.to_string().contains("permission denied"), "{refused}");
    }
}

struct Certificates {
    ca: String,
    client: (String, String),
}

/// Certificates for a server and a client, in files for etcd.
fn certificates(folder: &Path) -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let signed = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
    };
    let server = signed("etcd.example");
    for (name, text) in
        [("ca.pem", &ca.pem()), ("server.pem", &server.0), ("server.key", &server.1)]
    {
        fs::write(folder.join(name), text).unwrap();
    }
    Certificates { ca: ca.pem(), client: signed("client") }
}

/// Whether it cannot be reached, without waiting for it to get better.
async fn fails_at_once(config: &EtcdConfig) -> bool {
    let mut config = config.clone();
    config.timeout = Duration::from_millis(200);
    EtcdBackend::connect(&config).await.is_err()
}

#[tokio::test]
async fn members_are_trusted_by_their_certificates() {
    for part in SUITE.parts("etcd", "members are trusted by their certificates") {
        let folder = tempfile::tempdir().unwrap();
        let certificates = certificates(folder.path());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let arguments = vec![
            format!("--cert-file={}", path("server.pem")),
            format!("--key-file={}", path("server.key")),
            format!("--trusted-ca-file={}", path("ca.pem")),
            "--client-cert-auth".to_owned(),
        ];
        let servers = Servers::start_with(&part.path, 1, "https", |_| arguments.clone()).await;
        let mut config = servers.config();
        config.tls.server_name = Some("etcd.example".to_owned());
        config.tls.identity_pem =
            Some((certificates.client.0.clone(), certificates.client.1.clone().into()));
        assert!(fails_at_once(&config).await, "nobody is trusted");

        config.tls.ca_pem = Some(certificates.ca.clone());
        let backend = EtcdBackend::connect(&config).await.unwrap();
        let mut watch = watch_after(&backend, 0).await;
        let stored = backend.write_cas(thing("x")).await.unwrap();
        upserted(&mut watch, &stored).await;
        let key: String = certificates.client.1.lines().skip(1).take(1).collect();
        assert!(!format!("{config:?} {backend:?}").contains(&key));

        config.tls.identity_pem = None;
        assert!(fails_at_once(&config).await, "a certificate is asked for");
    }
}

#[tokio::test]
async fn a_malformed_endpoint_is_named() {
    for (endpoint, text) in [
        ("ftp://127.0.0.1:2379", "must begin with http://"),
        ("http://127.0.0.1", "a port is missing"),
        ("127.0.0.1", "a port is missing"),
        ("http://keeper:planted@127.0.0.1:2379", "user and password apart"),
    ] {
        let error = EtcdBackend::connect(&EtcdConfig::new([endpoint])).await.unwrap_err();
        assert!(error.to_string().contains(text), "{endpoint}: {error}");
        assert!(!error.is_retryable() && !format!("{error:?}").contains("planted"));
    }
    let error = EtcdBackend::connect(&EtcdConfig::new(Vec::<String>::new())).await.unwrap_err();
    assert!(error.to_string().contains("no endpoint"), "{error}");
}
