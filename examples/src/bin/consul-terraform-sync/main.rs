//! Consul-Terraform-Sync: runs Terraform when what Consul knows changes.
//!
//! A drop-in for upstream's binary: same files, commands, flags, log lines and
//! exit codes. Needs a Consul agent, and `terraform` or `tofu`. Run it with
//! `cargo run --bin consul-terraform-sync -- start -config-file FILE`.

mod arguments;
mod completion;
mod connection;
mod exit;
mod help;
mod log_format;
mod logging;
mod metrics;
mod output;
mod reload;
mod start;
mod syslog;
mod task;
mod validate;
mod wiring;

use std::process::ExitCode;

use arguments::Invocation;
use exit::Exit;

fn main() -> ExitCode {
    // A shell asks how the line goes on; see `completion`.
    if let Ok(line) = std::env::var("COMP_LINE") {
        print(&completion::candidates(&line, completion::tasks).join("\n"));
        return Exit::Ok.into();
    }
    let exit = match Invocation::parse(std::env::args_os().skip(1)) {
        Ok(Invocation::Version) => {
            print(&arguments::version());
            Exit::Ok
        }
        Ok(Invocation::Help(text)) => {
            print(&text);
            Exit::Ok
        }
        Ok(Invocation::Start { flags, legacy }) => start::start(flags, legacy),
        Ok(Invocation::Validate(flags)) => validate::validate(&flags),
        Ok(Invocation::Task(command)) => task::run_command(&command),
        Ok(Invocation::InstallCompletion) => completion::install_for_user(),
        Ok(Invocation::UninstallCompletion) => completion::uninstall_for_user(),
        Err(refused) => {
            complain(&refused.message);
            refused.exit
        }
    };
    exit.into()
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
