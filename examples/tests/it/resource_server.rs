//! The `resource-server` process.

use std::process::Stdio;

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
