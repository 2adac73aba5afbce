//! One `resource-server` process.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use resource_store::{GrpcClient, GrpcClientConfig, RequestContext, backend::Consistency};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// How long a node may take until it serves.
pub(crate) const START_LIMIT: Duration = Duration::from_mins(1);

/// A `resource-server` with fixed arguments. Dropping it kills it.
pub(crate) struct Node {
    /// Where clients reach it.
    pub(crate) address: String,
    program: PathBuf,
    arguments: Vec<String>,
    /// Variables that it has besides those of this process.
    pub(crate) environment: Vec<(&'static str, OsString)>,
    log: PathBuf,
    pub(super) process: Option<Child>,
    /// Killed, and perhaps not gone yet: the system takes the longer to give its
    /// port back the more memory it had.
    dying: Option<Child>,
}

impl Node {
    /// A node that is not started yet; what it says is added to `log`.
    pub(crate) fn new(
        program: &str,
        address: String,
        arguments: Vec<String>,
        log: PathBuf,
    ) -> Self {
        let (program, environment) = (program.into(), Vec::new());
        Self { address, program, arguments, environment, log, process: None, dying: None }
    }

    /// Starts it, with arguments of this time only.
    pub(crate) fn launch(&mut self, more: &[&str]) -> Starting {
        self.kill();
        let log = std::fs::File::options().create(true).append(true).open(&self.log).unwrap();
        let mut process = Command::new(&self.program)
            .args(["--listen", &self.address])
            .args(&self.arguments)
            .args(more)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let printed = BufReader::new(process.stdout.take().unwrap());
        self.process = Some(process);
        Starting { printed, log: self.log.clone() }
    }

    /// Starts it, and waits until it serves.
    pub(crate) async fn start(&mut self, more: &[&str]) {
        self.kill();
        if let Some(mut process) = self.dying.take() {
            process.wait().await.unwrap();
        }
        self.launch(more).serves().await;
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
        }
    }

    /// Kills it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::SIGKILL);
        if let Some(process) = self.process.take() {
            self.dying = Some(process);
        }
    }

    /// Asks it to end, and waits for that.
    pub(crate) async fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        if let Some(mut process) = self.process.take() {
            let ended = timeout(START_LIMIT, process.wait()).await.unwrap().unwrap();
            assert!(ended.success(), "{ended}");
        }
    }

    pub(crate) fn client(&self, consistency: Consistency) -> GrpcClient {
        let mut config = GrpcClientConfig::new(&format!("http://{}", self.address));
        config.connect_timeout = Some(Duration::from_secs(1));
        let mut context = RequestContext::anonymous();
        context.consistency = consistency;
        GrpcClient::new(&config).unwrap().with_context(context)
    }
}

/// A node that does not serve yet.
pub(crate) struct Starting {
    printed: BufReader<tokio::process::ChildStdout>,
    log: PathBuf,
}

impl Starting {
    /// Waits until it serves.
    pub(crate) async fn serves(mut self) {
        let mut line = String::new();
        let read = timeout(START_LIMIT, self.printed.read_line(&mut line)).await;
        let serves = matches!(read, Ok(Ok(_))) && line.starts_with("listening at ");
        assert!(serves, "{line:?}: {}", std::fs::read_to_string(&self.log).unwrap());
        // So that it never writes to a pipe that nobody reads.
        tokio::spawn(async move {
            let mut lines = self.printed.lines();
            while let Ok(Some(_)) = lines.next_line().await {}
        });
    }
}
