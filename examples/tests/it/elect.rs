//! The binary `elect`, in several processes.

use std::process::Stdio;

use consul_watch::{Client, QueryOptions};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{sync::PATIENCE, world::World};

struct Elect {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Elect {
    fn start(world: &World, name: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_elect"))
            .arg(name)
            .env("CONSUL_HTTP_ADDR", world.address())
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

#[tokio::test]
async fn one_leads_and_whoever_is_interrupted_leaves_nothing_behind() {
    let world = World::new("elect").await;
    let consul = world.client();
    let mut first = Elect::start(&world, "first");
    first.says("leader of term ").await;
    let mut second = Elect::start(&world, "second");
    second.says("second waits").await;
    until_sessions(&consul, 2).await;

    // One who only waited.
    second.interrupt().await;
    assert_eq!(sessions(&consul).await, 1);

    let mut third = Elect::start(&world, "third");
    third.says("third waits").await;
    until_sessions(&consul, 2).await;
    first.interrupt().await;
    third.says("leader of term ").await;
    assert_eq!(sessions(&consul).await, 1);
    third.interrupt().await;
    assert_eq!(sessions(&consul).await, 0);
}
