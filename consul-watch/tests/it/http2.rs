//! Watches over HTTP/2: one connection carries them all.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport, Watch, Watcher,
    client::PutOptions,
    query::KvGet,
    testing::{TestConsul, parts::Suite, real},
    transport::{ExchangeLimits, TransportError},
    types::KvPair,
};
use tokio::time::timeout;

use crate::connections::connections;

const SUITE: Suite = Suite("consul-watch over HTTP/2");
const LIMIT: Duration = Duration::from_mins(1);
const VIEWS: usize = 150;
/// What would be for a few of them over HTTP/1.1.
const BUDGET: usize = 12;

/// All watches get a request of their own, and show a change of each.
async fn follow_all(reader: Client, writer: &Client) -> (Watcher, Vec<Watch<Option<KvPair>>>) {
    let watcher = Watcher::builder(reader).connections(BUDGET).build();
    let mut all: Vec<_> =
        (0..VIEWS).map(|number| watcher.watch(KvGet::new(format!("k/{number}")))).collect();
    for watch in &mut all {
        timeout(LIMIT, watch.ready()).await.unwrap().unwrap();
    }
    let spread = async {
        while watcher.load().own < VIEWS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LIMIT, spread).await.unwrap_or_else(|_late| panic!("{:?}", watcher.load()));
    for (number, watch) in all.iter_mut().enumerate() {
        writer.kv_put(&format!("k/{number}"), "x", &PutOptions::default()).await.unwrap();
        let seen = timeout(LIMIT, async { while watch.changed().await.unwrap().data.is_none() {} });
        seen.await.unwrap();
    }
    (watcher, all)
}

/// The double, as if over HTTP/2.
#[derive(Debug)]
struct Multiplexed(Arc<dyn Transport>);

#[async_trait]
impl Transport for Multiplexed {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let mut answer = self.0.exchange(request, limits).await?;
        *answer.version_mut() = http::Version::HTTP_2;
        Ok(answer)
    }
}

#[tokio::test(start_paused = true)]
async fn the_budget_is_one_of_streams() {
    let consul = TestConsul::new();
    let transport = Arc::new(Multiplexed(consul.transport()));
    let client = Client::with_transport(ClientConfig::default(), transport).unwrap();
    let (watcher, _all) = follow_all(client, &consul.client()).await;
    assert_eq!((watcher.load().covered, watcher.load().broad), (0, 0));
}

fn make_certificates(program: &Path, folder: &Path) {
    for arguments in [&["tls", "ca", "create"][..], &["tls", "cert", "create", "-server"]] {
        let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_consul_carries_all_watches_over_one_connection() {
    let case = "a_real_consul_carries_all_watches_over_one_connection";
    for part in SUITE.parts("consul", case) {
        let folder = tempfile::tempdir().unwrap();
        make_certificates(&part.path, folder.path());
        let file = |name: &str| folder.path().join(name);
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let settings = serde_json::json!({
            "ports": { "https": port },
            "ca_file": file("consul-agent-ca.pem"),
            "cert_file": file("dc1-server-consul-0.pem"),
            "key_file": file("dc1-server-consul-0-key.pem"),
        });
        let consul = real::Consul::start_with(&part.path, settings).await.expect("a real Consul");
        let mut config = ClientConfig::default();
        config.address = format!("https://127.0.0.1:{port}");
        config.tls.ca_file = Some(file("consul-agent-ca.pem"));
        let client = Client::new(config).unwrap();
        // The first answer tells that it is HTTP/2, before a crowd comes.
        client.status_leader().await.unwrap();
        let (watcher, _all) = follow_all(client.clone(), &client).await;
        assert_eq!((watcher.load().covered, watcher.load().broad), (0, 0), "{:?}", watcher.load());
        assert_eq!(connections(port), 1, "writes and watches share it");
        watcher.shutdown().await;
        drop(consul);
    }
}
