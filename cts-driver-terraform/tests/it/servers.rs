//! Real servers that keep states: moto for S3, and `PostgreSQL`.

use std::{net::TcpListener, os::unix::fs::chown, path::Path, process::Command, time::Duration};

use bytes::Bytes;
use consul_watch::{
    ClientConfig, Transport as _,
    testing::Program,
    transport::{ExchangeLimits, SocketTransport},
};
use tokio::time::{Instant, sleep};

/// Time that a server may take until it answers.
const START_LIMIT: Duration = Duration::from_mins(1);

/// The user without rights: `PostgreSQL` refuses to run as root.
const NOBODY: u32 = 65534;

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// moto, with one bucket.
pub(crate) struct Moto {
    address: String,
    transport: SocketTransport,
    _program: Program,
    _folder: tempfile::TempDir,
}

/// The bucket of [`Moto`].
pub(crate) const BUCKET: &str = "states";

impl Moto {
    pub(crate) async fn start(path: &Path) -> Self {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let folder = tempfile::tempdir().unwrap();
            let port = free_port();
            let recording = folder.path().join("recording").display().to_string();
            let arguments = [
                format!("MOTO_RECORDER_FILEPATH={recording}"),
                path.display().to_string(),
                "-H".to_owned(),
                "127.0.0.1".to_owned(),
                "-p".to_owned(),
                port.to_string(),
            ];
            let log = folder.path().join("log");
            let env = Path::new("env");
            let mut program = Program::start(env, arguments, folder.path(), &log).unwrap();
            let address = format!("127.0.0.1:{port}");
            let mut config = ClientConfig::default();
            config.address.clone_from(&address);
            let transport = SocketTransport::new(&config).unwrap();
            while Instant::now() < deadline && !program.has_ended().unwrap() {
                if call(&transport, &address, "PUT", BUCKET).await.is_some() {
                    return Self { address, transport, _program: program, _folder: folder };
                }
                sleep(Duration::from_millis(50)).await;
            }
            assert!(Instant::now() < deadline, "moto did not start");
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn call(&self, method: &str, path: &str) -> String {
        call(&self.transport, &self.address, method, path).await.unwrap()
    }

    /// The recorded requests that this key has signed.
    pub(crate) async fn recorded_of(&self, key: &str) -> Vec<String> {
        let recording = self.call("GET", "moto-api/recorder/download-recording").await;
        let signed = format!("Credential={key}/");
        recording.lines().filter(|line| line.contains(&signed)).map(str::to_owned).collect()
    }

    /// Access keys that requests were signed with since the recording began.
    pub(crate) async fn recorded_keys(&self) -> std::collections::BTreeSet<String> {
        let recording = self.call("GET", "moto-api/recorder/download-recording").await;
        let keys = recording.split("Credential=").skip(1);
        keys.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect()
    }
}

/// The body of a successful answer.
async fn call(
    transport: &SocketTransport,
    address: &str,
    method: &str,
    path: &str,
) -> Option<String> {
    let request = http::Request::builder().method(method);
    let request = request.uri(format!("http://{address}/{path}")).body(Bytes::new()).unwrap();
    let limit = Duration::from_secs(10);
    let answer = transport.exchange(request, ExchangeLimits::new(limit, limit)).await.ok()?;
    let text = String::from_utf8_lossy(answer.body()).into_owned();
    answer.status().is_success().then_some(text)
}

/// A `PostgreSQL` server with one user, who needs a password.
pub(crate) struct Postgres {
    port: u16,
    _program: Program,
    _folder: tempfile::TempDir,
}

/// Password of the user `cts` of [`Postgres`].
pub(crate) const PASSWORD: &str = "pg-pl4nted-5ecret";

impl Postgres {
    /// Starts a server with the programs `postgres` and `initdb`.
    pub(crate) async fn start(postgres: &Path, initdb: &Path) -> Self {
        let deadline = Instant::now() + START_LIMIT;
        let folder = tempfile::tempdir().unwrap();
        let root = nix::unistd::geteuid().is_root();
        let password = folder.path().join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        if root {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            chown(&password, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let data = folder.path().join("data");
        let as_nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let command = |program: &Path| {
            let program = program.canonicalize().unwrap();
            if root {
                let mut words: Vec<_> = as_nobody.map(str::to_owned).into();
                words.push(program.display().to_string());
                ("setpriv".into(), words)
            } else {
                (program, Vec::new())
            }
        };
        let (first, words) = command(initdb);
        let made = Command::new(first)
            .args(words)
            .args(["-U", "cts", "--auth=scram-sha-256", "--no-sync", "-D"])
            .arg(&data)
            .arg(format!("--pwfile={}", password.display()))
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let log = folder.path().join("log");
        loop {
            let port = free_port();
            let (first, mut words) = command(postgres);
            let settings = ["-h", "127.0.0.1", "-F", "-p", &port.to_string(), "-D"];
            words.extend(settings.map(str::to_owned));
            words.push(data.display().to_string());
            words.extend(["-k".to_owned(), folder.path().display().to_string()]);
            let mut program = Program::start(&first, words, folder.path(), &log).unwrap();
            while Instant::now() < deadline && !program.has_ended().unwrap() {
                let printed = std::fs::read_to_string(&log).unwrap_or_default();
                if printed.contains("ready to accept connections") {
                    return Self { port, _program: program, _folder: folder };
                }
                sleep(Duration::from_millis(50)).await;
            }
            let printed = std::fs::read_to_string(&log).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL did not start: {printed}");
        }
    }

    /// A connection string, with the password in it.
    pub(crate) fn connection(&self) -> String {
        format!("postgres://cts:{PASSWORD}@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}
