//! A real `OpenBao` server, in memory, for as long as a test lasts.

use std::{
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use consul_watch::{
    ClientConfig, Transport as _,
    transport::{ExchangeLimits, SocketTransport},
};
use cts_tasks::config::VaultConfig;
use serde_json::{Value as Json, json};
use tokio::time::{Instant, sleep};

/// The token that may do everything.
pub(crate) const ROOT: &str = "r00t-0f-the-te5t";

/// How long the server may take until it answers.
const START_LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Bao {
    address: String,
    transport: SocketTransport,
    process: Child,
    _home: tempfile::TempDir,
}

impl Bao {
    pub(crate) async fn start(program: &Path) -> Self {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Another process may take the port between its choice and its use.
            let mut bao = Self::spawn(program);
            while Instant::now() < deadline {
                if bao.is_ready().await {
                    return bao;
                }
                if bao.process.try_wait().unwrap().is_some() {
                    break;
                }
                sleep(Duration::from_millis(50)).await;
            }
            assert!(Instant::now() < deadline, "OpenBao did not start");
        }
    }

    /// Returns `true` once it answers and holds secrets: a server that has just come up
    /// refuses them with 400 until its store for them is upgraded to keep versions.
    async fn is_ready(&self) -> bool {
        for path in ["sys/health", "secret/config"] {
            let answer = self.try_call("GET", path, None, ROOT).await;
            if answer.is_none_or(|(status, _)| status != 200) {
                return false;
            }
        }
        true
    }

    fn spawn(program: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let home = tempfile::tempdir().unwrap();
        let process = Command::new(program)
            .args(["server", "-dev", "-dev-no-store-token"])
            .arg(format!("-dev-listen-address={address}"))
            .env_clear()
            .env("HOME", home.path())
            .env("BAO_DEV_ROOT_TOKEN_ID", ROOT)
            .current_dir(home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut config = ClientConfig::default();
        config.address.clone_from(&address);
        let transport = SocketTransport::new(&config).unwrap();
        Self { address, transport, process, _home: home }
    }

    /// How the configuration reaches it.
    pub(crate) fn config(&self, token: &str) -> VaultConfig {
        let mut config = VaultConfig::new(format!("http://{}", self.address));
        config.token = Some(token.into());
        config
    }

    /// Calls the API; the answer has to be a success.
    pub(crate) async fn call(&self, method: &str, path: &str, body: Json) -> Json {
        let (status, answer) = self.try_call(method, path, Some(body), ROOT).await.unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    /// Calls the API, and returns the token that wraps the answer.
    pub(crate) async fn call_wrapped(&self, path: &str, body: Json) -> String {
        let answer = self.exchange("POST", path, Some(body), ROOT, true).await.unwrap().1;
        answer.pointer("/wrap_info/token").and_then(Json::as_str).unwrap().to_owned()
    }

    /// Whether the token may still do something.
    pub(crate) async fn lives(&self, token: &str) -> bool {
        let answer = self.try_call("GET", "auth/token/lookup-self", None, token).await;
        answer.is_some_and(|(status, _)| status == 200)
    }

    pub(crate) async fn write_secret(&self, path: &str, data: Json) {
        self.call("POST", &format!("secret/data/{path}"), json!({"data": data})).await;
    }

    async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: Option<Json>,
        token: &str,
    ) -> Option<(u16, Json)> {
        self.exchange(method, path, body, token, false).await
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<Json>,
        token: &str,
        wrap: bool,
    ) -> Option<(u16, Json)> {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("http://{}/v1/{path}", self.address))
            .header("X-Vault-Token", token);
        if wrap {
            request = request.header("X-Vault-Wrap-TTL", "60s");
        }
        let request = request
            .body(body.map(|body| Bytes::from(body.to_string())).unwrap_or_default())
            .unwrap();
        let limit = Duration::from_secs(10);
        let limits = ExchangeLimits::new(limit, limit);
        let answer = self.transport.exchange(request, limits).await.ok()?;
        let json = serde_json::from_slice(answer.body()).unwrap_or_default();
        Some((answer.status().as_u16(), json))
    }
}

impl Drop for Bao {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
