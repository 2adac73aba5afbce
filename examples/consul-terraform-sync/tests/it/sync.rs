//! A `consul-terraform-sync` process under test.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    process::{Child, Command},
    time::{sleep, timeout},
};

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Takes firewall rules from services and keeps them in a file.
pub(crate) fn firewall_module() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../modules/firewall-rules")
}

/// A folder with a configuration, and the process that runs on it.
pub(crate) struct SyncProcess {
    folder: PathBuf,
    /// A command that the program is started through, and its arguments.
    launcher: Vec<String>,
    child: Option<Child>,
    http: reqwest::Client,
}

impl SyncProcess {
    /// Writes `sync.hcl`, with the settings that every test needs before `config`.
    pub(crate) fn new(folder: &Path, consul: &str, config: &str) -> Self {
        let head = format!(
            "port = 0\nlog_level = \"DEBUG\"\nworking_dir = \"{}\"\n\
             buffer_period {{\n  enabled = false\n}}\nconsul {{\n  address = \"{consul}\"\n}}\n",
            folder.join("sync-tasks").display()
        );
        fs::write(folder.join("sync.hcl"), format!("{head}{config}")).unwrap();
        let http = reqwest::Client::new();
        Self { folder: folder.to_owned(), launcher: Vec::new(), child: None, http }
    }

    /// Keeps the tasks' folders elsewhere than in the folder of the configuration.
    pub(crate) fn working_in(self, folder: &Path) -> Self {
        let path = self.folder.join("sync.hcl");
        let text = fs::read_to_string(&path).unwrap();
        let line = format!("working_dir = \"{}\"", folder.display());
        let written = format!("working_dir = \"{}\"", self.folder.join("sync-tasks").display());
        fs::write(&path, text.replace(&written, &line)).unwrap();
        self
    }

    /// Starts the program through this command.
    pub(crate) fn through(mut self, launcher: Vec<String>) -> Self {
        self.launcher = launcher;
        self
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("sync.log")).unwrap_or_default()
    }

    pub(crate) fn start(&mut self) {
        self.start_with(|_| ());
    }

    /// Starts it after `change` has had its way with the command.
    pub(crate) fn start_with(&mut self, change: impl FnOnce(&mut Command)) {
        let log = File::options().create(true).append(true).open(self.folder.join("sync.log"));
        let program = env!("CARGO_BIN_EXE_consul-terraform-sync").to_owned();
        let words: Vec<String> = self.launcher.iter().cloned().chain([program]).collect();
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .args(["start", "-config-file", "sync.hcl"])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.unwrap())
            .kill_on_drop(true);
        change(&mut command);
        self.child = Some(command.spawn().unwrap());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().and_then(Child::id).unwrap()
    }

    /// Returns `true` if it has ended without being waited for.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    /// Sends a signal and waits for the end.
    pub(crate) async fn end(&mut self, signal: &str) -> ExitStatus {
        self.signal(signal).await;
        self.ended().await
    }

    pub(crate) async fn signal(&self, signal: &str) {
        let pid = self.pid().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().await.unwrap().success());
    }

    /// Waits for the process to end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let ended = timeout(PATIENCE, child.wait()).await;
        ended.unwrap_or_else(|_late| panic!("it does not end\n{}", self.log())).unwrap()
    }

    /// The task's events, the newest first; none while the API is not up.
    pub(crate) async fn events(&self, task: &str) -> Vec<Value> {
        let body = self.get(&format!("/v1/status/tasks/{task}?include=events")).await;
        body.and_then(|body| body[task]["events"].as_array().cloned()).unwrap_or_default()
    }

    /// Where the API answers; `None` while it is not up.
    pub(crate) fn address(&self) -> Option<String> {
        // The log says which free port it took, the newest process last.
        let log = self.log();
        let port =
            log.rsplit("serving the API: port=").next().filter(|rest| rest.len() < log.len())?;
        Some(format!("http://127.0.0.1:{}", port.lines().next()?))
    }

    /// Waits until a plan of the task waits for approval.
    pub(crate) async fn waits(&self, task: &str) {
        let waited = timeout(PATIENCE, async {
            let path = format!("/v1/tasks/{task}/plan");
            while self.get(&path).await.is_none_or(|answer| !answer["plan"].is_object()) {
                sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(waited.await.is_ok(), "no plan of {task} waits\n{}", self.log());
    }

    /// Waits until the API knows no such task.
    pub(crate) async fn gone(&self, task: &str) {
        let waited = timeout(PATIENCE, async {
            let path = format!("/v1/tasks/{task}");
            while self.get(&path).await.is_none_or(|answer| answer["task"].is_object()) {
                sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(waited.await.is_ok(), "{task} is still there\n{}", self.log());
    }

    /// The body of an answer, whatever its status; `None` while the API is not up.
    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let url = format!("{}{path}", self.address()?);
        let body = self.http.get(url).send().await.ok()?.bytes().await.ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// Waits until `look` finds what it looks for.
    pub(crate) async fn until(&self, what: &str, look: impl Fn() -> bool + Send + Sync) {
        let waited = timeout(PATIENCE, async {
            while !look() {
                sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(waited.await.is_ok(), "{what}: not within {PATIENCE:?}\n{}", self.log());
    }

    /// Waits for the newest run of `task` to have failed, and returns why.
    pub(crate) async fn failed(&self, task: &str) -> String {
        let waited = timeout(PATIENCE, async {
            loop {
                let events = self.events(task).await;
                if let Some(message) =
                    events.first().and_then(|event| event["error"]["message"].as_str())
                {
                    return message.to_owned();
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        waited.await.unwrap_or_else(|_late| panic!("{task} did not fail\n{}", self.log()))
    }

    /// Waits for the newest run of `task` to have succeeded and to be the `count`th.
    pub(crate) async fn ran(&self, task: &str, count: usize) {
        let waited = timeout(PATIENCE, async {
            loop {
                let events = self.events(task).await;
                if events.len() >= count {
                    assert_eq!(events.len(), count, "too many runs of {task}\n{}", self.log());
                    assert_eq!(events[0]["success"], true, "{:?}\n{}", events[0], self.log());
                    return;
                }
                sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(waited.await.is_ok(), "{task} did not run {count} times\n{}", self.log());
    }
}
