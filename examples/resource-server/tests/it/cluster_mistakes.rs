//! What an operator may get wrong with a cluster of `resource-server`.

use std::path::Path;

use consul_watch::testing::real::free_port;
use resource_store::{
    ResourceClient as _,
    backend::{Consistency, raft::RaftBackend},
    pb,
};
use tokio::net::TcpListener;

use crate::{resource_server::called, store_cluster::node::Node};

pub(crate) fn free_address() -> String {
    format!("127.0.0.1:{}", free_port().unwrap())
}

pub(crate) async fn said(arguments: &[&str]) -> String {
    let output = called(arguments).await;
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A node that is not started yet, with its files in a folder, which has a log
/// of that name, too.
pub(crate) fn node(folder: &Path, name: &str) -> (Node, String, String) {
    let (data, peer) = (folder.join(name).to_str().unwrap().to_owned(), free_address());
    let arguments = ["--data-dir", &data, "--raft", &peer].map(str::to_owned).to_vec();
    let server = env!("CARGO_BIN_EXE_resource-server");
    let log = folder.join(format!("{name}.log"));
    (Node::new(server, free_address(), arguments, log), data, peer)
}

pub(crate) async fn printed(arguments: &[&str]) -> String {
    let output = called(arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistake_leaves_the_cluster_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (mut node, data, peer) = node(folder.path(), "first");
    node.start(&["--bootstrap"]).await;
    let before = RaftBackend::members_at(&peer, None).await.unwrap();
    assert_eq!(before.len(), 1);

    // A node that could not serve does not join.
    let busy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let taken = busy.local_addr().unwrap().to_string();
    let (other, other_peer) = (path("other"), free_address());
    let join = ["--listen", &taken, "--data-dir", &other, "--raft", &other_peer, "--join", &peer];
    let text = said(&join).await;
    assert!(text.contains(&format!("cannot listen at {taken}: ")), "{text}");
    drop(busy);

    // Nor does one that says an address at which nobody reaches it.
    let everywhere = format!("0.0.0.0:{}", free_port().unwrap());
    let listen = free_address();
    let join = ["--listen", &listen, "--data-dir", &other, "--raft", &everywhere, "--join", &peer];
    let text = said(&join).await;
    assert!(text.contains(&format!("no other node can reach {everywhere}")), "{text}");

    let join = ["--listen", &listen, "--data-dir", &other, "--raft", &listen, "--join", &peer];
    let text = said(&join).await;
    assert!(text.contains(&format!("{listen}: Address already in use")), "{text}");

    // What a single server holds would not be seen any more.
    let single = path("single");
    let file = path("file");
    std::fs::write(&file, "").unwrap();
    let import = called(&["import", "--data-dir", &single, &file]).await;
    assert!(!import.status.success());
    let join = ["--listen", &listen, "--data-dir", &single, "--raft", &other_peer, "--bootstrap"];
    let text = said(&join).await;
    assert!(text.contains("holds the store of a single server"), "{text}");

    for command in [&["members"][..], &["cluster", "status"][..]] {
        let text = said(&[command, &[&node.address]].concat()).await;
        assert!(text.starts_with(&format!("{} does not answer: ", node.address)), "{text}");
        assert!(text.contains("is it an address for clients?"), "{text}");
        for address in ["nonsense", "http://127.0.0.1:8602", "127.0.0.1:0", ":8602"] {
            let text = said(&[command, &[address]].concat()).await;
            assert!(text.contains(&format!("invalid value '{address}'")), "{text}");
            assert!(text.contains("are expected, as in 127.0.0.1:8602"), "{text}");
        }
    }

    let text = said(&["remove-member", &peer, "1"]).await;
    assert!(
        text.contains(&format!("the cluster of {peer} has no node 0000000000000001")),
        "{text}"
    );
    assert_eq!(RaftBackend::members_at(&peer, None).await.unwrap(), before);

    // It is not taken for a store of one server, nor for an empty one.
    let export = path("export");
    let serve = ["--listen", &listen, "--data-dir", &data];
    for command in [serve, ["export", "--data-dir", &data, &export]] {
        let text = said(&command).await;
        assert!(text.starts_with(&format!("{data} belongs to a node of a cluster")), "{text}");
    }
    let id = pb::Id::new(
        pb::Type::new("demo", "v1", "Concept"),
        pb::Tenancy::new("default", "default"),
        "still-there",
    );
    let client = node.client(Consistency::Strong);
    client.write(pb::Resource::new(id)).await.unwrap();
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_shown_and_a_removed_one_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, _, first_peer) = node(folder.path(), "first");
    let (mut second, data, second_peer) = node(folder.path(), "second");
    let (mut third, _, third_peer) = node(folder.path(), "third");
    first.start(&["--bootstrap"]).await;
    second.start(&["--join", &first_peer]).await;
    third.start(&["--join", &second_peer]).await;
    third.strike();
    third.gone().await;
    let members = printed(&["members", &first_peer]).await;
    let of = |peer: &str| members.lines().find(|line| line.contains(peer)).unwrap().to_owned();
    assert!(!of(&first_peer).contains("silent"), "{members}");
    assert!(of(&third_peer).contains("silent (Connection refused"), "{members}");

    let id = of(&second_peer).split(' ').next().unwrap().to_owned();
    third.start(&[]).await;
    let removed = printed(&["remove-member", &first_peer, &id]).await;
    assert_eq!(removed, format!("{id} removed\n"));
    assert_eq!(second.gone().await.unwrap().code(), Some(1));
    let log = std::fs::read_to_string(folder.path().join("second.log")).unwrap();
    let last = log.lines().last().unwrap();
    assert!(
        last.contains(&format!(
            "removed from its cluster; to let it join again, empty the folder {data}"
        )),
        "{log}"
    );

    std::fs::remove_dir_all(&data).unwrap();
    second.start(&["--join", &third_peer]).await;
    let members = printed(&["members", &second_peer]).await;
    assert_eq!(members.lines().count(), 3, "{members}");
    assert!(!members.contains("silent"), "{members}");
    for mut node in [first, second, third] {
        node.stop().await;
    }
}
