//! `task delete`, after a question.

use std::io;

use crate::client::Client;

use super::{Wording, failed, unless_approved};
use crate::program::{
    arguments::ApprovedFlags,
    exit::Exit,
    output::{Approval, Terminal},
};

/// Deletes a task; what it has built stays.
pub(super) async fn delete(
    flags: &ApprovedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.named.name();
    if !flags.approval.auto_approve {
        let approval = approve(name, terminal)?;
        let cancelled = format!("Cancelled deleting task '{name}'");
        if let Some(exit) = unless_approved(approval, &cancelled, terminal)? {
            return Ok(exit);
        }
    }
    terminal.info(&format!("Marking task '{name}' for deletion..."))?;
    terminal.blank()?;
    match client.delete_task(name).await {
        Ok(_) => {
            terminal.info(&format!(
                "Task '{name}' has been marked for deletion and will be deleted when not running."
            ))?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            failed(&format!("unable to delete '{name}'"), &error, Wording::Lifecycle, terminal)
        }
    }
}

fn approve(name: &str, terminal: &mut Terminal<'_>) -> io::Result<Approval> {
    terminal.info(&format!("Do you want to delete '{name}'?"))?;
    terminal.say(" - This cannot be taken back.")?;
    terminal.say(" - The infrastructure that the task manages is not destroyed.")?;
    terminal.say(" - A task that does not run is deleted at once.")?;
    terminal.say(" - A task that runs is deleted as soon as the run has ended.")?;
    terminal.approved()
}
