//! `task inputs`: what the module would get now, and the difference from what was last applied.

use std::io;

use super::print_json;
use crate::{
    client::Client,
    program::{
        arguments::LookTaskFlags,
        exit::Exit,
        output::Terminal,
        task::{Wording, failed},
    },
    wire::{InputsDocument, SinceApplied},
};

/// Shows the inputs of a task.
pub(crate) async fn inputs(
    flags: &LookTaskFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.named.name();
    match client.task_inputs(name).await {
        Ok(inputs) if flags.output.json => print_json(&inputs, terminal)?,
        Ok(inputs) => print(&inputs, terminal)?,
        Err(error) => {
            let what = format!("unable to get the inputs of '{name}'");
            return failed(&what, &error, Wording::Update, terminal);
        }
    }
    Ok(Exit::Ok)
}

/// Prints the inputs, each line indented by two.
pub(super) fn print(inputs: &InputsDocument, terminal: &mut Terminal<'_>) -> io::Result<()> {
    let mut lines = inputs.lines();
    if lines.is_empty() {
        lines.push("nothing".to_owned());
    }
    let difference = match &inputs.since_applied {
        SinceApplied::Differs { difference } => difference.as_ref(),
        SinceApplied::Never | SinceApplied::Same => None,
    };
    for line in lines {
        let mark = match difference {
            Some(it) if it.added.contains(&line) => '+',
            Some(it) if it.changed.contains(&line) => '~',
            _ => ' ',
        };
        terminal.raw(&format!("{mark} {line}"))?;
    }
    for gone in difference.iter().flat_map(|it| &it.removed) {
        terminal.raw(&format!("- {gone}"))?;
    }
    terminal.raw(&match &inputs.since_applied {
        SinceApplied::Never => "  Nothing was applied yet.".to_owned(),
        SinceApplied::Same => "  That is what was last applied.".to_owned(),
        SinceApplied::Differs { difference: Some(it) } => format!(
            "  Since the last apply: {} added, {} changed, {} removed.",
            it.added.len(),
            it.changed.len(),
            it.removed.len()
        ),
        SinceApplied::Differs { difference: None } => {
            "  That is not what was last applied, before this process started.".to_owned()
        }
    })
}
