//! The built program, as a user runs it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{process::Stdio, time::Duration};

use consul_watch::{
    Client,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::AgentServiceRegistration,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

const SUITE: Suite = Suite("watch-service");
/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

async fn every_change_is_printed(address: &str, consul: Client) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_watch-service"))
        .arg("web")
        .env_clear()
        .env("CONSUL_HTTP_ADDR", address)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut says = async |expected: &str| {
        let line = timeout(PATIENCE, lines.next_line()).await;
        let line = line.unwrap_or_else(|_late| panic!("it does not say {expected}"));
        assert_eq!(line.unwrap().as_deref(), Some(expected));
    };
    says("web: 0 passing").await;
    let mut instance = AgentServiceRegistration::new("web");
    "10.0.0.1".clone_into(&mut instance.address);
    instance.port = 80;
    consul.agent_register_service(&instance).await.unwrap();
    says("web: 1 passing").await;
    says("  10.0.0.1:80").await;
    consul.agent_deregister_service("web", None).await.unwrap();
    says("web: 0 passing").await;
}

#[tokio::test]
async fn every_change_is_printed_on_the_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    every_change_is_printed(&consul.address(), consul.client()).await;
}

#[tokio::test]
async fn every_change_is_printed_on_a_real_consul() {
    for part in SUITE.parts("consul", "every change is printed") {
        let consul = Consul::start(&part.path).await.unwrap();
        every_change_is_printed(&consul.address(), consul.client()).await;
    }
}
