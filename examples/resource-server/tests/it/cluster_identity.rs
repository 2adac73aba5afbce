//! Nodes of a cluster prove to each other who they are.

use std::{fs, path::Path, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use resource_store::{ResourceClient as _, backend::Consistency, pb};
use tokio::time::sleep;

use crate::{
    PATIENCE,
    cluster_mistakes::{free_address, node, printed, said},
    store_cluster::node::Node,
};

/// Signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes a certificate with these names and its key, as `NAME.pem` and `NAME.key`.
    pub(crate) fn sign(&self, folder: &Path, file: &str, names: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer);
        fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
        fs::write(folder.join(format!("{file}.pem")), certificate.unwrap().pem()).unwrap();
    }
}

/// The options of a certificate.
fn tls(folder: &Path, ca: &str, file: &str) -> Vec<String> {
    [
        ("--tls-ca", ca.to_owned()),
        ("--tls-cert", format!("{file}.pem")),
        ("--tls-key", format!("{file}.key")),
    ]
    .into_iter()
    .flat_map(|(option, file)| [option.to_owned(), folder.join(file).to_str().unwrap().to_owned()])
    .collect()
}

fn with<'a>(first: &[&'a str], more: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(more.iter().map(String::as_str)).collect()
}

async fn write(node: &Node, name: &str) {
    let ty = pb::Type::new("demo", "v1", "Concept");
    let id = pb::Id::new(ty, pb::Tenancy::new("default", "default"), name);
    let client = node.client(Consistency::Strong);
    let written = tokio::time::timeout(PATIENCE, async {
        while let Err(error) = client.write(pb::Resource::new(id.clone())).await {
            eprintln!("{name}: {error}");
            sleep(Duration::from_millis(100)).await;
        }
    });
    written.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_certificates_a_node_listens_at_this_machine_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let (client, peer) = (free_address(), free_address());
    let port = peer.rsplit_once(':').unwrap().1;
    let everywhere = format!("0.0.0.0:{port}");
    let options = [
        "--listen",
        &client,
        "--data-dir",
        &data,
        "--raft",
        &everywhere,
        "--advertise",
        &peer,
        "--bootstrap",
    ];
    let text = said(&options).await;
    assert!(
        text.contains(&format!("would take everybody who reaches {everywhere} for a node")),
        "{text}"
    );
    for advice in ["--tls-ca, --tls-cert and --tls-key", "127.0.0.1", "--allow-plaintext"] {
        assert!(text.contains(advice), "{text}");
    }
    assert!(!Path::new(&data).exists(), "nothing was made");

    let arguments = ["--data-dir", &data, "--raft", &everywhere, "--advertise", &peer];
    let arguments = arguments.map(str::to_owned).to_vec();
    let server = env!("CARGO_BIN_EXE_resource-server");
    let mut node = Node::new(server, client, arguments, folder.path().join("log"));
    node.start(&["--bootstrap", "--allow-plaintext"]).await;
    write(&node, "allowed").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ours, _, our_peer) = node(folder.path(), "ours");
    let (mut theirs, data, their_peer) = node(folder.path(), "theirs");
    ours.start(&["--bootstrap"]).await;
    theirs.start(&["--bootstrap"]).await;
    theirs.stop().await;
    let before = printed(&["members", &our_peer]).await;
    let listen = free_address();
    let join =
        ["--listen", &listen, "--data-dir", &data, "--raft", &their_peer, "--join", &our_peer];
    let text = said(&join).await;
    assert!(text.contains(&format!("the node in {data} belongs to cluster ")), "{text}");
    assert_eq!(printed(&["members", &our_peer]).await, before);
    // It is what it was.
    theirs.start(&[]).await;
    write(&theirs, "still-there").await;
    write(&ours, "still-there").await;
    ours.stop().await;
    theirs.stop().await;
}

