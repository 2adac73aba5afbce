//! `task disable`.

use std::io;

use crate::{FirstRun, client::Client};

use super::{Wording, failed};
use crate::program::{arguments::NamedFlags, exit::Exit, output::Terminal};

/// Disables a task.
pub(super) async fn disable(
    flags: &NamedFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let name = flags.name();
    terminal.info(&format!("Waiting to disable '{name}'..."))?;
    terminal.blank()?;
    match client.set_enabled(name, false, FirstRun::WhenTriggered).await {
        Ok(_) => {
            terminal.info(&format!("'{name}' disable complete!"))?;
            Ok(Exit::Ok)
        }
        Err(error) => {
            failed(&format!("unable to disable '{name}'"), &error, Wording::Update, terminal)
        }
    }
}
