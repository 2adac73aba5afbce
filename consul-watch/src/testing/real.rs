//! Real Consul servers, each with a data directory that outlives a restart.

use std::{
    ffi::OsStr,
    io,
    net::{TcpListener, UdpSocket},
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU16, Ordering},
    },
    time::Duration,
};

use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::{Program, parts};
use crate::{
    BoxError, Client, ClientConfig, Consistency, QueryOptions,
    transport::{ExchangeLimits, SocketTransport, Transport as _},
    types::HealthStatus,
};

/// Time limit of a server's start.
const START_LIMIT: Duration = Duration::from_mins(1);
/// Time limit of a server's own shutdown.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(25);
/// Time limit of one request that is repeated.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const NODE: &str = "real-consul";
/// Each server puts the name of its folder into this header of its answers.
const MARK: &str = "x-test-server";
/// Below the ports that the system gives to outgoing connections: one of those could
/// take a port while its server is stopped.
const PORTS: std::ops::Range<u16> = 22_000..32_000;

/// A Consul agent in server mode on free ports of 127.0.0.1, alone in its cluster.
///
/// Its data survives [`stop`](Consul::stop), [`kill`](Consul::kill) and
/// [`restart`](Consul::restart). Dropping it kills it and removes its data;
/// the same happens when the test's process ends in any way.
#[derive(Debug)]
pub struct Consul {
    program: PathBuf,
    folder: TempDir,
    ports: Ports,
    token: Option<SecretString>,
    /// ACLs are on.
    sealed: bool,
    running: Option<Program>,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    http: u16,
    server: u16,
    serf: u16,
}

/// A server did not start.
#[derive(Debug, thiserror::Error)]
#[error("Consul did not start: {problem}")]
pub struct StartError {
    problem: String,
    #[source]
    source: Option<BoxError>,
}

impl StartError {
    fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), source: None }
    }
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self { problem: "the machine refused".to_owned(), source: Some(error.into()) }
    }
}

impl Consul {
    /// Starts a server and waits until it can be used: it leads, and its own
    /// node is passing.
    ///
    /// # Errors
    ///
    /// [`StartError`] with the end of the server's log.
    pub async fn start(program: &Path) -> Result<Self, StartError> {
        Self::start_with(program, json!({})).await
    }

