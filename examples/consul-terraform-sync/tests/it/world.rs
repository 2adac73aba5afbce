//! What the tests of commands work with, and an operator who gives commands.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Output, Stdio},
};

use consul_watch::{
    Client,
    testing::{
        ServedConsul, TestConsul,
        parts::{Suite, find},
        real::Consul,
    },
};
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::{parts, sync::SyncProcess};

/// What the daemon works with; both are kept alive.
pub(crate) enum World {
    Real(Consul),
    Double(ServedConsul),
}

impl World {
    /// The real parts if they are all there, else doubles.
    pub(crate) async fn new(suite: &'static str) -> Self {
        let terraform = ["terraform", "tofu"].into_iter().any(|name| find(name).is_some());
        let required = std::env::var("REAL_PARTS").is_ok_and(|value| value == "required");
        if (required || (terraform && find("consul").is_some()))
            && let Some(consul) = parts::consul_and_terraform(suite).await
        {
            return Self::Real(consul);
        }
        Suite(suite).double("consul");
        Suite(suite).double("terraform");
        Self::Double(TestConsul::new().serve().await.unwrap())
    }

    pub(crate) fn address(&self) -> String {
        match self {
            Self::Real(consul) => consul.address(),
            Self::Double(consul) => consul.address(),
        }
    }

    pub(crate) fn client(&self) -> Client {
        match self {
            Self::Real(consul) => consul.client(),
            Self::Double(consul) => consul.client(),
        }
    }

    /// The double of Terraform comes first on the path, where it is used.
    pub(crate) fn set_path(&self, command: &mut Command) {
        if matches!(self, Self::Double(_)) {
            command.env("PATH", double_path());
        }
    }
}

/// The path with the double of Terraform before all else.
pub(crate) fn double_path() -> OsString {
    let double = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/double");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(double).chain(std::env::split_paths(&path));
    std::env::join_paths(paths).unwrap()
}

/// A task that keeps the ids of its instances in `<folder>/<name>/instances`,
/// and takes as many seconds as `<folder>/<name>/seconds` says, or two.
pub(crate) fn slow_task(folder: &Path, name: &str, service: &str) -> String {
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/slow");
    let place = folder.join(name);
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("seconds"), "2").unwrap();
    let variables = folder.join(format!("{name}.tfvars"));
    fs::write(&variables, format!("folder = \"{}\"\n", place.display())).unwrap();
    format!(
        "task {{\n  name = \"{name}\"\n  module = \"{}\"\n  variable_files = [\"{}\"]\n  \
         condition \"services\" {{\n    names = [\"{service}\"]\n  }}\n}}\n",
        module.display(),
        variables.display()
    )
}

pub(crate) fn applied(folder: &Path, task: &str) -> String {
    let text = fs::read_to_string(folder.join(task).join("instances")).unwrap_or_default();
    text.trim().to_owned()
}

/// What a command said, and how it ended.
pub(crate) struct Transcript {
    pub(crate) code: Option<i32>,
    pub(crate) said: String,
    pub(crate) complained: String,
}

/// Runs a command as an operator does who answers `input`.
pub(crate) async fn operate(
    sync: &SyncProcess,
    folder: &Path,
    arguments: &[&str],
    input: &str,
) -> Transcript {
    let address = sync.address().unwrap();
    operate_with(folder, arguments, input, &[("CTS_ADDRESS", &address)]).await
}

/// As [`operate`], with only these variables of its own.
pub(crate) async fn operate_with(
    folder: &Path,
    arguments: &[&str],
    input: &str,
    variables: &[(&str, &str)],
) -> Transcript {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consul-terraform-sync"));
    command
        .args(arguments)
        .current_dir(folder)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command that asks nothing may have ended already.
    if let Err(error) = stdin.write_all(input.as_bytes()).await {
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    }
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().await.unwrap();
    Transcript {
        code: status.code(),
        said: String::from_utf8(stdout).unwrap(),
        complained: String::from_utf8(stderr).unwrap(),
    }
}
