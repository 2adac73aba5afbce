//! A real Consul with ACLs and resources, and our server, which asks it about tokens.

use std::{path::PathBuf, process::Stdio, time::Duration};

use consul_watch::testing::{
    parts::Suite,
    real::{Consul, free_port},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

const PATIENCE: Duration = Duration::from_mins(1);
const SUITE: Suite = Suite("the resource service of Consul");

pub(super) struct World {
    consul: Consul,
    pub(super) program: PathBuf,
    grpc: u16,
    /// The secret of a token that may do everything.
    pub(super) management: String,
    /// The address of our server, for gRPC and HTTP.
    pub(super) ours: String,
    pub(super) folder: tempfile::TempDir,
    _server: Child,
}

impl World {
    /// None where no Consul has resources; the report says so.
    pub(super) async fn new(case: &'static str) -> Option<Self> {
        let mut program = None;
        for part in SUITE.parts("consul", case) {
            if part.major_minor() >= (1, 17) {
                program = Some(part.path);
            } else {
                let why = format!("Consul {} has no resources", part.version);
                SUITE.not_applicable("consul", case, &why);
            }
        }
        let program = program?;
        let grpc = free_port().unwrap();
        let settings = json!({
            "experiments": ["resource-apis"],
            "acl": { "enabled": true, "default_policy": "deny" },
            "ports": { "grpc": grpc },
        });
        let consul = Consul::start_with(&program, settings).await.unwrap();
        let management = bootstrapped(&consul.address()).await;
        let (server, ours) = our_server(&consul.address(), &management).await;
        let folder = tempfile::tempdir().unwrap();
        Some(Self { consul, program, grpc, management, ours, folder, _server: server })
    }

    pub(super) fn consul_http(&self) -> String {
        self.consul.address()
    }

    pub(super) fn consul_grpc(&self) -> String {
        format!("127.0.0.1:{}", self.grpc)
    }

    /// Makes a token with a policy, and gives its secret.
    pub(super) async fn token(&self, name: &str, rules: &str) -> String {
        let policy = json!({ "Name": name, "Rules": rules });
        self.put("acl/policy", &policy).await;
        let token = json!({ "Policies": [{ "Name": name }] });
        self.put("acl/token", &token).await["SecretID"].as_str().unwrap().to_owned()
    }

    async fn put(&self, path: &str, body: &Value) -> Value {
        let url = format!("http://{}/v1/{path}", self.consul.address());
        let request = reqwest::Client::new().put(url).header("x-consul-token", &self.management);
        let answer = request.json(body).send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }
}

/// Makes the first token, once the new leader is ready for it.
async fn bootstrapped(address: &str) -> String {
    let made = async {
        loop {
            let url = format!("http://{address}/v1/acl/bootstrap");
            let answer = reqwest::Client::new().put(url).send().await.unwrap();
            if answer.status().is_success() {
                let token: Value = answer.json().await.unwrap();
                return token["SecretID"].as_str().unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, made).await.unwrap()
}

async fn our_server(consul: &str, management: &str) -> (Child, String) {
    let url = format!("http://{consul}");
    let mut server = Command::new(env!("CARGO_BIN_EXE_resource-server"))
        .args(["--listen", "127.0.0.1:0", "--consul-acl", &url])
        .env("CONSUL_HTTP_TOKEN", management)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    (server, line.strip_prefix("listening at ").unwrap().to_owned())
}
