//! Real etcd servers: one alone, or a cluster.

use std::{path::Path, time::Duration};

use consul_watch::testing::{Program, real::free_port};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How long a cluster may take until it answers.
pub(super) const START_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// Members of one cluster on free ports of 127.0.0.1. Dropping it kills them
/// and removes their data; so does the end of the test's process.
pub(crate) struct Servers {
    program: std::path::PathBuf,
    pub(super) folder: TempDir,
    pub(super) members: Vec<Member>,
    arguments: Vec<String>,
    scheme: &'static str,
}

pub(super) struct Member {
    client: u16,
    peer: u16,
    pub(super) running: Option<Program>,
}

impl Servers {
    /// Starts `count` members that wait for each other, with further arguments,
    /// for which the folder is there.
    pub(crate) async fn start_with(
        program: &Path,
        count: usize,
        scheme: &'static str,
        arguments: impl Fn(&Path) -> Vec<String>,
    ) -> Self {
        let mut attempts = 3;
        loop {
            // Another process may take a port between its choice and its use.
            attempts -= 1;
            let mut servers = Self::prepare(program, count, scheme, &arguments);
            (0..count).for_each(|index| servers.launch(index));
            if servers.answers().await {
                return servers;
            }
            assert!(attempts > 0, "etcd did not start:\n{}", servers.log());
        }
    }

    fn prepare(
        program: &Path,
        count: usize,
        scheme: &'static str,
        arguments: impl Fn(&Path) -> Vec<String>,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("etcd-").tempdir().unwrap();
        let member =
            || Member { client: free_port().unwrap(), peer: free_port().unwrap(), running: None };
        let arguments = arguments(folder.path());
        let members = (0..count).map(|_| member()).collect();
        Self { program: program.to_owned(), folder, members, arguments, scheme }
    }

    /// Starts a member on its data, without waiting for it.
    pub(crate) fn launch(&mut self, index: usize) {
        let cluster: Vec<_> = self
            .members
            .iter()
            .enumerate()
            .map(|(i, member)| format!("m{i}=http://127.0.0.1:{}", member.peer))
            .collect();
        let member = &self.members[index];
        let client = self.endpoint(index);
        let peer = format!("http://127.0.0.1:{}", member.peer);
        let name = format!("m{index}");
        let data = self.folder.path().join(&name);
        let mut arguments: Vec<String> = [
            ("--name", name.as_str()),
            ("--data-dir", data.to_str().unwrap()),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &cluster.join(",")),
            ("--heartbeat-interval", "50"),
            ("--election-timeout", "500"),
            ("--log-level", "warn"),
            ("--logger", "zap"),
        ]
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
        arguments.extend(self.arguments.clone());
        let log = self.folder.path().join("log");
        let program = Program::start(&self.program, arguments, self.folder.path(), &log).unwrap();
        self.members[index].running = Some(program);
    }

    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[index].client)
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        (0..self.members.len()).map(|index| self.endpoint(index)).collect()
    }

    /// What the members printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until the cluster answers, where it does so without TLS.
    pub(crate) async fn answers(&mut self) -> bool {
        let limit = Instant::now() + START_LIMIT;
        loop {
            let ended = self.members.iter_mut().any(|member| {
                member.running.as_mut().is_some_and(|running| running.has_ended().unwrap())
            });
            if ended || Instant::now() > limit {
                return false;
            }
            // With TLS, that the port is taken has to do.
            let up = if self.scheme == "https" {
                tokio::net::TcpStream::connect(("127.0.0.1", self.members[0].client)).await.is_ok()
            } else {
                self.healthy().await
            };
            if up {
                return true;
            }
            sleep(POLL).await;
        }
    }

    async fn healthy(&self) -> bool {
        for (index, member) in self.members.iter().enumerate() {
            if member.running.is_none() {
                continue;
            }
            let Ok(answer) = http().get(format!("{}/health", self.endpoint(index))).send().await
            else {
                return false;
            };
            let health: Value = answer.json().await.unwrap_or_default();
            if health["health"] != "true" {
                return false;
            }
        }
        true
    }
}

pub(super) fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(5)).build().unwrap()
}
