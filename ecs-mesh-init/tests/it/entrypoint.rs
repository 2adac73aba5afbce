//! Programs run as a container's first process. A script says through a pipe when it is ready for
//! signals, and is told through another to end.

use std::{ffi::OsString, fs, path::PathBuf, process::Command, time::Duration};

use ecs_mesh_init::{
    Error, Result,
    config::Generation,
    entrypoint::{AppOptions, SignalNumber, Signals, run_app, run_envoy},
    net_dial::net_dial,
    testing::TestTaskMetadata,
};
use tempfile::TempDir;
use tokio::sync::mpsc;

const TASK: &[u8] = br#"{"Containers":[{"Name":"consul-dataplane","Type":"NORMAL","DesiredStatus":"RUNNING","KnownStatus":"RUNNING"},
    {"Name":"pause","Type":"CNI_PAUSE","DesiredStatus":"RUNNING","KnownStatus":"RUNNING"},
    {"Name":"app","Type":"NORMAL","DesiredStatus":"RUNNING","KnownStatus":"RUNNING"}]}"#;

/// A script with two pipes.
struct Script {
    folder: TempDir,
}

impl Script {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ready", "end"] {
            assert!(
                Command::new("mkfifo").arg(folder.path().join(name)).status().unwrap().success()
            );
        }
        Self { folder }
    }

    fn pipe(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends with 42 after INT, 55 after TERM, 7 when it is told to.
    fn command(&self) -> Vec<OsString> {
        let script = format!(
            "trap 'exit 42' INT; trap 'exit 55' TERM; (read -r _ <{end}; kill -USR1 $$ 2>/dev/null) & trap 'exit 7' USR1; \
             echo ready >{ready}; while :; do sleep 0.02; done",
            end = self.pipe("end").display(),
            ready = self.pipe("ready").display(),
        );
        ["sh", "-c", &script].map(OsString::from).to_vec()
    }

    async fn is_ready(&self) {
        assert_eq!(tokio::fs::read_to_string(self.pipe("ready")).await.unwrap(), "ready\n");
    }

    /// Tells it to end; also what it left behind ends then.
    fn end(&self) {
        let path = self.pipe("end");
        drop(
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .and_then(|mut pipe| std::io::Write::write_all(&mut pipe, b"end\n")),
        );
    }

    async fn tell_to_end(&self) {
        let path = self.pipe("end");
        tokio::fs::write(path, "end\n").await.unwrap();
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.end();
    }
}

fn sh(script: &str) -> Vec<OsString> {
    ["sh", "-c", script].map(OsString::from).to_vec()
}

async fn envoy(
    command: &[OsString],
    metadata: &TestTaskMetadata,
    signals: &mut dyn Signals,
) -> Result<i32> {
    run_envoy(command, Generation::Current, metadata, Duration::from_millis(5), signals).await
}

/// Case MI36: envoy-entrypoint ignores `SIGTERM` while applications run, forwards other signals,
/// and returns the child's exit code.
#[tokio::test]
async fn envoys_end_is_the_end() {
    let metadata = TestTaskMetadata::new(TASK).unwrap();
    let (_sender, mut signals) = mpsc::channel(1);
    assert_eq!(envoy(&sh("exit 0"), &metadata, &mut signals).await.unwrap(), 0);
    assert_eq!(envoy(&sh("exit 9"), &metadata, &mut signals).await.unwrap(), 9);
    assert_eq!(envoy(&sh("kill -KILL $$"), &metadata, &mut signals).await.unwrap(), 255);
    let error = envoy(&[], &metadata, &mut signals).await.unwrap_err();
    assert_eq!(error.to_string(), "command is required");
    let error = envoy(&["/nowhere/envoy".into()], &metadata, &mut signals).await.unwrap_err();
    assert!(matches!(error, Error::Command { .. }));
}

/// Case MI36: envoy-entrypoint ignores `SIGTERM` while applications run, forwards other signals,
/// and returns the child's exit code.
#[tokio::test]
async fn envoy_outlives_a_termination_while_applications_run() {
    let script = Script::new();
    let metadata = TestTaskMetadata::new(TASK).unwrap();
    let (sender, mut signals) = mpsc::channel(1);
    let command = script.command();
    let running = envoy(&command, &metadata, &mut signals);
    let steps = async {
        script.is_ready().await;
        sender.send(SignalNumber::TERM).await.unwrap();
        metadata.wait_for_calls(3).await;
        script.tell_to_end().await;
    };
    let (code, ()) = tokio::join!(running, steps);
    assert_eq!(code.unwrap(), 7);
}

/// Case MI36: envoy-entrypoint ignores `SIGTERM` while applications run, forwards other signals,
/// and returns the child's exit code.
#[tokio::test]
async fn other_signals_reach_envoy() {
    let script = Script::new();
    let metadata = TestTaskMetadata::new(TASK).unwrap();
    let (sender, mut signals) = mpsc::channel(1);
    let command = script.command();
    let steps = async {
        script.is_ready().await;
        sender.send(SignalNumber::INT).await.unwrap();
    };
    let (code, ()) = tokio::join!(envoy(&command, &metadata, &mut signals), steps);
    assert_eq!((code.unwrap(), metadata.calls()), (42, 0));
}

