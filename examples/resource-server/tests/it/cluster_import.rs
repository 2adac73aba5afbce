//! `resource-server import` into a cluster that goes on serving.

use consul_watch::testing::real::free_port;
use resource_store::{
    Code, GrpcClient, Resource, ResourceClient as _, ResourceData as _, backend::Consistency, demo,
    pb,
};

use crate::{
    resource_server::{ResourceServer, called},
    store_cluster::node::Node,
};

/// More than goes into one entry of the log.
const COUNT: usize = 30;
const BYTES: usize = 100_000;

fn label(name: &str, bytes: usize) -> pb::Resource {
    let data = demo::v1::RecordLabel { name: "x".repeat(bytes), ..Default::default() };
    Resource::new(pb::Tenancy::new("default", ""), name, data).encode()
}

async fn labels(client: &GrpcClient) -> Vec<String> {
    let request = pb::ListRequest {
        r#type: Some(demo::v1::RecordLabel::resource_type()),
        tenancy: Some(pb::Tenancy::new("*", "")),
        name_prefix: String::new(),
    };
    let found = client.list(request).await.unwrap();
    found.iter().map(|resource| resource.name().to_owned()).collect()
}

struct Cluster {
    nodes: Vec<Node>,
    arguments: Vec<[String; 4]>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    async fn of_three() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = || format!("127.0.0.1:{}", free_port().unwrap());
        let (mut nodes, mut all): (Vec<Node>, Vec<[String; 4]>) = (Vec::new(), Vec::new());
        for number in 0..3 {
            let data = folder.path().join(format!("data-{number}")).to_str().unwrap().to_owned();
            let arguments = ["--data-dir".to_owned(), data, "--raft".to_owned(), free()];
            let (server, log) = (env!("CARGO_BIN_EXE_resource-server"), folder.path().join("log"));
            let mut node = Node::new(server, free(), arguments.to_vec(), log);
            match all.first() {
                None => node.start(&["--bootstrap"]).await,
                Some([.., first]) => node.start(&["--join", first]).await,
            }
            nodes.push(node);
            all.push(arguments);
        }
        Self { nodes, arguments: all, _folder: folder }
    }
}

/// A follower is stopped, imports, and serves again; the others serve meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_imported_through_a_follower_while_the_others_serve() {
    let memory = ResourceServer::start().await;
    for number in 0..COUNT {
        memory.client().write(label(&format!("name-{number:02}"), BYTES)).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export").to_str().unwrap().to_owned();
    let exported = called(&["export", "--server", &memory.address, &file]).await;
    assert!(exported.status.success(), "{exported:?}");

    let mut cluster = Cluster::of_three().await;
    let client = cluster.nodes[0].client(Consistency::Strong);
    let before = client.write(label("before", 1)).await.unwrap();
    cluster.nodes[2].stop().await;
    let [data_dir, folder, raft, address] = cluster.arguments[2].each_ref().map(String::as_str);
    let import = ["import", data_dir, folder, raft, address];
    let refused = called(&[&import[..], &[&file]].concat()).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.starts_with("the store holds resources; --replace"), "{said}");

    let mut during = before.clone();
    let writing = async {
        loop {
            match client.write(during.clone()).await {
                Ok(written) => during = written,
                // It was replaced.
                Err(error) if error.code() == Code::Aborted => return,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let import = [&import[..], &["--replace", &file]].concat();
    let (imported, ()) = tokio::join!(called(&import), writing);
    assert_eq!(
        String::from_utf8(imported.stdout).unwrap(),
        format!("{COUNT} resources imported\n")
    );

    cluster.nodes[2].start(&[]).await;
    let expected: Vec<_> = (0..COUNT).map(|number| format!("name-{number:02}")).collect();
    for node in &cluster.nodes {
        assert_eq!(labels(&node.client(Consistency::Strong)).await, expected);
    }
    memory.stop().await;
}
