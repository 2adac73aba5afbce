//! What goes wrong for `consul-ecs mesh-init`: Consul is away, the volume is of no use, ECS ends the
//! task.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use consul_watch::{
    QueryOptions,
    testing::{ServedConsul, TestConsul, parts::Suite},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    net::{TcpSocket, TcpStream},
    process::{Child, ChildStderr, Command},
    time::sleep,
};

use super::task::EcsTask;

const SUITE: Suite = Suite("consul-ecs in trouble");

/// A task with an agent at this address.
async fn task(address: &str) -> EcsTask {
    let mut task = EcsTask::start().await;
    let config = json!({"bootstrapDir": task.file(""), "service": {"port": 8080}});
    task.set_var("CONSUL_ECS_CONFIG_JSON", config.to_string());
    task.set_var("CONSUL_HTTP_ADDR", address);
    task
}

/// A port that nobody can take, and at which nobody listens yet.
fn held_port() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// Passes connections on to a Consul, as long as the test runs.
fn open(socket: TcpSocket, consul: &ServedConsul) {
    let listener = socket.listen(16).unwrap();
    let to = consul.address();
    tokio::spawn(async move {
        while let Ok((mut near, _peer)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
}

/// A mesh-init that runs, with its log.
struct Running {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Running {
    fn start(task: &EcsTask) -> Self {
        let mut command = task.image(&["mesh-init"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log }
    }

    /// The next line of the log that has this text.
    async fn says(&mut self, text: &str) -> String {
        while let Some(line) = self.log.next_line().await.unwrap() {
            if line.contains(text) {
                return line;
            }
        }
        panic!("the log has ended without {text:?}");
    }

    fn terminate(&self) {
        if let Some(pid) = self.child.id() {
            kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGTERM).unwrap();
        }
    }

    /// The exit code; `None` when a signal ended it.
    async fn code(&mut self) -> Option<i32> {
        let mut rest = String::new();
        self.log.get_mut().read_to_string(&mut rest).await.unwrap();
        self.child.wait().await.unwrap().code()
    }
}

#[tokio::test]
async fn a_consul_that_is_down_is_waited_for_and_said_once() {
    let (socket, address) = held_port();
    let task = task(&address).await;
    let mut running = Running::start(&task);
    let line = running.says("registering failed; retrying").await;
    assert_eq!(line.matches("Connection refused").count(), 1, "{line}");
    assert!(line.contains("registering web-abcdef") && line.contains(&address), "{line}");

    let consul = TestConsul::new().serve().await.unwrap();
    open(socket, &consul);
    running.says("successfully initialized").await;
    assert_eq!(running.code().await, Some(0));
    let services = consul.client().agent_services(&QueryOptions::default()).await.unwrap();
    assert_eq!(services.len(), 2);
}

#[tokio::test]
async fn a_termination_ends_the_wait_for_consul() {
    let (_socket, address) = held_port();
    let task = task(&address).await;
    let mut running = Running::start(&task);
    running.says("registering failed; retrying").await;
    running.terminate();
    running.says("registering: stopped before it was done").await;
    assert_eq!(running.code().await, Some(1));
    assert!(!task.file("envoy-bootstrap.json").exists());
}

#[tokio::test]
async fn a_task_without_a_name_or_an_id_is_not_registered() {
    let consul = TestConsul::new().serve().await.unwrap();
    let task = task(&consul.address()).await;
    for (document, missing) in
        [(json!({}), "TaskARN"), (json!({"TaskARN": "arn:aws:ecs:us-east-1:1:task/t/a"}), "Family")]
    {
        task.describe(document);
        let (code, log) = task.run(&["mesh-init"]).await;
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains("ERROR") && log.contains(missing), "{log}");
    }
    let services = consul.client().agent_services(&QueryOptions::default()).await.unwrap();
    assert!(services.is_empty(), "{services:?}");
}

/// Each file is whole, with its mode, or is not there; nothing else is left in the volume.
fn is_sound(task: &EcsTask) -> usize {
    use std::os::unix::fs::PermissionsExt as _;
    let mut names: Vec<_> = fs::read_dir(task.file(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in &names {
        let path = task.file(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        match name.as_str() {
            "envoy-bootstrap.json" => {
                let text = fs::read_to_string(&path).unwrap();
                let document: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(
                    (&document["node"]["id"], mode),
                    (&json!("web-abcdef-sidecar-proxy"), 0o444)
                );
            }
            "consul-ecs" => {
                let image = fs::metadata(env!("CARGO_BIN_EXE_consul-ecs")).unwrap();
                assert_eq!((fs::metadata(&path).unwrap().len(), mode), (image.len(), 0o755));
            }
            other => panic!("{other} was left in the volume"),
        }
    }
    names.len()
}

/// ECS may end the task at any moment: from before the first line to after the last.
#[tokio::test]
async fn a_termination_at_any_moment_leaves_whole_files_or_none() {
    let consul = TestConsul::new().serve().await.unwrap();
    let mut ends = Vec::new();
    let mut moment = 0;
    // Until a run was done before its end came: then every step of a run was met.
    while ends.last() != Some(&Some(0)) {
        let task = task(&consul.address()).await;
        let mut running = Running::start(&task);
        sleep(Duration::from_millis(moment)).await;
        running.terminate();
        let code = running.code().await;
        let files = is_sound(&task);
        assert!(code != Some(0) || files == 2, "{code:?} with {files} files");
        ends.push(code);
        moment += 1 + moment / 5;
    }
    // Before the signal is handled the process just ends; then it says that it was stopped.
    assert!(ends.iter().all(|code| matches!(code, None | Some(0 | 1))), "{ends:?}");
    assert!(ends.contains(&Some(1)), "{ends:?}");
}

/// A shell in a mount namespace of its own, where `script` prepares the volume `$1` and then runs
/// mesh-init as `"$2"`; what it prints at the end is what it left.
async fn on_a_volume(task: &EcsTask, case: &str, script: &str) -> Option<(String, String)> {
    let unshare = |command: &mut Command| {
        command.args(["--mount", "--map-root-user"]);
    };
    let mut can = Command::new("unshare");
    unshare(&mut can);
    can.args(["mount", "-t", "tmpfs", "none", "/mnt"]).stderr(Stdio::null());
    if !can.status().await.is_ok_and(|status| status.success()) {
        SUITE.not_applicable("mount", case, "no mount namespace can be made here");
        return None;
    }
    let mut command = task.command(PathBuf::from("unshare"), &[]);
    unshare(&mut command);
    let volume = task.file("");
    command.args(["sh", "-c", script, "sh"]).arg(volume).arg(env!("CARGO_BIN_EXE_consul-ecs"));
    let output = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&output.stdout), text(&output.stderr)))
}

#[tokio::test]
async fn a_volume_of_no_use_is_named_and_keeps_no_half_file() {
    let consul = TestConsul::new().serve().await.unwrap();
    let cases = [
        (
            "a full volume",
            "mount -t tmpfs -o size=64k none $1 && { \"$2\" mesh-init; echo $?; ls -A $1 | grep -v envoy-bootstrap.json; }",
            "No space left on device",
        ),
        (
            "a read-only volume",
            "mount -t tmpfs none $1 && mount -o remount,ro $1 && { \"$2\" mesh-init; echo $?; ls -A $1; }",
            "Read-only file system",
        ),
        (
            "a volume of someone else",
            "mount -t tmpfs -o mode=0555 none $1 && { setpriv --bounding-set=-dac_override \"$2\" mesh-init; echo $?; ls -A $1; }",
            "Permission denied",
        ),
    ];
    for (case, script, problem) in cases {
        let task = task(&consul.address()).await;
        let Some((printed, log)) = on_a_volume(&task, case, script).await else { return };
        assert_eq!(printed, "1\n", "{case}: {log}");
        let last = log.lines().last().unwrap_or_default();
        let place = task.file("").display().to_string();
        assert!(last.contains("ERROR") && last.contains(&place), "{case}: {log}");
        assert_eq!(last.matches(problem).count(), 1, "{case}: {log}");
    }
}
