//! A program of your own, with a driver of your own.

use std::process::ExitCode;

use cts_ha::tasks::HighAvailabilityKind;
use cts_tasks::program::Program;
use custom_driver::HaproxyKind;

fn main() -> ExitCode {
    let program = Program::new("haproxy-sync", env!("CARGO_PKG_VERSION"));
    program.driver(HaproxyKind).cluster(HighAvailabilityKind).run()
}
