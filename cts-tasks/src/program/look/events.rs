//! `task events`: what happened to a task, and what happens to it.

use std::io;

use super::{counted, print_json, result, seconds, time, took};
use crate::{
    Event, StreamEvent, StreamEventKind,
    client::{Client, EventFilter},
    program::{
        arguments::EventsFlags,
        exit::Exit,
        output::Terminal,
        task::{Wording, failed},
    },
};

/// Shows the events of a task, the oldest first, and follows it if that is asked for.
pub(crate) async fn events(
    flags: &EventsFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.look.named.name();
    let what = format!("unable to get the events of '{name}'");
    // What comes between the two requests is seen by the later one.
    let mut following = client.follow(EventFilter::of_task(name));
    if flags.follow
        && let Err(error) = following.begin().await
    {
        return failed(&what, &error, Wording::Update, terminal);
    }
    let status = match client.task_status(name, true).await {
        Ok(status) => status,
        Err(error) => return failed(&what, &error, Wording::Update, terminal),
    };
    if flags.look.output.json && !flags.follow {
        print_json(&status.events, terminal)?;
        return Ok(Exit::Ok);
    }
    for event in status.events.iter().rev() {
        print_event(event, flags.look.output.json, terminal)?;
    }
    if !flags.follow {
        if status.events.is_empty() {
            terminal.raw(&format!("Nothing has happened to '{name}'."))?;
        }
        return Ok(Exit::Ok);
    }
    loop {
        match following.next().await {
            Ok(events) => {
                for happened in events {
                    let known = |event: &Event| status.events.iter().any(|it| it.id == event.id);
                    if matches!(&happened.kind, StreamEventKind::Run { event } if known(event)) {
                        continue;
                    }
                    print_happened(&happened, flags.look.output.json, terminal)?;
                }
                terminal.flush()?;
            }
            Err(error) => return failed(&what, &error, Wording::Update, terminal),
        }
    }
}

/// Prints an event as one line of JSON, or as lines for a person.
fn print_event(event: &Event, json: bool, terminal: &mut Terminal<'_>) -> io::Result<()> {
    if json {
        return terminal.raw(&serde_json::to_string(event)?);
    }
    terminal.raw(&line(event))?;
    if let Some(error) = &event.error {
        for line in error.message.lines() {
            terminal.raw(&format!("    {line}"))?;
        }
    }
    for note in &event.notes {
        terminal.raw(&format!("    {note}"))?;
    }
    Ok(())
}

fn print_happened(
    happened: &StreamEvent,
    json: bool,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    let at = time(happened.time);
    match &happened.kind {
        StreamEventKind::Run { event } => print_event(event, json, terminal),
        _ if json => terminal.raw(&serde_json::to_string(happened)?),
        StreamEventKind::Progress { line } => terminal.raw(&format!("{at}  {line}")),
        StreamEventKind::PlanWaits { plan } => {
            terminal.raw(&format!("{at}  plan {plan} waits for approval"))
        }
        StreamEventKind::PlanGone => terminal.raw(&format!("{at}  no plan waits any more")),
        StreamEventKind::TaskStored => terminal.raw(&format!("{at}  the task was stored")),
        StreamEventKind::TaskDeleted => terminal.raw(&format!("{at}  the task was deleted")),
    }
}

/// An event in one line.
pub(super) fn line(event: &Event) -> String {
    let changes = event.changes.as_ref().map(|changes| format!("  {}", counted(changes)));
    format!(
        "{}  {} in {}{}",
        time(event.end_time),
        result(event),
        seconds(took(event)),
        changes.unwrap_or_default()
    )
}
