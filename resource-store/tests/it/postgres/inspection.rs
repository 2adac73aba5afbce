//! What the tests of the backend need of their servers.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use resource_store::backend::postgres::{PostgresBackend, PostgresConfig};
use tokio::time::{Instant, sleep};

use super::server::{OWNER, POLL, START_LIMIT, Server, give_to_nobody};

impl Server {
    /// Makes a standby of this server out of its data; it must never have run.
    pub(crate) fn standby(&self) -> Self {
        assert!(self.running.is_none(), "its data must be at rest");
        let follows = format!("primary_conninfo=host=127.0.0.1 port={} user={OWNER}", self.port);
        let standby = Self::empty(&self.programs, &[&follows]);
        let copied = Command::new("cp").arg("-a").arg(self.data()).arg(standby.data()).status();
        assert!(copied.unwrap().success());
        let signal = standby.data().join("standby.signal");
        fs::write(&signal, "").unwrap();
        give_to_nobody(&signal);
        standby
    }

    /// Makes another server of a copy of the data of this one, which must not run.
    pub(crate) fn copy(&self) -> Self {
        assert!(self.running.is_none(), "its data must be at rest");
        let copy = Self::empty(&self.programs, &[]);
        let copied = Command::new("cp").arg("-a").arg(self.data()).arg(copy.data()).status();
        assert!(copied.unwrap().success());
        copy
    }

    /// Puts the data of another server, which must not run, in the place of this one's.
    pub(crate) fn take_data_of(&self, other: &Self) {
        assert!(self.running.is_none() && other.running.is_none());
        fs::remove_dir_all(self.data()).unwrap();
        let copied = Command::new("cp").arg("-a").arg(other.data()).arg(self.data()).status();
        assert!(copied.unwrap().success());
    }

    /// The folder, for certificates.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file that the server may read and nobody else.
    pub(crate) fn write_secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        give_to_nobody(&path);
        path
    }

    /// Adds settings for its next start.
    pub(crate) fn set(&mut self, settings: &[&str]) {
        self.settings.extend(settings.iter().map(ToString::to_string));
    }

    fn signal(&self, signal: &str) {
        let first = self.first_process();
        assert!(Command::new("kill").args([signal, &first]).status().unwrap().success());
    }

    /// Ends it at once, without a checkpoint (`-QUIT`), or after its connections are closed
    /// (`-INT`), and waits for that.
    pub(crate) async fn stop(&mut self, signal: &str) {
        self.signal(signal);
        let mut running = self.running.take().unwrap();
        let limit = Instant::now() + START_LIMIT;
        while !running.has_ended().unwrap() {
            assert!(Instant::now() < limit, "PostgreSQL did not stop:\n{}", self.log());
            sleep(POLL).await;
        }
    }

    /// Stops its execution, as a machine that hangs would, until it is killed: by this or by
    /// the end of what is returned.
    pub(crate) fn pause(&self) -> Paused {
        let running = self.running.as_ref().unwrap();
        running.pause();
        // Each connection has a process in a session of its own; no further one begins.
        let first = self.first_process();
        let processes = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        let paused = Paused(processes.split_whitespace().map(str::to_owned).collect());
        assert!(!paused.0.is_empty(), "it serves nobody");
        paused.signal("-STOP");
        paused
    }

    /// The process that started the others, as the server notes it.
    fn first_process(&self) -> String {
        let noted = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        noted.lines().next().unwrap().to_owned()
    }

    pub(crate) fn config(&self) -> PostgresConfig {
        let mut config = PostgresConfig::new([self.host()]);
        OWNER.clone_into(&mut config.user);
        // A server that starts anew may take long on a busy machine.
        config.timeout = START_LIMIT;
        config
    }

    pub(crate) async fn backend(&self) -> PostgresBackend {
        PostgresBackend::connect(&self.config()).await.unwrap()
    }

    /// Runs statements as [`OWNER`].
    pub(crate) async fn execute(&self, sql: &str) {
        let client = self.client().await;
        client.batch_execute(sql).await.unwrap();
    }

    /// Asks for one number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.client().await.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn client(&self) -> tokio_postgres::Client {
        let connected = tokio_postgres::connect(&self.url(), tokio_postgres::NoTls).await;
        let (client, connection) = connected.unwrap();
        // It ends with its client.
        tokio::spawn(async move { connection.await.unwrap_or_default() });
        client
    }
}

/// Processes of a server that hangs. They would not notice the end of the one that started
/// them.
pub(crate) struct Paused(Vec<String>);

impl Paused {
    fn signal(&self, signal: &str) {
        // One that ended by itself meanwhile is no failure.
        let _ended = Command::new("kill").arg(signal).args(&self.0).status().unwrap();
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}
