//! Certificates between nodes.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use resource_store::backend::raft::{PeerTls, RaftBackend, RaftConfig, Start};

use super::cluster::{Cluster, names, put};

/// Signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// The certificate of a node, which trusts what `trusted` signed.
    fn node(&self, trusted: &Self) -> PeerTls {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["node.cluster".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let mut tls = PeerTls::new(trusted.pem.clone(), certificate, key.serialize_pem().into());
        tls.server_name = Some("node.cluster".to_owned());
        tls
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_show_certificates_to_each_other() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let secure = |config: &mut RaftConfig| {
        Cluster::hasty(config);
        config.tls = Some(ours.node(&ours));
        config.write_timeout = Duration::from_secs(2);
    };
    let mut cluster = Cluster::start_with(3, |_, config| secure(config)).await;
    put(&cluster.follower().await, "secret").await;
    for node in cluster.running() {
        assert_eq!(names(node).await, ["secret"]);
    }

    let address = cluster.node(0).local_addr().to_string();
    let tls = ours.node(&ours);
    assert_eq!(RaftBackend::members_at(&address, Some(&tls)).await.unwrap().len(), 3);
    RaftBackend::members_at(&address, None).await.unwrap_err();
    // Signed by somebody else, or without trust in ours.
    for tls in [theirs.node(&ours), ours.node(&theirs)] {
        RaftBackend::members_at(&address, Some(&tls)).await.unwrap_err();
    }
    let stranger = cluster.add(|config| {
        secure(config);
        config.tls = Some(theirs.node(&ours));
    });
    let error = stranger.await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
}

#[tokio::test]
async fn a_configuration_does_not_show_its_key() {
    let authority = Authority::new();
    let mut config = RaftConfig::new("/nowhere", "127.0.0.1:0");
    let tls = authority.node(&authority);
    let key = secrecy::ExposeSecret::expose_secret(&tls.key_pem).lines().nth(1).unwrap().to_owned();
    config.tls = Some(tls);
    assert!(!format!("{config:?}").contains(&key));
}

#[tokio::test]
async fn a_node_of_no_cluster_cannot_resume() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = RaftConfig::new(folder.path(), "127.0.0.1:0");
    let error = RaftBackend::start(config, Start::Resume).await.unwrap_err();
    assert!(error.to_string().contains("bootstrap one or join one"), "{error}");
}
