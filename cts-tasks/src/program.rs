//! The command line of a program: arguments, help, exit codes, log, signals, metrics, and
//! the commands that ask a running daemon.

mod arguments;
mod completion;
mod connection;
mod doctor;
mod exit;
mod help;
mod log_format;
mod logging;
mod look;
mod metrics;
mod notify;
mod output;
mod reload;
mod start;
mod syslog;
mod table;
mod task;
mod validate;

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use arguments::Invocation;
use exit::Exit;

use crate::{
    ClusterKind, DriverKind,
    config::{BlockKind, Registry},
};

/// A program with the commands, flags, log lines and exit codes of Consul-Terraform-Sync,
/// and drivers of its own.
///
/// ```no_run
/// # use cts_tasks::{DriverKind, DriverFactory, DriverSettings, Diagnostic};
/// # #[derive(Debug)]
/// # struct HaproxyKind;
/// # impl DriverKind for HaproxyKind {
/// #     fn label(&self) -> &'static str { "haproxy" }
/// #     fn configure(&self, _: DriverSettings<'_>, _: &mut Vec<Diagnostic>)
/// #     -> Result<std::sync::Arc<dyn DriverFactory>, Vec<Diagnostic>> { Err(Vec::new()) }
/// # }
/// use cts_tasks::program::Program;
///
/// fn main() -> std::process::ExitCode {
///     Program::new("my-sync", env!("CARGO_PKG_VERSION")).driver(HaproxyKind).run()
/// }
/// ```
///
/// It starts the runtime, the log and the recorder of metrics by itself, so `main` does
/// nothing else. A configuration chooses among the drivers by `driver "<label>"`; without
/// such a block it means `terraform`.
#[derive(Debug, Clone)]
pub struct Program {
    name: &'static str,
    version: &'static str,
    about: &'static str,
    product: &'static str,
    tool: Option<&'static str>,
    compatible: Vec<String>,
    registry: Registry,
    cluster: Option<Arc<dyn ClusterKind>>,
    log_targets: Vec<String>,
}

impl Program {
    /// Starts a description: `name` is the command's own, as in help and in the log, and
    /// `version` is usually `env!("CARGO_PKG_VERSION")`.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        let log_targets = ["consul_watch", "cts_tasks", "ha", &name.replace('-', "_")];
        Self {
            name,
            version,
            about: "Watches Consul and runs tasks when what they depend on changes.",
            product: name,
            tool: None,
            compatible: Vec::new(),
            registry: Registry::new(),
            cluster: None,
            log_targets: log_targets.map(str::to_owned).to_vec(),
        }
    }

    /// Sets the sentence that the help begins with.
    #[must_use]
    pub fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    /// Sets how texts for the operator call this program (default: its name), and which
    /// tool its drivers run (default: none is named).
    #[must_use]
    pub fn product(mut self, product: &'static str, tool: Option<&'static str>) -> Self {
        self.product = product;
        self.tool = tool;
        self
    }

    /// Adds a driver; of two with one label the later counts.
    #[must_use]
    pub fn driver<K: DriverKind>(mut self, kind: K) -> Self {
        self.compatible.extend(kind.compatible_with());
        self.log_targets.push(crate_of::<K>());
        self.registry = self.registry.driver(Arc::new(kind));
        self
    }

    /// Adds a block at the top of the configuration; of two with one name the later counts.
    #[must_use]
    pub fn block(mut self, kind: impl BlockKind) -> Self {
        self.registry = self.registry.block(Arc::new(kind));
        self
    }

    /// Lets several instances work as one, when the configuration has the block of `kind`.
    #[must_use]
    pub fn cluster<K: ClusterKind + Clone>(mut self, kind: K) -> Self {
        self.log_targets.push(crate_of::<K>());
        self.cluster = Some(Arc::new(kind.clone()));
        self.block(kind)
    }

    /// Runs the command that the process was started with, to its end.
    pub fn run(self) -> ExitCode {
        // A shell asks how the line goes on; see `completion`.
        if let Ok(line) = std::env::var("COMP_LINE") {
            print(&completion::candidates(&self, &line, completion::tasks).join("\n"));
            return Exit::Ok.into();
        }
        self.run_with(std::env::args_os().skip(1)).into()
    }

    fn run_with(&self, arguments: impl IntoIterator<Item = OsString>) -> Exit {
        match Invocation::parse(self, arguments) {
            Ok(Invocation::Version) => {
                print(&arguments::version(self));
                Exit::Ok
            }
            Ok(Invocation::Help(text)) => {
                print(&text);
                Exit::Ok
            }
            Ok(Invocation::Start { flags, legacy }) => start::start(self, flags, legacy),
            Ok(Invocation::Validate(flags)) => validate::validate(self, &flags),
            Ok(Invocation::Task(command)) => task::run_command(self, &command),
            Ok(Invocation::Status(flags)) => look::run_status(self, &flags),
            Ok(Invocation::Doctor(flags)) => doctor::run_command(self, &flags),
            Ok(Invocation::InstallCompletion) => completion::install_for_user(self),
            Ok(Invocation::UninstallCompletion) => completion::uninstall_for_user(self),
            Err(refused) => {
                complain(&refused.message);
                refused.exit
            }
        }
    }
}

/// The crate of a type, which is what its log lines begin with.
fn crate_of<T>() -> String {
    let path = std::any::type_name::<T>();
    path.split_once("::").map_or(path, |(krate, _)| krate).to_owned()
}

#[expect(clippy::print_stdout, reason = "the answer to a command")]
fn print(text: &str) {
    println!("{text}");
}

/// Tells the operator what is wrong.
#[expect(clippy::print_stderr, reason = "for when there is no log yet")]
fn complain(text: &str) {
    eprintln!("{text}");
}

/// The program that the tests of this module are about.
#[cfg(test)]
fn sync() -> Program {
    Program::new("consul-terraform-sync", "0.1.0")
        .product("Consul-Terraform-Sync", Some("Terraform"))
}
