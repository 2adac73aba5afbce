//! The controller as a process.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::Stdio,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::process::{Child, Command};

/// How a controller is started, again and again.
#[derive(Clone)]
pub(super) struct Launch {
    pub(super) arguments: Vec<String>,
    pub(super) vars: Vec<(String, String)>,
    /// What it prints is added to this file.
    pub(super) log: PathBuf,
}

/// A controller that runs; killed when it is dropped.
pub(super) struct Process(Child);

impl Launch {
    pub(super) fn new(arguments: &[&str], log: PathBuf) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { arguments, vars: Vec::new(), log }
    }

    pub(super) fn var(&mut self, name: &str, value: impl Into<String>) {
        self.vars.push((name.to_owned(), value.into()));
    }

    pub(super) fn start(&self) -> Process {
        let log = File::options().create(true).append(true).open(&self.log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_consul-ecs"));
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.vars.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true);
        Process(command.spawn().unwrap())
    }

    /// Runs to the end: the exit code, what it printed and its log. `arguments` come first.
    pub(super) async fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_consul-ecs"));
        command.args(arguments).args(&self.arguments).env_clear().envs(self.vars.iter().cloned());
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    pub(super) fn printed(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.0.id().unwrap()
    }

    /// As a crash would.
    pub(super) async fn kill(mut self) {
        self.0.kill().await.unwrap();
    }

    /// As ECS ends a task.
    pub(super) async fn terminate(mut self) -> Option<i32> {
        kill(Pid::from_raw(i32::try_from(self.id()).unwrap()), Signal::SIGTERM).unwrap();
        self.0.wait().await.unwrap().code()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}
