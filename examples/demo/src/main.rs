//! Shows the main job: services that change in Consul become a file of firewall rules.
//!
//! Starts a Consul agent (or the in-process double where there is none) and
//! `consul-terraform-sync` with one task, changes services, and shows after each
//! step what became of the file and how long it took. Run it with `scripts/demo`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a show")]

mod consul;
mod rules;
mod show;
mod sync;

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> ExitCode {
    // Before anything is started, so that it is stopped whenever a signal comes.
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
        eprintln!("demo: cannot wait for signals");
        return ExitCode::FAILURE;
    };
    // Dropping the show stops what it has started and removes its files.
    let code = tokio::select! {
        shown = show::show() => match shown {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("\ndemo: {error}");
                return ExitCode::FAILURE;
            }
        },
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    };
    eprintln!("\ndemo: interrupted; what was started is stopped");
    ExitCode::from(code)
}
