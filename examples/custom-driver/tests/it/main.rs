//! The built program with a driver of its own, as an operator uses it.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use consul_watch::{
    Client,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::AgentServiceRegistration,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::{sleep, timeout},
};

const SUITE: Suite = Suite("custom-driver");
/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder with a configuration, and a Consul.
struct Site {
    folder: TempDir,
    consul: Client,
    address: String,
}

impl Site {
    fn new(consul: Client, address: String) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), consul, address };
        fs::create_dir(site.path("haproxy")).unwrap();
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self, reload: &str, tasks: &str) {
        let head = format!(
            "port = 0\nbuffer_period {{\n  enabled = false\n}}\nconsul {{\n  address = \"{}\"\n}}\n\
             driver \"haproxy\" {{\n  folder = \"haproxy\"\n  reload = \"{reload}\"\n}}\n",
            self.address
        );
        fs::write(self.path("sync.hcl"), head + tasks).unwrap();
    }

    async fn register(&self, service: &str, number: i64) {
        let mut instance = AgentServiceRegistration::new(service);
        instance.id = format!("{service}-{number}");
        instance.address = format!("10.0.0.{number}");
        instance.port = 80;
        self.consul.agent_register_service(&instance).await.unwrap();
    }

    fn file(&self, task: &str) -> String {
        fs::read_to_string(self.path(&format!("haproxy/{task}.cfg"))).unwrap_or_default()
    }

    fn reloads(&self) -> usize {
        fs::read_to_string(self.path("reloads")).unwrap_or_default().lines().count()
    }

    async fn until(&self, task: &str, expected: &str) {
        let waited = timeout(PATIENCE, async {
            while self.file(task) != expected {
                sleep(Duration::from_millis(50)).await;
            }
        });
        assert!(waited.await.is_ok(), "{task}: {:?} instead of {expected:?}", self.file(task));
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        let ran = program(self.folder.path()).args(arguments).output();
        timeout(PATIENCE, ran).await.unwrap().unwrap()
    }

    async fn start(&self) -> Daemon {
        let mut child = program(self.folder.path())
            .args(["start", "-config-file", "sync.hcl"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut port = None;
        while port.is_none() {
            let line = timeout(PATIENCE, log.next_line()).await.unwrap().unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended"));
            port = line.split_once("serving the API: port=").map(|(_, port)| port.to_owned());
        }
        Daemon { child, log, address: format!("http://127.0.0.1:{}", port.unwrap()) }
    }
}

/// The running program.
struct Daemon {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
    address: String,
}

impl Daemon {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().unwrap().try_into().unwrap()), signal).unwrap();
    }

    async fn end(mut self) {
        self.signal(Signal::SIGTERM);
        // What is not read must not hold it up.
        let drained = async { while let Ok(Some(_)) = self.log.next_line().await {} };
        let ((), status) = tokio::join!(drained, self.child.wait());
        assert!(status.unwrap().success());
    }
}

fn program(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haproxy-sync"));
    command.current_dir(folder).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

fn task(name: &str, service: &str) -> String {
    format!(
        "task {{\n  name = \"{name}\"\n  condition \"services\" {{\n    \
         names = [\"{service}\"]\n  }}\n}}\n"
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const RELOAD: &str = "echo reloaded >>reloads";
const ONE: &str = "backend web\n    server web-1 10.0.0.1:80 check\n";
const TWO: &str =
    "backend web\n    server web-1 10.0.0.1:80 check\n    server web-2 10.0.0.2:80 check\n";

async fn every_way_to_run_it(site: Site) {
    site.configure(RELOAD, &task("web", "web"));
    site.register("web", 1).await;

    let inspected = site.run(&["start", "-config-file", "sync.hcl", "-inspect"]).await;
    let log = text(&inspected.stderr);
    assert!(inspected.status.success() && log.contains("server web-1 10.0.0.1:80"), "{log}");
    assert_eq!((site.file("web").as_str(), site.reloads()), ("", 0));

    let once = site.run(&["start", "-config-file", "sync.hcl", "-once"]).await;
    assert!(once.status.success(), "{}", text(&once.stderr));
    assert_eq!((site.file("web").as_str(), site.reloads()), (ONE, 1));

    let daemon = site.start().await;
    site.register("web", 2).await;
    site.until("web", TWO).await;

    // Tasks of changed files are taken over.
    let tasks = format!("{}{}", task("web", "web"), task("api", "api"));
    site.configure(RELOAD, &tasks);
    site.register("api", 3).await;
    daemon.signal(Signal::SIGHUP);
    site.until("api", "backend api\n    server api-3 10.0.0.3:80 check\n").await;

    fs::write(site.path("db.hcl"), task("db", "db")).unwrap();
    site.register("db", 4).await;
    let arguments =
        ["task", "create", "-auto-approve", "-task-file", "db.hcl", "-http-addr", &daemon.address];
    let created = site.run(&arguments).await;
    assert!(created.status.success(), "{}", text(&created.stderr));
    let said = text(&created.stdout);
    assert!(said.contains("Generating plan that haproxy-sync will execute"), "{said}");
    assert_eq!(site.file("db"), "backend db\n    server db-4 10.0.0.4:80 check\n");
    assert_eq!(site.file("web"), TWO);
    daemon.end().await;
}

#[tokio::test]
async fn every_way_to_run_it_on_the_double() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    every_way_to_run_it(Site::new(consul.client(), consul.address())).await;
}

#[tokio::test]
async fn every_way_to_run_it_on_a_real_consul() {
    for part in SUITE.parts("consul", "every way to run it") {
        let consul = Consul::start(&part.path).await.unwrap();
        every_way_to_run_it(Site::new(consul.client(), consul.address())).await;
    }
}

#[tokio::test]
async fn a_reload_that_fails_leaves_what_was_in_use() {
    SUITE.double("consul");
    let consul = TestConsul::new().serve().await.unwrap();
    let site = Site::new(consul.client(), consul.address());
    site.configure(RELOAD, &task("web", "web"));
    site.register("web", 1).await;
    let once = site.run(&["start", "-config-file", "sync.hcl", "-once"]).await;
    assert!(once.status.success(), "{}", text(&once.stderr));

    site.register("web", 2).await;
    site.configure("echo no such backend >&2; false", &task("web", "web"));
    let failed = site.run(&["start", "-config-file", "sync.hcl", "-once"]).await;
    assert_eq!(failed.status.code(), Some(11));
    let log = text(&failed.stderr);
    assert!(log.contains("web.cfg: no such backend"), "{log}");
    assert_eq!(site.file("web"), ONE);
}

#[tokio::test]
async fn what_the_driver_needs_is_asked_for_with_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sync.hcl"), "driver \"haproxy\" {\n  folder = 3\n}\n").unwrap();
    let refused = program(folder.path()).args(["validate", "-config-file", "sync.hcl"]).output();
    let refused = timeout(PATIENCE, refused).await.unwrap().unwrap();
    assert_eq!(refused.status.code(), Some(15));
    let said = text(&refused.stderr);
    assert!(said.contains("driver.haproxy: reload is required"), "{said}");
    assert!(said.contains("sync.hcl:1:18"), "{said}");
    let version = timeout(PATIENCE, program(folder.path()).arg("-version").output());
    let version = text(&version.await.unwrap().unwrap().stdout);
    assert_eq!(version, format!("haproxy-sync v{}\n", env!("CARGO_PKG_VERSION")));
}
