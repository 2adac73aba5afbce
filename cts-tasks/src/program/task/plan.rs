//! Plans that wait until a person approves them.

use std::io;

use crate::{client::Client, wire::PlanDocument};

use super::{Wording, failed, unless_approved, with_progress};
use crate::program::{
    Program,
    arguments::{ApprovedFlags, NamedFlags},
    exit::Exit,
    output::{Approval, Terminal},
};

/// Shows the plan of a task that waits.
pub(super) async fn show(
    flags: &NamedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    Ok(match find(flags.name(), client, terminal).await? {
        Ok(_) => Exit::Ok,
        Err(exit) => exit,
    })
}

/// Applies the plan of a task that waits, and nothing in its place.
pub(super) async fn approve(
    flags: &ApprovedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.named.name();
    let plan = match find(name, client, terminal).await? {
        Ok(plan) => plan,
        Err(exit) => return Ok(exit),
    };
    if !flags.approval.auto_approve {
        let approval = ask(name, terminal)?;
        let cancelled = format!("Cancelled approving the plan of task '{name}'");
        if let Some(exit) = unless_approved(approval, &cancelled, terminal)? {
            return Ok(exit);
        }
    }
    terminal.info(&format!("Applying the plan of '{name}'..."))?;
    terminal.blank()?;
    let approving = client.approve_plan(name, &plan.id);
    match with_progress(name, client, terminal, approving).await? {
        Ok(_) => {
            terminal.info(&format!("'{name}' approve complete!"))?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            let what = format!("unable to approve the plan of '{name}'");
            failed(&what, &error, Wording::Update, terminal)
        }
    }
}

/// Forgets the plan of a task that waits.
pub(super) async fn discard(
    flags: &NamedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.name();
    let plan = match find(name, client, terminal).await? {
        Ok(plan) => plan,
        Err(exit) => return Ok(exit),
    };
    match client.discard_plan(name, &plan.id).await {
        Ok(_) => {
            terminal.info(&format!("'{name}' discard complete!"))?;
            terminal.say("The next run of the task makes a new plan.")?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            let what = format!("unable to discard the plan of '{name}'");
            failed(&what, &error, Wording::Update, terminal)
        }
    }
}

/// The plan that waits, once it was shown.
async fn find(
    name: &str,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Result<PlanDocument, Exit>> {
    let plan = match client.waiting_plan(name).await {
        Ok(plan) => plan,
        Err(error) => {
            let what = format!("unable to find a plan of '{name}' that waits for approval");
            return failed(&what, &error, Wording::Update, terminal).map(Err);
        }
    };
    let since = plan.since.format("%Y-%m-%d %H:%M:%S %z");
    terminal.info(&format!("A plan of '{name}' waits for approval since {since}"))?;
    terminal.say(&format!("It waits because {}.", plan.objection))?;
    terminal.say(&format!("Plan ID: {}", plan.id))?;
    terminal.blank()?;
    terminal.raw(plan.text.trim_matches('\n'))?;
    terminal.blank()?;
    if let Some(url) = &plan.url {
        terminal.say(&format!("See also {url}"))?;
        terminal.blank()?;
    }
    Ok(Ok(plan))
}

fn ask(name: &str, terminal: &mut Terminal<'_>) -> io::Result<Approval> {
    terminal.info("Approving the plan will perform the actions described above.")?;
    terminal.say(&format!("Do you want to perform these actions for '{name}'?"))?;
    terminal.say(" - They cannot be taken back.")?;
    terminal.say(" - Exactly this plan is applied, or nothing if it is out of date by then.")?;
    terminal.approved()
}

/// Tells of a plan that waits after a run was asked for, if there is one.
pub(super) async fn tell_if_one_waits(
    program: &Program,
    name: &str,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    // A daemon that cannot say has said already that the command succeeded.
    let status = client.task_status(name, false).await;
    let Some(plan) = status.ok().and_then(|status| status.waiting_plan) else { return Ok(()) };
    tell_waiting(program, name, plan.as_str(), terminal)
}

/// Tells that nothing was applied, and how to go on.
pub(super) fn tell_waiting(
    program: &Program,
    name: &str,
    plan: &str,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    terminal.warn(&format!("nothing was applied, a plan of '{name}' waits for approval"))?;
    terminal.explain(&format!("Plan ID: {plan}"))?;
    terminal.explain(&format!(
        "'{} task plan {name}' shows it, 'task approve {name}' applies it, and 'task \
         discard {name}' forgets it.",
        program.name
    ))
}