    /// Starts a server with further settings, merged over those of a test server.
    ///
    /// With `acl.tokens.initial_management` (before Consul 1.11: `master`) its
    /// clients send that token. With ACLs and without it, waiting for the
    /// server ends when it leads.
    ///
    /// # Errors
    ///
    /// As [`Consul::start`].
    pub async fn start_with(program: &Path, settings: Value) -> Result<Self, StartError> {
        let mut attempts = 3;
        loop {
            // Another process may take a port between its choice and its use.
            attempts -= 1;
            let mut consul = Self {
                program: program.to_owned(),
                folder: tempfile::Builder::new().prefix("consul-").tempdir()?,
                ports: Ports::choose()?,
                token: management_token(&settings),
                sealed: settings.pointer("/acl/enabled") == Some(&json!(true)),
                running: None,
            };
            consul.configure(&settings)?;
            match consul.restart().await {
                Ok(()) => return Ok(consul),
                Err(error) if attempts == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn configure(&self, settings: &Value) -> Result<(), StartError> {
        let mut config = json!({
            "data_dir": self.folder.path().join("data"),
            "node_name": NODE,
            "server": true,
            "bootstrap": true,
            "bind_addr": "127.0.0.1",
            "client_addr": "127.0.0.1",
            "disable_update_check": true,
            "log_level": "warn",
            "performance": { "raft_multiplier": 1 },
            "http_config": { "response_headers": { MARK: self.mark() } },
            "ports": {
                "http": self.ports.http, "server": self.ports.server, "serf_lan": self.ports.serf,
                "serf_wan": -1, "dns": -1, "https": -1, "grpc": -1,
            },
        });
        // From 1.14 on, servers take port 8503 unless this says otherwise; before, the
        // key is unknown and keeps the agent from starting.
        if parts::version_of(&self.program) >= (1, 14) {
            merge(&mut config, &json!({ "ports": { "grpc_tls": -1 } }));
        }
        merge(&mut config, settings);
        std::fs::write(self.config(), config.to_string())?;
        Ok(())
    }

    /// Returns the mark in which this server differs from all others on this
    /// machine.
    fn mark(&self) -> String {
        self.folder.path().file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn config(&self) -> PathBuf {
        self.folder.path().join("config.json")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// `host:port`, as `CONSUL_HTTP_ADDR` takes it. The same after a restart.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.http)
    }

    /// The name of the server's node.
    pub fn node(&self) -> &'static str {
        NODE
    }

    /// The folder that holds configuration, data and log.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A client of the server, with connections of its own.
    ///
    /// # Panics
    ///
    /// If the machine's TLS set-up cannot be read.
    #[expect(clippy::expect_used, reason = "a test fixture tells a broken machine at once")]
    pub fn client(&self) -> Client {
        let mut config = ClientConfig { address: self.address(), ..ClientConfig::default() };
        config.token.clone_from(&self.token);
        Client::new(config).expect("a client over plain HTTP")
    }

    /// Asks the server to stop and waits for it; kills it when it does not.
    /// It does not leave its cluster, so its data stays in use.
    pub async fn stop(&mut self) {
        if let Some(running) = &mut self.running {
            running.terminate();
            let limit = Instant::now() + STOP_LIMIT;
            while Instant::now() < limit && matches!(running.has_ended(), Ok(false)) {
                sleep(POLL).await;
            }
        }
        self.kill();
    }

    /// Stops the server's execution until [`Consul::resume`]: its connections stay open, and
    /// nothing is answered. Does nothing while it is not running.
    pub fn pause(&self) {
        if let Some(running) = &self.running {
            running.pause();
        }
    }

    /// Lets the server go on after [`Consul::pause`].
    pub fn resume(&self) {
        if let Some(running) = &self.running {
            running.resume();
        }
    }

    /// Kills the server at once, as a crash would.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Starts the server again on its data and ports, after stopping it if it
    /// runs, and waits until it can be used.
    ///
    /// # Errors
    ///
    /// As [`Consul::start`].
    pub async fn restart(&mut self) -> Result<(), StartError> {
        self.stop().await;
        self.launch()?;
        self.wait_until_ready().await
    }

    /// Starts the server again without waiting until it can be used.
    ///
    /// # Errors
    ///
    /// As [`Consul::start`].
    pub fn launch(&mut self) -> Result<(), StartError> {
        let config = self.config();
        let arguments = [OsStr::new("agent"), OsStr::new("-config-file"), config.as_os_str()];
        let (folder, log) = (self.folder.path(), self.log());
        self.running = Some(Program::start(&self.program, arguments, folder, &log)?);
        Ok(())
    }

    /// Waits until the server leads, has caught up with its data, and its own node is passing.
    ///
    /// # Errors
    ///
    /// As [`Consul::start`].
    pub async fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let client = self.client();
        let limit = Instant::now() + START_LIMIT;
        let blind = self.sealed && self.token.is_none();
        while !(self.answers().await && is_ready(&client, blind).await) {
            let ended = match &mut self.running {
                Some(running) => running.has_ended()?,
                None => true,
            };
            if ended || Instant::now() > limit {
                let log = std::fs::read_to_string(self.log()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().rev().take(15).collect();
                let lines: Vec<&str> = lines.into_iter().rev().collect();
                return Err(StartError::new(format!(
                    "the end of its log is:\n{}",
                    lines.join("\n")
                )));
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns `true` if what listens on the port is this server, and not one that was faster.
    async fn answers(&self) -> bool {
        let config = ClientConfig { address: self.address(), ..ClientConfig::default() };
        let Ok(transport) = SocketTransport::new(&config) else { return false };
        let url = format!("http://{}/v1/status/leader", self.address());
        let Ok(request) = http::Request::get(url).body(bytes::Bytes::new()) else { return false };
        let answer = transport.exchange(request, ExchangeLimits::new(ANSWER_LIMIT, ANSWER_LIMIT));
        answer.await.is_ok_and(|answer| {
            answer.headers().get(MARK).is_some_and(|mark| mark.as_bytes() == self.mark().as_bytes())
        })
    }
}

fn management_token(settings: &Value) -> Option<SecretString> {
    let places = ["/acl/tokens/initial_management", "/acl/tokens/master"];
    places.into_iter().find_map(|place| settings.pointer(place)?.as_str()).map(SecretString::from)
}

/// A `blind` client cannot see the node's health: ACLs are on and it has no token.
async fn is_ready(client: &Client, blind: bool) -> bool {
    if !matches!(client.status_leader().await, Ok(Some(_))) {
        return false;
    }
    if blind {
        return true;
    }
    // A new leader answers other reads before it has applied its own log.
    let options = QueryOptions { consistency: Consistency::Consistent, ..QueryOptions::default() };
    let checks = client.health_node(NODE, &options).await;
    checks.is_ok_and(|checks| {
        checks
            .value
            .iter()
            .any(|check| check.check_id == "serfHealth" && check.status == HealthStatus::Passing)
    })
}

impl Drop for Consul {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Ports {
    /// Ports that are free at the moment, and that nothing in this process was given before.
    fn choose() -> io::Result<Self> {
        Ok(Self { http: free_port()?, server: free_port()?, serf: free_port()? })
    }
}

/// A port of 127.0.0.1 that is free for both protocols, as gossip needs it, and that nothing in
/// this process was given before. It stays free for a server that is stopped for a while: the
/// system gives no such port to outgoing connections.
///
/// # Errors
///
/// When none is free.
pub fn free_port() -> io::Result<u16> {
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    static START: OnceLock<u16> = OnceLock::new();
    let start = *START.get_or_init(|| fastrand::u16(..PORTS.end - PORTS.start));
    for _ in PORTS {
        let offset = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + offset % (PORTS.end - PORTS.start);
        let address = ("127.0.0.1", port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return Ok(port);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrInUse, format!("no port of {PORTS:?} is free")))
}

fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                merge(base.entry(name).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parts::Suite;

    #[tokio::test]
    async fn two_servers_of_a_version_run_side_by_side() {
        let suite = Suite("consul-watch's starter of real agents");
        for part in suite.parts("consul", "two_servers_of_a_version_run_side_by_side") {
            let one = Consul::start(&part.path).await.unwrap();
            let other = Consul::start(&part.path).await.unwrap();
            assert_ne!(one.address(), other.address(), "Consul {}", part.version);
        }
    }
}
