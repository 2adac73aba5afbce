//! The `resource-server` process.

use std::process::{Output, Stdio};

use resource_store::{GrpcClient, GrpcClientConfig};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::sync::PATIENCE;

/// A server on a free port that is killed when this is dropped.
pub(crate) struct ResourceServer {
    pub(crate) address: String,
    _process: Child,
}

impl ResourceServer {
    pub(crate) async fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_resource-server"))
            .arg("127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let address = line.strip_prefix("listening at ").unwrap().to_owned();
        Self { address, _process: process }
    }

    pub(crate) fn client(&self) -> GrpcClient {
        GrpcClient::new(&GrpcClientConfig::new(&format!("http://{}", self.address))).unwrap()
    }
}

async fn called(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resource-server"));
    timeout(PATIENCE, command.args(arguments).kill_on_drop(true).output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_call_that_is_not_right_says_how() {
    for help in ["-h", "-help", "--help"] {
        let output = called(&[help]).await;
        assert_eq!(output.status.code(), Some(0), "{help}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("Usage: resource-server [OPTIONS] [ADDRESS]\n"), "{said}");
        assert!(said.contains("--data-dir <DIR>"), "{said}");
    }
    let cases = [
        (vec!["--port"], "error: unexpected argument '--port' found"),
        (vec!["a", "b"], "error: unexpected argument 'b' found"),
        (vec!["a", "--listen", "b"], "error: the argument '[ADDRESS]' cannot be used with"),
        (vec!["--sync", "never"], "error: the following required arguments were not provided:"),
        (
            vec!["--data-dir", "d", "--sync", "often"],
            "error: invalid value 'often' for '--sync <WHEN>': ",
        ),
    ];
    for (arguments, text) in cases {
        let output = called(&arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(text), "{said}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let server = ResourceServer::start().await;
    let output = called(&[&server.address]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("cannot listen at {}: Address already in use", server.address);
    assert!(said.starts_with(&expected), "{said}");
}
