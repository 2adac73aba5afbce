//! The `resource-server` process.

use std::{
    ffi::OsString,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Output, Stdio},
};

use resource_store::{
    Code, GrpcClient, GrpcClientConfig, Resource, ResourceClient as _, ResourceData as _, RpcError,
    demo, pb,
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::PATIENCE;

/// A server on a free port that is killed when this is dropped.
pub(crate) struct ResourceServer {
    pub(crate) address: String,
    process: Child,
}

impl ResourceServer {
    pub(crate) async fn start() -> Self {
        Self::start_with(&["127.0.0.1:0".into()]).await
    }

    pub(crate) async fn start_with(arguments: &[OsString]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_resource-server"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        let line = line.unwrap();
        let address = line.strip_prefix("listening at ").unwrap().to_owned();
        Self { address, process }
    }

    pub(crate) async fn start_on(folder: &Path) -> Self {
        Self::start_with(&on(folder)).await
    }

    /// Ends it at once, with what it is about to do.
    pub(crate) async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }

    /// Asks it to stop, and waits for it.
    pub(crate) async fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.process.id().unwrap().try_into().unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let status = timeout(PATIENCE, self.process.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) fn client(&self) -> GrpcClient {
        GrpcClient::new(&GrpcClientConfig::new(&format!("http://{}", self.address))).unwrap()
    }
}

/// The arguments of a server that keeps its resources in a folder.
fn on(folder: &Path) -> Vec<OsString> {
    vec!["--listen".into(), "127.0.0.1:0".into(), "--data-dir".into(), folder.into()]
}

pub(crate) async fn called(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_resource-server"));
    timeout(PATIENCE, command.args(arguments).kill_on_drop(true).output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_call_that_is_not_right_says_how() {
    for help in ["-h", "-help", "--help"] {
        let output = called(&[help]).await;
        assert_eq!(output.status.code(), Some(0), "{help}");
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("Usage: resource-server [OPTIONS] [ADDRESS]\n"), "{said}");
        assert!(said.contains("--data-dir <DIR>"), "{said}");
    }
    let cases = [
        (vec!["--port"], "error: unexpected argument '--port' found"),
        (vec!["a", "b"], "error: the subcommand 'b' cannot be used with '[ADDRESS]'"),
        (vec!["a", "--listen", "b"], "error: the argument '[ADDRESS]' cannot be used with"),
        (vec!["--sync", "never"], "error: the following required arguments were not provided:"),
        (
            vec!["--data-dir", "d", "--sync", "often"],
            "error: invalid value 'often' for '--sync <WHEN>': ",
        ),
    ];
    for (arguments, text) in cases {
        let output = called(&arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(text), "{said}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let server = ResourceServer::start().await;
    let output = called(&[&server.address]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("cannot listen at {}: Address already in use", server.address);
    assert!(said.starts_with(&expected), "{said}");
}

async fn put(server: &ResourceServer, name: &str) -> pb::Resource {
    server.client().write(demo::artist(name).encode()).await.unwrap()
}

async fn get(server: &ResourceServer, resource: &pb::Resource) -> Result<pb::Resource, RpcError> {
    server.client().read(resource.id.clone().unwrap()).await
}

#[tokio::test]
async fn resources_in_a_folder_outlive_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made");
    let server = ResourceServer::start_on(&folder).await;
    let stored = put(&server, "korn").await;
    server.stop().await;
    let server = ResourceServer::start_on(&folder).await;
    let read = get(&server, &stored).await.unwrap();
    // Its controller may have set a status since.
    assert_eq!((read.id, read.data), (stored.id, stored.data));

    let output = called(&["--listen", "127.0.0.1:0", "--data-dir", folder.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!(
        "open failed: {} is in use by another process, and only one may have it open\n",
        folder.join("resources.redb").display()
    );
    assert_eq!(said, expected);
}

/// What an import must keep.
fn lasting(resource: pb::Resource) -> pb::Resource {
    pb::Resource { version: String::new(), ..resource }
}

#[tokio::test]
async fn resources_move_from_memory_to_a_folder_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let memory = ResourceServer::start().await;
    let label = demo::v1::RecordLabel { name: "x".to_owned(), ..Default::default() };
    let label = Resource::new(pb::Tenancy::new("default", ""), "label", label).encode();
    let label = memory.client().write(label).await.unwrap();
    let file = path("export");
    let done = called(&["export", "--server", &memory.address, &file]).await;
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8(done.stderr).unwrap(), "1 resources exported\n");
    memory.kill().await;

    let nothing = called(&["export", "--data-dir", &path("typo"), &file]).await;
    let said = String::from_utf8(nothing.stderr).unwrap();
    assert!(said.starts_with("there is no store to export: "), "{said}");
    assert!(!Path::new(&path("typo")).exists());

    let (first, second) = (path("first"), path("second"));
    let done = called(&["import", "--data-dir", &first, &file]).await;
    assert_eq!(String::from_utf8(done.stdout).unwrap(), "1 resources imported\n");
    let again = called(&["import", "--data-dir", &first, &file]).await;
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(said.starts_with("the store holds resources; --replace"), "{said}");

    let file = path("export-2");
    // Left by an export that was killed, and readable by all.
    std::fs::write(format!("{file}.part"), "a part").unwrap();
    assert!(called(&["export", "--data-dir", &first, &file]).await.status.success());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it is for its owner only");
    assert!(called(&["import", "--data-dir", &second, &file]).await.status.success());
    let server = ResourceServer::start_on(Path::new(&second)).await;
    let moved = get(&server, &label).await.unwrap();
    assert_eq!(lasting(moved.clone()), lasting(label.clone()));
    // The version of before is refused, that of now is not.
    let refused = server.client().write(label).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    server.client().write(moved).await.unwrap();
    server.stop().await;

    let sound = std::fs::read(&file).unwrap();
    std::fs::write(&file, &sound[..sound.len() - 1]).unwrap();
    let cut = called(&["import", "--replace", "--data-dir", &second, &file]).await;
    let said = String::from_utf8(cut.stderr).unwrap();
    assert_eq!(cut.status.code(), Some(1));
    assert!(said.starts_with(&format!("{file}: the export ends at byte ")), "{said}");
    let server = ResourceServer::start_on(Path::new(&second)).await;
    assert!(server.client().list(labels()).await.unwrap().len() == 1, "nothing changed");
}

fn labels() -> pb::ListRequest {
    pb::ListRequest {
        r#type: Some(demo::v1::RecordLabel::resource_type()),
        tenancy: Some(pb::Tenancy::new("default", "")),
        name_prefix: String::new(),
    }
}

#[tokio::test]
async fn a_transfer_that_cannot_be_says_why() {
    let cases = [
        (vec!["export", "f"], "error: the following required arguments were not provided:"),
        (vec!["import", "/no/such/file"], "/no/such/file cannot be read: No such file"),
        (vec!["import", "/dev/null"], "importing needs a store that lasts: give --data-dir"),
    ];
    for (arguments, text) in cases {
        let output = called(&arguments).await;
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with(text), "{said}");
    }
}
