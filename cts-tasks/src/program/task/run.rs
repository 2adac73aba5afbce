//! `task run`: runs a task at once and waits for the end.

use std::io;

use crate::client::Client;

use super::{Wording, failed, plan::tell_waiting, with_progress};
use crate::program::{Program, arguments::NamedFlags, exit::Exit, output::Terminal};

/// Runs a task now, whether or not anything has changed, and waits for the end.
pub(super) async fn run(
    program: &Program,
    flags: &NamedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.name();
    terminal.info(&format!("Running '{name}'..."))?;
    terminal.blank()?;
    match with_progress(name, client, terminal, client.run_task(name)).await? {
        Ok(ran) => match ran.value.waiting_plan {
            None => {
                terminal.info(&format!("'{name}' run complete!"))?;
                Ok(Exit::Ok)
            }
            Some(plan) => {
                tell_waiting(program, name, plan.as_str(), terminal)?;
                Ok(Exit::Waiting)
            }
        },
        Err(error) => failed(&format!("unable to run '{name}'"), &error, Wording::Update, terminal),
    }
}
