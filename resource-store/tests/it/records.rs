//! The same program on every store and over every way to a server: that of `examples/records`.

use consul_watch::testing::parts::Suite;
use resource_store::testing::etcd::TestEtcd;
use tokio_util::sync::CancellationToken;

use crate::{
    etcd::server::Servers,
    postgres::server::{Programs, Server},
};

#[path = "../../examples/records/program.rs"]
mod example;

const SUITE: Suite = Suite("records");

/// Runs the program twice: it leaves nothing that it would trip over.
async fn runs_at(argument: &str) {
    let expected = [
        "a band without a name: Some(InvalidArgument)",
        "Korn of 1993 is catalogued",
        "korn-1 is \"Korn I\"",
        "then there are 0 bands",
    ];
    for _ in 0..2 {
        let run = tokio::time::timeout(std::time::Duration::from_mins(1), example::run(argument));
        let seen = run.await.unwrap_or_else(|_| panic!("{argument}: it hangs"));
        assert_eq!(seen.unwrap_or_else(|error| panic!("{argument}: {error}")), expected);
    }
}

#[tokio::test]
async fn in_memory() {
    runs_at("memory").await;
}

#[tokio::test]
async fn in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    runs_at(&format!("file:{}", folder.path().join("resources.redb").display())).await;
}

#[tokio::test]
async fn on_a_node_of_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    runs_at(&format!("raft:{}", folder.path().display())).await;
}

#[tokio::test]
async fn on_a_real_etcd() {
    for part in SUITE.parts("etcd", "on_a_real_etcd") {
        let servers = Servers::start(&part.path, 1).await;
        runs_at(&format!("etcd:{}", servers.endpoint(0))).await;
    }
}

#[tokio::test]
async fn on_the_double_of_etcd() {
    SUITE.double("etcd");
    let etcd = TestEtcd::new();
    let served = etcd.serve().await.unwrap();
    runs_at(&format!("etcd:{}", served.endpoint())).await;
}

#[tokio::test]
async fn in_postgresql() {
    let Some(programs) = Programs::find(SUITE, "in_postgresql") else { return };
    let server = Server::start(&programs).await;
    runs_at(&server.url()).await;
}

#[tokio::test]
async fn on_a_server_over_grpc_and_http() {
    for kind in ["grpc", "http"] {
        let server = example::server("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let stop = CancellationToken::new();
        let served = tokio::spawn(server.run(stop.clone()));
        runs_at(&format!("{kind}:http://{address}")).await;
        stop.cancel();
        served.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_place_that_is_not_known_is_named_with_those_that_are() {
    let error = example::run("mysql:localhost").await.unwrap_err().to_string();
    assert!(error.starts_with("unknown place \"mysql\": memory, file:PATH"), "{error}");
}
