//! `task create`: shows what the first run would change, asks, and creates the task.

use std::{io, path::Path};

use crate::{
    Config, FirstRun,
    client::Client,
    config::Loader,
    wire::{TaskDocument, TaskMessage},
};

use super::{
    Wording, approve_plan, failed, generating_plan, plan::tell_if_one_waits, show_plan,
    unless_approved, with_progress,
};
use crate::program::{Program, arguments::CreateFlags, exit::Exit, output::Terminal};

/// Creates the task of a file, and runs it.
pub(super) async fn create(
    program: &Program,
    flags: &CreateFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let Some(task) = read(program, flags, terminal)? else { return Ok(Exit::Error) };
    let name = &task.name;
    terminal.info(&format!("Inspecting changes to resource if creating task '{name}'..."))?;
    terminal.blank()?;
    terminal.say(&generating_plan(program))?;
    terminal.blank()?;
    let inspecting = client.inspect_new_task(&task);
    let inspected = match with_progress(name, client, terminal, inspecting).await? {
        Ok(inspected) => inspected,
        Err(error) => {
            let what = format!("unable to generate plan for '{name}'");
            return failed(&what, &error, Wording::Lifecycle, terminal);
        }
    };
    terminal.say(&format!("Request ID: {}", id(inspected.request_id.as_deref())))?;
    terminal.say("Request Payload:")?;
    terminal.blank()?;
    let shown = TaskDocument { env: task.env.masked(), ..task.clone() };
    let payload = serde_json::to_string_pretty(&TaskMessage { task: shown })?;
    for line in payload.lines() {
        terminal.raw(&format!("    {line}"))?;
    }
    terminal.blank()?;
    terminal.raw("    Plan: ")?;
    terminal.blank()?;
    show_plan(&inspected.value, terminal)?;
    if !flags.approval.auto_approve {
        let approval = approve_plan("Creating", name, terminal)?;
        let cancelled = format!("Cancelled creating task '{name}'");
        if let Some(exit) = unless_approved(approval, &cancelled, terminal)? {
            return Ok(exit);
        }
    }
    terminal.info(&format!("Creating and running task '{name}'..."))?;
    terminal
        .say("This may take some time. The daemon goes on with it, even if this command ends.")?;
    terminal.blank()?;
    let creating = client.create_task(&task, FirstRun::Now);
    match with_progress(name, client, terminal, creating).await? {
        Ok(created) => {
            terminal.info(&format!("Task '{name}' created"))?;
            terminal.say(&format!("Request ID: '{}'", id(created.request_id.as_deref())))?;
            tell_if_one_waits(program, name, client, terminal).await?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            failed(&format!("unable to create '{name}'"), &error, Wording::Lifecycle, terminal)
        }
    }
}

/// The task of the file; `None` if there is none that can be sent, which is then reported.
fn read(
    program: &Program,
    flags: &CreateFlags,
    terminal: &mut Terminal<'_>,
) -> io::Result<Option<TaskDocument>> {
    let task = match Loader::new(program.registry.clone())
        .load_task(flags.task_file.as_deref().unwrap_or(Path::new("")))
    {
        Ok(task) => task,
        Err(findings) => {
            terminal.error("unable to create request", "")?;
            for finding in findings {
                writeln!(terminal.errors, "\n{}", finding.render())?;
            }
            return Ok(None);
        }
    };
    if task.module.starts_with("./") || task.module.starts_with("../") {
        terminal.warn(&format!(
            "the module '{}' is looked for from the daemon's working directory, not from this one",
            task.module
        ))?;
    }
    // The API has no such field.
    if task.working_dir != Config::default().working_dir.join(task.name.as_str()) {
        terminal.warn(
            "working_dir has no effect here: the daemon gives each task that is created a folder \
             below its own working_dir. A task of the daemon's configuration may have one.",
        )?;
    }
    Ok(Some(TaskDocument::request(&task)))
}

fn id(id: Option<&str>) -> &str {
    id.unwrap_or("unknown")
}
