//! Real `PostgreSQL` servers: a primary, and standbys that follow it.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use consul_watch::testing::{Program, parts::Suite, real::free_port};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// Time that a server may take until it answers.
pub(super) const START_LIMIT: Duration = Duration::from_mins(1);
pub(super) const POLL: Duration = Duration::from_millis(20);
/// The user without rights: `PostgreSQL` refuses to run as root.
const NOBODY: u32 = 65534;
/// Printed once it takes connections.
const READY: &str = "database system is ready to accept";
/// The role that may do everything.
pub(crate) const OWNER: &str = "owner";

/// The two programs that a server needs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    postgres: PathBuf,
    initdb: PathBuf,
}

impl Programs {
    /// Finds them, or reports that a case does not run.
    pub(crate) fn find(suite: Suite, case: &str) -> Option<Self> {
        let (postgres, initdb) = (suite.part("postgres", case)?, suite.part("initdb", case)?);
        let real = |path: PathBuf| path.canonicalize().unwrap();
        Some(Self { postgres: real(postgres.path), initdb: real(initdb.path) })
    }
}

/// A server on a free port of 127.0.0.1. Dropping it kills it and removes its data; so
/// does the end of the test's process.
pub(crate) struct Server {
    pub(super) programs: Programs,
    pub(super) folder: TempDir,
    pub(super) port: u16,
    pub(super) settings: Vec<String>,
    pub(super) running: Option<Program>,
    /// How often it had been ready before it was started last.
    readied: usize,
}

/// The program and its first arguments, as a user that a server runs as.
fn command(program: &Path) -> (PathBuf, Vec<String>) {
    if !is_root() {
        return (program.to_owned(), Vec::new());
    }
    let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mut words: Vec<_> = as_nobody.map(str::to_owned).into();
    words.push(program.display().to_string());
    ("setpriv".into(), words)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

pub(super) fn give_to_nobody(path: &Path) {
    if is_root() {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

impl Server {
    /// Starts a server whose every user is trusted.
    pub(crate) async fn start(programs: &Programs) -> Self {
        Self::start_with(programs, "trust", &[]).await
    }

    /// Starts a server that proves users by `auth`, with the password `PASSWORD` for
    /// [`OWNER`], and with further settings.
    pub(crate) async fn start_with(programs: &Programs, auth: &str, settings: &[&str]) -> Self {
        let mut server = Self::prepare(programs, auth, settings);
        server.launch();
        server.answers().await;
        server
    }

    /// Makes the data of a server, without starting it.
    pub(crate) fn prepare(programs: &Programs, auth: &str, settings: &[&str]) -> Self {
        let server = Self::empty(programs, settings);
        let password = server.folder.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        give_to_nobody(&password);
        let (first, words) = command(&programs.initdb);
        let made = Command::new(first)
            .args(words)
            .args(["-U", OWNER, "--no-sync", "--no-instructions", "--locale=C", "-E", "UTF8"])
            .arg(format!("--auth={auth}"))
            .arg(format!("--pwfile={}", password.display()))
            .arg("-D")
            .arg(server.data())
            .current_dir(server.folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        server
    }

    pub(super) fn empty(programs: &Programs, settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("postgres-").tempdir().unwrap();
        give_to_nobody(folder.path());
        Self {
            programs: programs.clone(),
            folder,
            port: free_port().unwrap(),
            settings: settings.iter().map(ToString::to_string).collect(),
            running: None,
            readied: 0,
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts it on its data, without waiting for it.
    pub(crate) fn launch(&mut self) {
        let (first, mut words) = command(&self.programs.postgres);
        let settings = ["-h", "127.0.0.1", "-F", "-p", &self.port.to_string(), "-D"];
        words.extend(settings.map(str::to_owned));
        words.push(self.data().display().to_string());
        words.extend(["-k".to_owned(), self.folder.path().display().to_string()]);
        let defaults = ["max_connections=120", "shared_buffers=16MB", "wal_keep_size=512MB"];
        for setting in defaults.into_iter().chain(self.settings.iter().map(String::as_str)) {
            words.extend(["-c".to_owned(), setting.to_owned()]);
        }
        let log = self.folder.path().join("log");
        self.readied = self.log().matches(READY).count();
        self.running = Some(Program::start(&first, words, self.folder.path(), &log).unwrap());
    }

    /// Waits until it takes connections; starts it again where the one before has not let go
    /// of its memory yet.
    pub(crate) async fn answers(&mut self) {
        let limit = Instant::now() + START_LIMIT;
        while self.log().matches(READY).count() <= self.readied {
            assert!(Instant::now() < limit, "PostgreSQL did not start:\n{}", self.log());
            if self.running.as_mut().is_some_and(|running| running.has_ended().unwrap()) {
                self.launch();
            }
            sleep(POLL).await;
        }
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        drop(self.running.take());
    }

    /// What it printed.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn host(&self) -> String {
        self.address().to_string()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// A connection string for a trusted user.
    pub(crate) fn url(&self) -> String {
        format!("postgres://{OWNER}@127.0.0.1:{}/postgres", self.port)
    }
}

/// Password of [`OWNER`], where one is asked for.
pub(crate) const PASSWORD: &str = "planted-password-of-postgres";
