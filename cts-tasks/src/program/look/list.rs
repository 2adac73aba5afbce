//! `task list`: every task in one line.

use std::io;

use super::{
    print_json,
    status::{rows, table},
};
use crate::{
    client::Client,
    program::{
        arguments::LookFlags,
        exit::Exit,
        output::Terminal,
        task::{Wording, failed},
    },
};

/// Lists all tasks.
pub(crate) async fn list(
    flags: &LookFlags,
    client: &Client,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    match rows(client).await {
        Ok(rows) if flags.output.json => print_json(&rows, terminal)?,
        Ok(rows) => terminal.raw(&table(&rows))?,
        Err(error) => return failed("unable to list tasks", &error, Wording::Update, terminal),
    }
    Ok(Exit::Ok)
}
