//! The binary `elect`, in several processes.

use std::process::Stdio;

use consul_watch::{
    Client, QueryOptions,
    testing::{TestConsul, parts::Suite, real::Consul},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::PATIENCE;

const SUITE: Suite = Suite("elect");

struct Elect {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Elect {
    fn start(consul: &str, name: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_elect"))
            .arg(name)
            .env("CONSUL_HTTP_ADDR", consul)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits until it says a line that begins so.
    async fn says(&mut self, start: &str) {
        let said =
            async { while !self.lines.next_line().await.unwrap().unwrap().starts_with(start) {} };
        timeout(PATIENCE, said).await.unwrap_or_else(|_late| panic!("it does not say {start}"));
    }

    /// As Ctrl-C does.
    async fn interrupt(mut self) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGINT).unwrap();
        let status = timeout(PATIENCE, self.child.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }
}

async fn sessions(consul: &Client) -> usize {
    consul.session_list(&QueryOptions::default()).await.unwrap().value.len()
}

async fn until_sessions(consul: &Client, count: usize) {
    let waited = timeout(PATIENCE, async {
        while sessions(consul).await != count {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap_or_else(|_late| panic!("there are not {count} sessions"));
}

async fn one_leads_and_whoever_is_interrupted_leaves_nothing_behind(address: &str, consul: Client) {
    let mut first = Elect::start(address, "first");
    first.says("leader of term ").await;
    let mut second = Elect::start(address, "second");
    second.says("second waits").await;
    until_sessions(&consul, 2).await;

    // One who only waited.
    second.interrupt().await;
    assert_eq!(sessions(&consul).await, 1);

    let mut third = Elect::start(address, "third");
    third.says("third waits").await;
    until_sessions(&consul, 2).await;
    first.interrupt().await;
    third.says("leader of term ").await;
    assert_eq!(sessions(&consul).await, 1);
    third.interrupt().await;
    assert_eq!(sessions(&consul).await, 0);
}

#[tokio::test]
async fn one_leads_on_the_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    one_leads_and_whoever_is_interrupted_leaves_nothing_behind(&consul.address(), consul.client())
        .await;
}

#[tokio::test]
async fn one_leads_on_a_real_consul() {
    for part in SUITE.parts("consul", "one leads") {
        let consul = Consul::start(&part.path).await.unwrap();
        let (address, client) = (consul.address(), consul.client());
        one_leads_and_whoever_is_interrupted_leaves_nothing_behind(&address, client).await;
    }
}
