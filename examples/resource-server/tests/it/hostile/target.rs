//! The server under attack, its memory, its log and its limit of open files.

use std::{
    fs,
    net::SocketAddr,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use resource_store::{GrpcClient, GrpcClientConfig, ResourceClient as _, demo};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

const PATIENCE: Duration = Duration::from_mins(1);
/// Number of files that the server may open: 272 of them for connections.
const DESCRIPTORS: u64 = 400;
/// Number of resources that the server holds.
const RESOURCES: usize = 10_000;

/// A server with some resources, on a free port; dropping it kills it.
pub(super) struct Target {
    pub(super) address: SocketAddr,
    process: Child,
    log: Arc<Mutex<String>>,
}

impl Target {
    /// Starts a server that may open few files.
    pub(super) async fn start(options: &[&str]) -> Self {
        let limited = format!("ulimit -n {DESCRIPTORS}; exec \"$0\" \"$@\"");
        let program = std::env::var("RESOURCE_SERVER")
            .unwrap_or_else(|_| env!("CARGO_BIN_EXE_resource-server").to_owned());
        let mut process = Command::new("sh")
            .args(["-c", &limited, &program, "--listen", "127.0.0.1:0"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut complained = BufReader::new(process.stderr.take().unwrap()).lines();
        let log = Arc::new(Mutex::new(String::new()));
        let lines = Arc::clone(&log);
        tokio::spawn(async move {
            while let Ok(Some(line)) = complained.next_line().await {
                let mut log = lines.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        let line = timeout(PATIENCE, said.next_line()).await.unwrap().unwrap();
        let address = line.unwrap_or_else(|| panic!("{}", log.lock().unwrap()));
        let address = address.strip_prefix("listening at ").unwrap().parse().unwrap();
        let target = Self { address, process, log };
        let client = target.client();
        let written = futures::stream::iter(0..RESOURCES).map(|number| {
            let mut artist = demo::artist(&format!("artist-{number}")).encode();
            artist.metadata.insert("about".to_owned(), "x".repeat(1_000));
            let client = client.clone();
            async move { drop(client.write(artist).await.unwrap()) }
        });
        written.buffer_unordered(32).collect::<()>().await;
        target
    }

    pub(super) fn client(&self) -> GrpcClient {
        GrpcClient::new(&GrpcClientConfig::new(&format!("http://{}", self.address))).unwrap()
    }

    pub(super) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    /// The memory that the server has, in KiB.
    pub(super) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// The memory once it does not change any more.
    pub(super) async fn settled_memory(&self) -> u64 {
        let mut before = self.memory();
        loop {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let now = self.memory();
            if now.abs_diff(before) * 100 <= now {
                return now;
            }
            before = now;
        }
    }

    /// Number of files that the server has open.
    pub(super) fn open_files(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Lets the server open so many more files, or as many as at its start.
    pub(super) fn allow_more_files(&self, more: Option<u64>) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        let most =
            more.map_or(DESCRIPTORS, |more| u64::try_from(self.open_files()).unwrap() + more);
        let limit = Rlimit { current: Some(most), maximum: Some(DESCRIPTORS) };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    }
}
