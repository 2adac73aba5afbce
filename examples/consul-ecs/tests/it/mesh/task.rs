//! What ECS gives to the containers of a task: a volume, variables, metadata.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use wiremock::{Mock, MockServer, Request, ResponseTemplate, matchers::path};

const LOG: &str = "containers.log";

/// One task. Its containers are the processes that it starts.
pub(crate) struct EcsTask {
    volume: TempDir,
    metadata: MockServer,
    document: Arc<Mutex<Value>>,
    vars: Vec<(String, String)>,
}

impl EcsTask {
    /// A task that is starting: `web` is the application.
    pub(crate) async fn start() -> Self {
        let containers = ["consul-ecs-mesh-init", "sidecar-proxy", "web"].map(|name| {
            json!({"Name": name, "Type": "NORMAL", "DesiredStatus": "RUNNING", "KnownStatus": "PENDING"})
        });
        let document = Arc::new(Mutex::new(json!({
            "Cluster": "test", "Family": "Web", "Containers": containers,
            "TaskARN": "arn:aws:ecs:us-east-1:123456789:task/test/abcdef",
        })));
        let metadata = MockServer::start().await;
        let answer = Arc::clone(&document);
        Mock::given(path("/task"))
            .respond_with(move |_: &Request| {
                ResponseTemplate::new(200).set_body_json(&*answer.lock().unwrap())
            })
            .mount(&metadata)
            .await;
        let vars = vec![("ECS_CONTAINER_METADATA_URI_V4".to_owned(), metadata.uri())];
        Self { volume: tempfile::tempdir().unwrap(), metadata, document, vars }
    }

    pub(crate) fn set_var(&mut self, name: &str, value: impl Into<String>) {
        self.vars.push((name.to_owned(), value.into()));
    }

    /// A file of the volume that the containers share.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.volume.path().join(name)
    }

    /// Sets what ECS says of the application.
    pub(crate) fn application(&self, status: &str, health: &str) {
        let mut document = self.document.lock().unwrap();
        let web = &mut document["Containers"][2];
        web["KnownStatus"] = json!(status);
        web["DesiredStatus"] = json!(status);
        web["Health"] = json!({"status": health});
    }

    /// How often the metadata was asked for.
    pub(crate) async fn metadata_polls(&self) -> usize {
        self.metadata.received_requests().await.unwrap().len()
    }

    /// Sets all that ECS says.
    pub(super) fn describe(&self, document: Value) {
        *self.document.lock().unwrap() = document;
    }

    /// A container's command, with the task's variables.
    pub(super) fn command(&self, program: PathBuf, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.envs(self.vars.iter().cloned()).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// A container of the image.
    pub(super) fn image(&self, arguments: &[&str]) -> Command {
        self.command(PathBuf::from(env!("CARGO_BIN_EXE_consul-ecs")), arguments)
    }

    /// Runs a container of the image to its end, and gives its exit code and log.
    pub(crate) async fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.image(arguments).output().await.unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// What the started containers have said.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.file(LOG)).unwrap_or_default()
    }

    /// Starts a container with the program that mesh-init left in the volume.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Container {
        let mut command = self.command(self.file("consul-ecs"), arguments);
        let log = File::options().create(true).append(true).open(self.file(LOG)).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        Container(command.spawn().unwrap())
    }

    /// Starts the proxy's container, with the bootstrap that mesh-init left in the volume.
    pub(super) fn spawn_envoy(&self, envoy: &Path) -> Container {
        let bootstrap = self.file("envoy-bootstrap.json");
        self.spawn(&[
            "envoy-entrypoint",
            envoy.to_str().unwrap(),
            "--config-path",
            bootstrap.to_str().unwrap(),
            // Every Envoy of this machine wants the same port for its admin interface.
            "--config-yaml",
            "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}",
            "--disable-hot-restart",
            "--concurrency",
            "1",
        ])
    }
}

/// A running container.
pub(crate) struct Container(Child);

impl Container {
    /// What ECS does first to end a task.
    pub(crate) fn terminate(&self) {
        let pid = i32::try_from(self.0.id().unwrap()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
    }

    pub(crate) async fn exit_code(mut self) -> Option<i32> {
        self.0.wait().await.unwrap().code()
    }
}

/// A port of 127.0.0.1 that nothing listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