/// The authority signs others, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_without_the_name_of_a_node_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let authority = Authority::new();
    fs::write(at.join("ca"), &authority.pem).unwrap();
    authority.sign(at, "node", &["127.0.0.1", "localhost"]);
    authority.sign(at, "role", &["127.0.0.1", "localhost", "node.cluster"]);
    authority.sign(at, "web", &["web.example"]);
    let (good, role, bad) = (tls(at, "ca", "node"), tls(at, "ca", "role"), tls(at, "ca", "web"));

    let (mut first, _, peer) = node(at, "first");
    first.start(&with(&["--bootstrap"], &good)).await;
    let (mut second, _, second_peer) = node(at, "second");
    second.start(&with(&["--join", &peer], &good)).await;
    let members = printed(&with(&["members", &peer], &good)).await;
    assert!(members.lines().count() == 2 && !members.contains("silent"), "{members}");
    let text = said(&with(&["members", &peer], &bad)).await;
    assert!(text.contains("has not the name of any node of the cluster"), "{text}");
    let id = members.split(' ').next().unwrap().to_owned();
    let text = said(&with(&["remove-member", &peer, &id], &bad)).await;
    assert!(text.contains("has not the name of any node"), "{text}");
    // It would be trusted by nobody who calls it.
    let (listen, third, data) = (free_address(), free_address(), at.join("third"));
    let data = data.to_str().unwrap();
    let join = ["--listen", &listen, "--data-dir", data, "--raft", &third, "--join", &peer];
    let text = said(&with(&join, &bad)).await;
    assert!(text.contains("shows a certificate that has not the name 127.0.0.1"), "{text}");
    assert_eq!(printed(&with(&["members", &second_peer], &good)).await.lines().count(), 2);
    write(&second, "secret").await;
    first.stop().await;
    second.stop().await;

    // One name for all: the host alone does not do any more.
    let named =
        |tls: &[String]| [tls, &["--tls-name".to_owned(), "node.cluster".to_owned()]].concat();
    let (role, good) = (named(&role), named(&good));
    let (mut alone, _, peer) = node(at, "alone");
    alone.start(&with(&["--bootstrap"], &role)).await;
    printed(&with(&["members", &peer], &role)).await;
    let operator = [&tls(at, "ca", "node")[..], &good[6..]].concat();
    let text = said(&with(&["members", &peer], &operator)).await;
    assert!(text.contains("has not the name node.cluster"), "{text}");
    alone.stop().await;
}

/// The authority and all certificates are replaced while the cluster serves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_read_again_when_the_files_change() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (old, new) = (Authority::new(), Authority::new());
    let names = ["127.0.0.1", "localhost"];
    fs::write(at.join("ca"), &old.pem).unwrap();
    for (name, content) in [("old-ca", &old.pem), ("new-ca", &new.pem)] {
        fs::write(at.join(name), content).unwrap();
    }
    old.sign(at, "node", &names);
    old.sign(at, "before", &names);
    new.sign(at, "after", &names);
    let files = tls(at, "ca", "node");
    let (mut first, _, peer) = node(at, "n1");
    let (mut second, ..) = node(at, "n2");
    let (mut third, ..) = node(at, "n3");
    first.start(&with(&["--bootstrap"], &files)).await;
    second.start(&with(&["--join", &peer], &files)).await;
    third.start(&with(&["--join", &peer], &files)).await;
    let read_again = async |times: usize| {
        let all = async {
            for log in ["n1.log", "n2.log", "n3.log"] {
                let count = || {
                    let log = fs::read_to_string(at.join(log)).unwrap();
                    log.matches("certificates between nodes were read again").count()
                };
                while count() < times {
                    sleep(Duration::from_millis(50)).await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap();
    };
    write(&second, "before").await;
    fs::write(at.join("ca"), [old.pem.as_str(), &new.pem].concat()).unwrap();
    read_again(1).await;
    write(&second, "both").await;
    // A node may see one of the two files alone; it stays with what it has until both are there.
    new.sign(at, "node", &names);
    read_again(2).await;
    write(&third, "signed-anew").await;
    fs::write(at.join("ca"), &new.pem).unwrap();
    read_again(3).await;
    write(&third, "after").await;
    let after = tls(at, "new-ca", "after");
    let members = printed(&with(&["members", &peer], &after)).await;
    assert!(members.lines().count() == 3 && !members.contains("silent"), "{members}");
    said(&with(&["members", &peer], &tls(at, "old-ca", "before"))).await;
    said(&with(&["members", &peer], &tls(at, "new-ca", "before"))).await;
    for mut node in [first, second, third] {
        node.stop().await;
    }
}