/// Case MI36: envoy-entrypoint ignores `SIGTERM` while applications run, forwards other signals,
/// and returns the child's exit code.
#[tokio::test]
async fn envoy_is_terminated_when_the_applications_have_stopped() {
    let script = Script::new();
    let metadata = TestTaskMetadata::new(TASK).unwrap();
    let (sender, mut signals) = mpsc::channel(1);
    let command = script.command();
    let steps = async {
        script.is_ready().await;
        sender.send(SignalNumber::TERM).await.unwrap();
        metadata.wait_for_calls(2).await;
        metadata.fail(true);
        metadata.wait_for_calls(2).await;
        metadata.change(|task| {
            let app = task.containers.last_mut().unwrap();
            app.desired_status = "STOPPED".into();
            app.known_status = "STOPPED".into();
        });
        metadata.fail(false);
    };
    let (code, ()) = tokio::join!(envoy(&command, &metadata, &mut signals), steps);
    assert_eq!(code.unwrap(), 55);
    assert!(metadata.calls() >= 3);
}

async fn app(delay: Duration, send: &[SignalNumber], told: bool) -> i32 {
    let script = Script::new();
    let (sender, mut signals) = mpsc::channel(4);
    let command = script.command();
    let steps = async {
        script.is_ready().await;
        for signal in send {
            sender.send(*signal).await.unwrap();
        }
        if told {
            script.tell_to_end().await;
        }
    };
    let (code, ()) = tokio::join!(run_app(&command, AppOptions::after(delay), &mut signals), steps);
    code.unwrap()
}

const LONG: Duration = Duration::from_mins(10);
const SHORT: Duration = Duration::from_millis(20);

/// Case MI37: app-entrypoint delays `SIGTERM`, forwards other signals in each phase, and leaves
/// flags after the command to it.
#[tokio::test]
async fn an_application_may_end_before_or_after_a_termination() {
    assert_eq!(app(SHORT, &[], true).await, 7);
    assert_eq!(app(LONG, &[SignalNumber::TERM], true).await, 7);
    assert_eq!(
        app(Duration::ZERO, &[SignalNumber::TERM], true).await,
        7,
        "without a delay nothing is passed on"
    );
}

/// Case MI37: app-entrypoint delays `SIGTERM`, forwards other signals in each phase, and leaves
/// flags after the command to it.
#[tokio::test]
async fn an_application_is_terminated_after_the_delay() {
    assert_eq!(app(SHORT, &[SignalNumber::TERM], false).await, 55);
}

/// Case MI37: app-entrypoint delays `SIGTERM`, forwards other signals in each phase, and leaves
/// flags after the command to it.
#[tokio::test]
async fn other_signals_reach_the_application_at_any_time() {
    assert_eq!(app(LONG, &[SignalNumber::INT], false).await, 42);
    assert_eq!(app(LONG, &[SignalNumber::TERM, SignalNumber::INT], false).await, 42);
    assert_eq!(app(LONG, &[SignalNumber::TERM, SignalNumber::TERM], false).await, 55);
    assert_eq!(app(Duration::ZERO, &[SignalNumber::TERM, SignalNumber::INT], false).await, 42);
}

/// An application that goes on after the delay's SIGTERM still gets the others.
///
/// Case MI37: app-entrypoint delays `SIGTERM`, forwards other signals in each phase, and leaves
/// flags after the command to it.
#[tokio::test]
async fn other_signals_reach_the_application_after_the_delay() {
    let script = Script::new();
    let (sender, mut signals) = mpsc::channel(1);
    let ready = script.pipe("ready").display().to_string();
    let command = sh(&format!(
        "trap 'echo terminated >{ready}' TERM; trap 'exit 42' INT; echo ready >{ready}; while :; do sleep 0.02; done"
    ));
    let steps = async {
        script.is_ready().await;
        sender.send(SignalNumber::TERM).await.unwrap();
        let said = tokio::fs::read_to_string(script.pipe("ready")).await.unwrap();
        assert_eq!(said, "terminated\n");
        sender.send(SignalNumber::INT).await.unwrap();
    };
    let options = AppOptions::after(SHORT);
    let (code, ()) = tokio::join!(run_app(&command, options, &mut signals), steps);
    assert_eq!(code.unwrap(), 42);
}

/// Case MI38: net-dial exits with 0, 2 or 1 for a port that answers, one that does not, and wrong
/// arguments.
#[tokio::test]
async fn a_port_can_be_connected_to_or_not() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    assert_eq!(net_dial(std::slice::from_ref(&address)).await.unwrap(), 0);
    // Held, so that nobody else listens there, but not listened on.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap().to_string();
    assert_eq!(net_dial(&[address]).await.unwrap(), 2);
    for arguments in [vec![], vec!["a:1".to_owned(), "b:1".to_owned()]] {
        let error = net_dial(&arguments).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid invocation, expected one positional argument: <host>:<port>"
        );
    }
}
