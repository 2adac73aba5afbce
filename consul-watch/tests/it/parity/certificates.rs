//! Parity of the mesh's certificates.

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    types::{CaConfiguration, CaRoots, JsonObject},
};
use secrecy::ExposeSecret as _;

use super::{Env, acl::holder, status};

super::cases![authorities, a_services_certificate, configuration];

mod sealed {
    super::super::cases![sealed: certificates_need_the_right_to_write];
    use super::certificates_need_the_right_to_write;
}

fn read() -> QueryOptions {
    QueryOptions::default()
}

fn active(roots: &CaRoots) -> &str {
    &roots.active().expect("an active authority").root_cert_pem
}

async fn authorities(env: &Env) {
    let roots = env.client.connect_ca_roots(&read()).await.unwrap();
    assert!(roots.meta.index > Some(0));
    let root = roots.value.active().unwrap();
    assert_eq!(root.id, roots.value.active_root_id);
    assert!(root.root_cert_pem.starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(root.not_before < root.not_after);
    assert!(roots.value.trust_domain.starts_with(&root.external_trust_domain));
    let pem = env.client.connect_ca_roots_pem(&read()).await.unwrap().value;
    assert!(pem.contains(root.root_cert_pem.trim()));
    let of_agent = env.client.agent_connect_ca_roots(&read()).await.unwrap().value;
    assert_eq!(active(&of_agent), active(&roots.value));
}

async fn a_services_certificate(env: &Env) {
    let name = env.name("web");
    let leaf = env.client.agent_connect_ca_leaf(&name, &read()).await.unwrap();
    let roots = env.client.connect_ca_roots(&read()).await.unwrap().value;
    let domain = roots.trust_domain;
    let uri = format!("spiffe://{domain}/ns/default/dc/dc1/svc/{name}");
    assert_eq!((leaf.value.service.as_str(), leaf.value.service_uri), (name.as_str(), uri));
    assert!(leaf.value.private_key_pem.expose_secret().contains("PRIVATE KEY"));
    assert_eq!(leaf.meta.index, Some(leaf.value.modify_index));
    let again = env.client.agent_connect_ca_leaf(&name, &read()).await.unwrap().value;
    assert_eq!(again.cert_pem, leaf.value.cert_pem, "the agent keeps it");
    let other = env.client.agent_connect_ca_leaf(&env.name("db"), &read()).await.unwrap().value;
    assert_ne!(other.serial_number, again.serial_number);
}

async fn configuration(env: &Env) {
    let write = WriteOptions::default();
    let configure = async |provider: &str, lifetime: &str| {
        let mut settings = JsonObject::new();
        settings.insert("LeafCertTTL".into(), lifetime.into());
        let next = CaConfiguration::new(provider, settings);
        env.client.connect_ca_set_configuration(&next, &write).await
    };
    let before = env.client.connect_ca_configuration(&read()).await.unwrap().value;
    let roots = env.client.connect_ca_roots(&read()).await.unwrap().value;
    for (provider, lifetime, text) in [
        ("bogus", "72h", r#"unknown CA provider "bogus""#),
        ("consul", "1m", "leaf cert TTL must be greater or equal than 1h0m0s"),
    ] {
        let error = configure(provider, lifetime).await.unwrap_err();
        assert_eq!(status(&error), 500);
        assert!(error.to_string().contains(text), "{error}");
    }
    configure("consul", "72h").await.unwrap();
    let after = env.client.connect_ca_configuration(&read()).await.unwrap().value;
    assert_eq!(
        (after.provider.as_str(), &after.config.expose()["LeafCertTTL"]),
        ("consul", &"72h".into())
    );
    assert!(after.modify_index > before.modify_index);
    let same = env.client.connect_ca_roots(&read()).await.unwrap().value;
    assert_eq!(active(&same), active(&roots), "the authority stays");
}

async fn certificates_need_the_right_to_write(env: &Env) {
    let (web, db) = (env.name("web"), env.name("db"));
    let rules =
        format!(r#"service "{web}" {{ policy = "write" }} service "{db}" {{ policy = "read" }}"#);
    let who: Client = holder(env, &[rules]).await;
    who.agent_connect_ca_leaf(&web, &read()).await.unwrap();
    assert!(who.agent_connect_ca_leaf(&db, &read()).await.unwrap_err().is_permission_denied());
    assert!(who.connect_ca_configuration(&read()).await.unwrap_err().is_permission_denied());
    // Everybody may know whom the mesh trusts.
    let nobody = who.with_token(Some("5ec2e700-0000-4000-8000-0000000000ff".into())).unwrap();
    assert!(nobody.connect_ca_roots(&read()).await.unwrap().value.active().is_some());
}
