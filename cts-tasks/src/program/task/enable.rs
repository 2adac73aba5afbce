//! `task enable`: shows what a run would change and asks, if it would change anything.

use std::io;

use crate::{FirstRun, client::Client};

use super::{
    Wording, approve_plan, failed, generating_plan, plan::tell_if_one_waits, show_plan,
    unless_approved, with_progress,
};
use crate::program::{Program, arguments::ApprovedFlags, exit::Exit, output::Terminal};

/// Enables a task. One that would change something is run, too.
pub(super) async fn enable(
    program: &Program,
    flags: &ApprovedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.named.name();
    terminal.info(&format!("Inspecting changes to resource if enabling '{name}'..."))?;
    terminal.blank()?;
    terminal.say(&generating_plan(program))?;
    terminal.blank()?;
    let inspecting = client.inspect_enabled(name, true);
    let inspected = match with_progress(name, client, terminal, inspecting).await? {
        Ok(inspected) => inspected.value,
        Err(error) => {
            let what = format!("unable to generate plan for '{name}'");
            return failed(&what, &error, Wording::Update, terminal);
        }
    };
    show_plan(&inspected, terminal)?;
    let mut first_run = FirstRun::WhenTriggered;
    if inspected.changes_present {
        if !flags.approval.auto_approve {
            let approval = approve_plan("Enabling", name, terminal)?;
            let cancelled = format!("Cancelled enabling task '{name}'");
            if let Some(exit) = unless_approved(approval, &cancelled, terminal)? {
                return Ok(exit);
            }
        }
        terminal.info(&format!("Enabling and running '{name}'..."))?;
        terminal.blank()?;
        first_run = FirstRun::Now;
    }
    let enabling = client.set_enabled(name, true, first_run);
    match with_progress(name, client, terminal, enabling).await? {
        Ok(_) => {
            terminal.info(&format!("'{name}' enable complete!"))?;
            if first_run == FirstRun::Now {
                tell_if_one_waits(program, name, client, terminal).await?;
            }
            Ok(Exit::Ok)
        }
        Err(error) => {
            failed(&format!("unable to enable '{name}'"), &error, Wording::Update, terminal)
        }
    }
}
