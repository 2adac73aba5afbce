//! Roles, passwords, certificates, schemas, and what is said when they are wrong.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use resource_store::backend::{
    Backend as _, Consistency, Error,
    postgres::{PostgresBackend, PostgresConfig, PostgresTls},
};

use super::{
    server::{OWNER, PASSWORD, Server},
    world::{id, programs, server, thing, upserted, watch_after},
};

#[tokio::test]
async fn stores_in_other_schemas_are_apart() {
    let Some(server) = server("stores in other schemas are apart").await else { return };
    let mut config = server.config();
    "it's \"another\"".clone_into(&mut config.schema);
    let one = server.backend().await;
    let other = PostgresBackend::connect(&config).await.unwrap();
    one.write_cas(thing("x")).await.unwrap();
    let mut watch = watch_after(&other, 0).await;
    let stored = other.write_cas(thing("y")).await.unwrap();
    upserted(&mut watch, &stored).await;
    assert!(other.read(Consistency::Strong, &id("x")).await.is_err());
}

/// Many programs that start at once make one store.
#[tokio::test]
async fn the_tables_are_made_once() {
    let Some(server) = server("the tables are made once").await else { return };
    let config = server.config();
    let starts = (0..8).map(|_| PostgresBackend::connect(&config));
    let started: Vec<_> = futures::future::join_all(starts).await;
    let started: Vec<_> = started.into_iter().map(Result::unwrap).collect();
    let stored = started[0].write_cas(thing("one")).await.unwrap();
    for backend in &started {
        assert_eq!(backend.read(Consistency::Eventual, &id("one")).await.unwrap(), stored);
    }
    // And people can read the keys.
    let named = "SELECT count(*) FROM resource_store.listing WHERE \"group\" = 'test' \
                 AND kind = 'Thing' AND partition = 'default' AND namespace = 'default' \
                 AND name = 'one' AND group_version = 'v1'";
    assert_eq!(server.number(named).await, 1);
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let Some(server) = server("tables of a newer version are refused").await else { return };
    drop(server.backend().await);
    server.execute("UPDATE resource_store.store SET layout = 99").await;
    let error = PostgresBackend::connect(&server.config()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("layout 99") && text.contains("another schema"), "{text}");
    assert!(!error.is_retryable());
}

/// A role that may only use the tables, which an administrator made.
#[tokio::test]
async fn a_role_needs_its_tables_only() {
    let case = "a role needs its tables only";
    let Some(server) = server(case).await else { return };
    server.execute("CREATE ROLE keeper LOGIN").await;
    let mut config = server.config();
    "keeper".clone_into(&mut config.user);
    let error = PostgresBackend::connect(&config).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("permission denied") && text.contains("schema_sql"), "{text}");
    assert!(!error.is_retryable());

    server.execute("CREATE SCHEMA resource_store").await;
    server.execute(&PostgresBackend::schema_sql("resource_store").unwrap()).await;
    let error = PostgresBackend::connect(&config).await.unwrap_err();
    assert!(error.to_string().contains("USAGE on the schema"), "{error}");
    server
        .execute(
            "GRANT USAGE ON SCHEMA resource_store TO keeper; \
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA resource_store TO keeper",
        )
        .await;
    let backend = PostgresBackend::connect(&config).await.unwrap();
    let mut watch = watch_after(&backend, 0).await;
    let stored = backend.write_cas(thing("x")).await.unwrap();
    upserted(&mut watch, &stored).await;
    let snapshot = backend.snapshot().await.unwrap();
    backend.restore(snapshot).await.unwrap();
    assert_eq!(backend.read(Consistency::Strong, &id("x")).await.unwrap(), stored);
}

