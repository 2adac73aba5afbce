//! The built program: reload, rules, Ctrl-C, and what its store keeps through `kill -9`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use consul_watch::{
    testing::{TestConsul, parts::Suite},
    types::HealthStatus,
};
use cts_tasks::{
    FirstRun,
    client::{Client, ClientConfig},
    wire::TaskDocument,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    time::{sleep, timeout},
};

const SUITE: Suite = Suite("own-daemon");
/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

/// A folder with a configuration, and the double.
struct Site {
    folder: TempDir,
    address: String,
    port: u16,
}

impl Site {
    async fn new() -> (Self, impl Sized) {
        SUITE.double("consul");
        let consul = TestConsul::new();
        let served = consul.serve().await.unwrap();
        consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("haproxy")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        (Self { folder, address: served.address(), port }, served)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "port = {}\nbuffer_period {{\n  enabled = false\n}}\nconsul {{\n  address = \"{}\"\n}}\n\
             driver \"haproxy\" {{\n  folder = \"haproxy\"\n  reload = \"true\"\n}}\n{more}",
            self.port, self.address
        );
        fs::write(self.path("sync.hcl"), text).unwrap();
    }

    async fn until_file(&self, task: &str, expected: &str) {
        let read =
            || fs::read_to_string(self.path(&format!("haproxy/{task}.cfg"))).unwrap_or_default();
        let waited = timeout(PATIENCE, async {
            while !read().contains(expected) {
                sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(waited.await.is_ok(), "{task}: {:?} instead of {expected}", read());
    }

    fn client(&self) -> Client {
        let mut config = ClientConfig::default();
        config.address = format!("http://127.0.0.1:{}", self.port);
        Client::new(&config).unwrap()
    }

    /// Starts the program, and waits until its API answers.
    async fn start(&self) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_own-daemon"))
            .arg("sync.hcl")
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let client = self.client();
        let answers = timeout(PATIENCE, async {
            while client.tasks().await.is_err() {
                assert!(child.try_wait().unwrap().is_none(), "{}", errors(&mut child).await);
                sleep(Duration::from_millis(20)).await;
            }
        });
        answers.await.unwrap();
        child
    }

    /// Waits until every task has run once.
    async fn until_runs(&self, tasks: usize) {
        let client = self.client();
        let ran = timeout(PATIENCE, async {
            while client
                .task_statuses(true, None)
                .await
                .unwrap()
                .values()
                .filter(|it| !it.events.is_empty())
                .count()
                < tasks
            {
                sleep(Duration::from_millis(20)).await;
            }
        });
        ran.await.unwrap();
    }
}

async fn errors(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), signal).unwrap();
}

async fn end(mut child: Child, with: Signal) -> ExitStatus {
    signal(&child, with);
    timeout(PATIENCE, child.wait()).await.unwrap().unwrap()
}

fn task(name: &str, more: &str) -> String {
    format!(
        "task {{\n  name = \"{name}\"\n{more}  condition \"services\" {{\n    names = [\"web\"]\n  }}\n}}\n"
    )
}

fn document(name: &str) -> TaskDocument {
    let services = json!({"names": ["web"]});
    serde_json::from_value(json!({"name": name, "condition": {"services": services}})).unwrap()
}

#[tokio::test]
async fn it_reloads_keeps_the_rules_and_ends_at_ctrl_c() {
    let (site, _served) = Site::new().await;
    site.configure(&task("one", ""));
    let child = site.start().await;
    site.until_file("one", "web-1 10.0.0.1:80").await;

    site.configure(&(task("one", "") + &task("two", "")));
    signal(&child, Signal::SIGHUP);
    site.until_file("two", "web-1").await;

    let client = site.client();
    client.create_task(&document("three"), FirstRun::Now).await.unwrap();
    site.until_file("three", "web-1").await;
    let mut wrong = document("four");
    wrong.drift_check = Some("never".into());
    let refused = client.create_task(&wrong, FirstRun::Now).await.unwrap_err();
    assert!(refused.to_string().contains("drift_check"), "{refused}");

    // A configuration with mistakes changes nothing, and a later one counts again.
    site.configure("weather {}\n");
    signal(&child, Signal::SIGHUP);
    site.configure(&(task("one", "") + &task("five", "")));
    signal(&child, Signal::SIGHUP);
    site.until_file("five", "web-1").await;
    assert!(end(child, Signal::SIGINT).await.success());
}

#[tokio::test]
async fn what_it_acknowledged_outlives_kill_9() {
    let (site, _served) = Site::new().await;
    let storage = "storage \"file\" {\n  path = \"state/tasks.json\"\n}\n";
    let guarded = task("guarded", "  require_approval = true\n");
    site.configure(&format!("{storage}{}{}", task("file", ""), guarded));
    let mut random = fastrand::Rng::with_seed(27);
    let mut acknowledged = BTreeSet::from(["file".to_owned(), "guarded".to_owned()]);
    let mut newest = None;
    for round in 0..6 {
        let child = site.start().await;
        let client = site.client();
        let there: BTreeSet<_> =
            client.tasks().await.unwrap().into_iter().map(|task| task.name).collect();
        // One more may be there whose answer was lost.
        assert!(there.is_superset(&acknowledged), "{round}: {there:?} {acknowledged:?}");
        site.until_runs(2).await;
        let plan = client.waiting_plan("guarded").await.unwrap();
        assert_eq!(*newest.get_or_insert_with(|| plan.id.clone()), plan.id);
        let file = client.task_status("file", true).await.unwrap();
        assert_eq!(file.events.len(), (round + 1).min(5), "each start is a run, and an event");

        let creating = async {
            for number in 0.. {
                let name = format!("made-{round}-{number}");
                if client.create_task(&document(&name), FirstRun::WhenTriggered).await.is_err() {
                    return;
                }
                acknowledged.insert(name);
            }
        };
        let killing = async {
            sleep(Duration::from_millis(random.u64(20..200))).await;
            end(child, Signal::SIGKILL).await
        };
        let ((), status) = tokio::join!(creating, killing);
        assert!(!status.success());
    }
    assert!(acknowledged.len() > 8, "{acknowledged:?}");

    // A task that left the files is forgotten, one that was made stays.
    site.configure(&format!("{storage}{}", task("file", "")));
    let child = site.start().await;
    let there: Vec<_> =
        site.client().tasks().await.unwrap().into_iter().map(|it| it.name).collect();
    assert!(!there.contains(&"guarded".to_owned()), "{there:?}");
    assert!(there.iter().any(|name| name.starts_with("made-")), "{there:?}");

    // A second process is refused, and told who has the file.
    let mut second = Command::new(env!("CARGO_BIN_EXE_own-daemon"))
        .arg("sync.hcl")
        .current_dir(site.folder.path())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    assert!(!timeout(PATIENCE, second.wait()).await.unwrap().unwrap().success());
    let said = errors(&mut second).await;
    let holder = format!("in use by process {}", child.id().unwrap());
    assert!(said.contains(&holder) && said.contains("state/tasks.json"), "{said}");
    assert!(end(child, Signal::SIGINT).await.success());
}

#[test]
fn the_readme_shows_this_program() {
    let program = include_str!("../../src/main.rs");
    let (_, shown) = program.split_once("use std::").unwrap();
    let readme = include_str!("../../../../cts-tasks/README.md");
    assert!(readme.contains(shown), "cts-tasks/README.md shows another program");
    let main = shown.lines().skip_while(|line| !line.contains("async fn main"));
    let lines = main.take_while(|line| *line != "}").count() + 1;
    assert!(lines <= 33, "{lines} lines");
}
