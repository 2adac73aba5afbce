//! Two `singleton-controller` processes beside one server of resources.

use std::{process::Stdio, sync::Arc};

use consul_watch::{Client, testing::TestConsul};
use resource_store::{
    GrpcClient, GrpcClientConfig, Registry, ResourceClient as _, ResourceService,
    backend::memory::MemoryBackend,
    demo,
    server::{Server, ServerConfig},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::watch,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{SUITE, candidates, kept_by};
use crate::{PATIENCE, real_consul};

/// A server of resources on a free port, until this is dropped.
struct ResourceServer {
    address: String,
    _stop: DropGuard,
}

impl ResourceServer {
    async fn start() -> Self {
        let mut registry = Registry::new().unwrap();
        demo::register(&mut registry).unwrap();
        let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();
        let mut config = ServerConfig::default();
        "127.0.0.1:0".clone_into(&mut config.address);
        let server = Server::bind(service, config).await.unwrap();
        let address = server.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        tokio::spawn(server.run(stop.clone()));
        Self { address, _stop: stop.drop_guard() }
    }

    fn client(&self) -> GrpcClient {
        GrpcClient::new(&GrpcClientConfig::new(&format!("http://{}", self.address))).unwrap()
    }
}

/// A process, and the lines that it printed.
struct Process {
    child: Child,
    lines: watch::Receiver<Vec<String>>,
}

impl Process {
    fn start(name: &str, consul: &str, server: &ResourceServer) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_singleton-controller"))
            .args([name, &server.address])
            .env_clear()
            .env("CONSUL_HTTP_ADDR", consul)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, lines) = watch::channel(Vec::new());
        tokio::spawn(async move {
            while let Ok(Some(line)) = printed.next_line().await {
                sender.send_modify(|lines| lines.push(line));
            }
        });
        Self { child, lines }
    }

    /// Waits until it printed exactly this.
    async fn says(&mut self, lines: &[&str]) {
        let said = timeout(PATIENCE, self.lines.wait_for(|said| said == lines)).await.is_ok();
        assert!(said, "{:?}", self.lines.borrow());
    }

    /// Interrupts it, and waits for its end.
    async fn interrupt(&mut self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
        let ended = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        assert_eq!(ended.code(), Some(0));
    }
}

async fn the_controller_moves(address: &str, consul: Client) {
    let server = ResourceServer::start().await;
    let client = server.client();
    let mut one = Process::start("one", address, &server);
    one.says(&["one waits", "one runs"]).await;
    let mut two = Process::start("two", address, &server);
    candidates(&consul, 2).await;
    for i in 0..20 {
        client.write(demo::artist(&format!("artist-{i}")).encode()).await.unwrap();
    }
    kept_by(&client, 20, "one").await;
    two.says(&["two waits"]).await;

    one.interrupt().await;
    one.says(&["one waits", "one runs", "one runs no more"]).await;
    two.says(&["two waits", "two runs"]).await;
    kept_by(&client, 20, "two").await;
    two.interrupt().await;
    two.says(&["two waits", "two runs", "two runs no more"]).await;
    candidates(&consul, 0).await;
}

#[tokio::test]
async fn the_controller_moves_on_the_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    the_controller_moves(&consul.address(), consul.client()).await;
}

#[tokio::test]
async fn the_controller_moves_on_a_real_consul() {
    let Some(consul) = real_consul(SUITE, "the controller moves").await else { return };
    the_controller_moves(&consul.address(), consul.client()).await;
}

#[tokio::test]
async fn a_call_that_is_not_right_says_how() {
    for (arguments, code) in [(vec!["--help"], 0), (vec![], 1), (vec!["--name"], 1)] {
        let output = Command::new(env!("CARGO_BIN_EXE_singleton-controller"))
            .args(&arguments)
            .env_clear()
            .kill_on_drop(true)
            .output();
        let output = timeout(PATIENCE, output).await.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said = if code == 0 { output.stdout } else { output.stderr };
        assert!(said.starts_with(b"Usage: singleton-controller NAME [ADDRESS]\n"), "{said:?}");
    }
}