#[tokio::test]
async fn a_password_is_asked_for_and_never_shown() {
    let Some(programs) = programs("a password is asked for and never shown") else { return };
    let server = Server::start_with(&programs, "scram-sha-256", &[]).await;
    let mut config = server.config();
    let refused = PostgresBackend::connect(&config).await.unwrap_err();
    assert!(refused.to_string().contains("password"), "{refused}");

    config.password = Some("planted-wrong-password".to_owned().into());
    let refused = PostgresBackend::connect(&config).await.unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("password authentication failed") && text.contains(OWNER), "{text}");
    assert!(!refused.is_retryable());
    assert!(!format!("{refused} {refused:?} {config:?}").contains("planted"));

    let url = format!("postgres://{OWNER}:{PASSWORD}@{}/postgres", server.host());
    let config = PostgresConfig::from_url(&url).unwrap();
    let backend = PostgresBackend::connect(&config).await.unwrap();
    backend.write_cas(thing("x")).await.unwrap();
    assert!(!format!("{backend:?} {config:?}").contains("planted"));
    assert!(!server.log().contains("planted"));

    let mut config = config;
    "nowhere".clone_into(&mut config.database);
    let refused = PostgresBackend::connect(&config).await.unwrap_err();
    assert!(refused.to_string().contains("\"nowhere\" does not exist"), "{refused}");
    assert!(!refused.is_retryable());
}

/// The certificate of an authority, and a certificate and key of a name that it signed.
struct Certificates {
    ca: String,
    server: (String, String),
    client: (String, String),
}

fn certificates() -> Certificates {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let signed = |name: &str, common: &str| {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, common);
        (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
    };
    let (server, client) = (signed("127.0.0.1", "server"), signed("client", OWNER));
    Certificates { ca: ca.pem(), server, client }
}

#[tokio::test]
async fn servers_and_clients_are_trusted_by_their_certificates() {
    let Some(programs) = programs("servers and clients are trusted by their certificates") else {
        return;
    };
    let certificates = certificates();
    let mut server = Server::prepare(&programs, "trust", &[]);
    for (name, text) in [
        ("server.crt", &certificates.server.0),
        ("server.key", &certificates.server.1),
        ("ca.crt", &certificates.ca),
    ] {
        server.write_secret(&format!("data/{name}"), text);
    }
    server.write_secret("data/pg_hba.conf", "hostssl all all 127.0.0.1/32 cert\n");
    server.set(&["ssl=on", "ssl_ca_file=ca.crt"]);
    server.launch();
    server.answers().await;

    let mut config = server.config();
    config.timeout = std::time::Duration::from_secs(1);
    let refused = PostgresBackend::connect(&config).await.unwrap_err();
    assert!(refused.to_string().contains("no encryption"), "{refused}");

    let mut tls = PostgresTls::new(certificates.ca.clone());
    tls.identity_pem = Some((certificates.client.0.clone(), certificates.client.1.clone().into()));
    config.tls = Some(tls.clone());
    let backend = PostgresBackend::connect(&config).await.unwrap();
    let mut watch = watch_after(&backend, 0).await;
    let stored = backend.write_cas(thing("x")).await.unwrap();
    upserted(&mut watch, &stored).await;
    let key: String = certificates.client.1.lines().skip(1).take(1).collect();
    assert!(!format!("{config:?} {backend:?}").contains(&key));

    tls.identity_pem = None;
    config.tls = Some(tls.clone());
    assert!(PostgresBackend::connect(&config).await.is_err(), "a certificate is asked for");
    tls.ca_pem = self::certificates().ca;
    config.tls = Some(tls);
    let refused = PostgresBackend::connect(&config).await.unwrap_err();
    assert!(refused.to_string().to_lowercase().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn malformed_settings_are_named() {
    let connect = async |change: fn(&mut PostgresConfig)| {
        let mut config = PostgresConfig::new(["127.0.0.1:1"]);
        change(&mut config);
        PostgresBackend::connect(&config).await.unwrap_err()
    };
    for (change, text) in [
        ((|c| c.hosts.clear()) as fn(&mut PostgresConfig), "no host"),
        (|c| c.hosts = vec!["postgres://u:planted@h".to_owned()], "from_url"),
        (|c| c.hosts = vec!["h:port".to_owned()], "its port is no port"),
        (|c| c.schema.clear(), "1 to 63 bytes"),
        (|c| c.tls = Some(PostgresTls::new("nothing")), "no certificate"),
    ] {
        let error = connect(change).await;
        assert!(error.to_string().contains(text), "{text}: {error}");
        assert!(matches!(error, Error::Other { retryable: false, .. }));
        assert!(!format!("{error} {error:?}").contains("planted"));
    }
}
