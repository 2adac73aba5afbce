//! A task's condition in a few words, for tables that people read.

use crate::wire::{ConditionDocument, ServicesDocument, TaskDocument};

/// Describes the task's condition in a few words.
pub(super) fn condition(task: &TaskDocument) -> String {
    match &task.condition {
        None => "nothing; task run runs it".to_owned(),
        Some(ConditionDocument::Services(used)) => services(&used.selection),
        Some(ConditionDocument::CatalogServices(used)) => {
            format!("services that come or go: {}", used.selection.regexp)
        }
        Some(ConditionDocument::ConsulKv(used)) => {
            let below = if used.selection.recurse { "keys below" } else { "key" };
            format!("{below} {}", used.selection.path)
        }
        Some(ConditionDocument::Schedule { cron }) => format!("schedule {cron}"),
    }
}

fn services(selection: &ServicesDocument) -> String {
    match (&selection.names, &selection.regexp) {
        (Some(names), _) if names.len() > 4 => format!("{} services", names.len()),
        (Some(names), _) => format!("services {}", names.join(", ")),
        (None, Some(regexp)) => format!("services that match {regexp}"),
        (None, None) => "services".to_owned(),
    }
}
