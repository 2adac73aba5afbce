//! The built program while a person works on the machine, and after.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{fs, path::Path, process::Stdio, time::Duration};

use consul_watch::{
    testing::{TestConsul, parts::Suite},
    types::HealthStatus,
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::{sleep, timeout},
};

const SUITE: Suite = Suite("own-permit");
/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_mins(1);

async fn until(file: &Path, expected: &str) {
    let read = || fs::read_to_string(file).unwrap_or_default();
    let waited = timeout(PATIENCE, async {
        while !read().contains(expected) {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{:?} instead of {expected}", read());
}

#[tokio::test]
async fn nothing_is_changed_while_a_person_works() {
    SUITE.double("consul");
    let consul = TestConsul::new();
    let served = consul.serve().await.unwrap();
    consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("maintenance"), "").unwrap();
    let text = format!(
        "buffer_period {{\n  enabled = false\n}}\nconsul {{\n  address = \"{}\"\n}}\n\
         driver \"haproxy\" {{\n  folder = \".\"\n  reload = \"true\"\n}}\n\
         task {{\n  name = \"web\"\n  condition \"services\" {{\n    names = [\"web\"]\n  }}\n}}\n",
        served.address()
    );
    fs::write(path("sync.hcl"), text).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_own-permit"))
        .args(["maintenance", "sync.hcl"])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();

    let line = timeout(PATIENCE, log.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("waiting: maintenance is there"), "{line}");
    assert!(!path("web.cfg").exists());
    fs::remove_file(path("maintenance")).unwrap();
    until(&path("web.cfg"), "web-1 10.0.0.1:80").await;

    fs::write(path("maintenance"), "").unwrap();
    consul.set_instance("web", "web-2", "10.0.0.2", 80, HealthStatus::Passing);
    let line = timeout(PATIENCE, log.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("waiting: "), "{line}");
    assert!(!fs::read_to_string(path("web.cfg")).unwrap().contains("web-2"));
    fs::remove_file(path("maintenance")).unwrap();
    until(&path("web.cfg"), "web-2 10.0.0.2:80").await;

    kill(Pid::from_raw(child.id().unwrap().try_into().unwrap()), Signal::SIGINT).unwrap();
    assert!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
}
