//! `task show`: a task's configuration, state, inputs, last events, and the plan that waits.

use std::io;

use serde::Serialize;

use super::{condition::condition, events::line, first_line, inputs, print_json};
use crate::{
    Action,
    client::{self, Client},
    program::{
        arguments::LookTaskFlags,
        exit::Exit,
        output::Terminal,
        task::{Wording, failed},
    },
    wire::{InputsDocument, PlanDocument, TaskDocument, TaskStatus},
};

/// The JSON document of `task show -json`.
#[derive(Debug, Serialize)]
struct Report {
    task: TaskDocument,
    status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    inputs: Option<InputsDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_plan: Option<PlanDocument>,
}

/// Shows one task.
pub(crate) async fn show(
    flags: &LookTaskFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.named.name();
    let report = match report(name, client).await {
        Ok(report) => report,
        Err(error) => {
            let what = format!("unable to show '{name}'");
            return failed(&what, &error, Wording::Update, terminal);
        }
    };
    if flags.output.json {
        print_json(&report, terminal)?;
    } else {
        print(&report, terminal)?;
    }
    Ok(Exit::Ok)
}

async fn report(name: &str, client: &Client) -> client::Result<Report> {
    let task = client.task(name).await?;
    let status = client.task_status(name, true).await?;
    let waiting_plan = match &status.waiting_plan {
        Some(_) => Some(client.waiting_plan(name).await?),
        None => None,
    };
    // A disabled task reads nothing.
    let inputs = client.task_inputs(name).await.ok();
    Ok(Report { task, status, inputs, waiting_plan })
}

fn print(report: &Report, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let task = &report.task;
    terminal.raw(&format!("Task         {}", task.name))?;
    if !task.description.is_empty() {
        terminal.raw(&format!("Description  {}", task.description))?;
    }
    let enabled = if task.enabled { "enabled" } else { "disabled" };
    terminal.raw(&format!("Status       {}, {enabled}", report.status.status.as_str()))?;
    let version =
        if task.version.is_empty() { String::new() } else { format!(" {}", task.version) };
    if !task.module.is_empty() {
        terminal.raw(&format!("Module       {}{version}", task.module))?;
    }
    if !task.providers.is_empty() {
        terminal.raw(&format!("Providers    {}", task.providers.join(", ")))?;
    }
    terminal.raw(&format!("Runs for     {}", condition(task)))?;
    if task.require_approval {
        terminal.raw("Guard        every plan with changes has to be approved")?;
    } else if let Some(most) = task.max_destroy {
        terminal.raw(&format!(
            "Guard        a plan that destroys more than {most} has to be approved"
        ))?;
    }
    for line in limits(task) {
        terminal.raw(&line)?;
    }
    if let Some(inputs) = &report.inputs {
        terminal.blank()?;
        terminal.raw("Inputs now")?;
        inputs::print(inputs, terminal)?;
    }
    terminal.blank()?;
    terminal.raw("Last runs")?;
    if report.status.events.is_empty() {
        terminal.raw("  none")?;
    }
    for event in &report.status.events {
        terminal.raw(&format!("  {}", line(event)))?;
        if let Some(error) = &event.error {
            terminal.raw(&format!("      {}", first_line(&error.message)))?;
        }
    }
    if let Some(plan) = &report.waiting_plan {
        terminal.blank()?;
        terminal.raw(&format!("Plan {} waits because {}.", plan.id, plan.objection))?;
        terminal.blank()?;
        terminal.raw(plan.text.trim_matches('\n'))?;
        resources(plan, terminal)?;
    }
    Ok(())
}

/// Describes the task's own bounds and variables, one line for each kind that is set.
fn limits(task: &TaskDocument) -> Vec<String> {
    let mut lines = Vec::new();
    let mut bounds = Vec::new();
    bounds.extend(task.timeout.map(|length| format!("a run takes {length} at most")));
    if let Some(retry) = &task.retry {
        let tries = retry.attempts.map_or("tries without end".to_owned(), |count| match count {
            1 => "one try".to_owned(),
            count => format!("{count} tries"),
        });
        let pauses = retry.backoff.zip(retry.max_backoff);
        let pauses = pauses.filter(|_| retry.attempts != Some(1));
        let pauses = pauses.map(|(first, longest)| format!(", {first} to {longest} apart"));
        bounds.push(tries + &pauses.unwrap_or_default());
    }
    bounds.extend(task.shutdown_timeout.map(|length| format!("ends within {length} after a stop")));
    if !bounds.is_empty() {
        lines.push(format!("Limits       {}", bounds.join("; ")));
    }
    if !task.env.is_empty() {
        let names: Vec<&str> = task.env.names().collect();
        lines.push(format!("Environment  {}", names.join(", ")));
    }
    lines
}

/// Prints one line for each resource that the plan would change: the tool's own text may be long
/// or cut, and another driver's may name none.
fn resources(plan: &PlanDocument, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let Some(planned) = plan.resources.as_ref().filter(|it| !it.resources.is_empty()) else {
        return Ok(());
    };
    terminal.blank()?;
    terminal.raw("Resources that would change")?;
    for resource in &planned.resources {
        let action = match resource.action {
            Action::Create => "create",
            Action::Update => "update",
            Action::Delete => "delete",
            Action::Replace => "replace",
        };
        let differing = resource.differing().join(", ");
        let line = format!("  {action:<8} {}  {differing}", resource.address);
        terminal.raw(line.trim_end())?;
    }
    if planned.more > 0 {
        terminal.raw(&format!("  and {} more", planned.more))?;
    }
    Ok(())
}
