//! The commands below `task`: they ask a running daemon.

mod create;
mod delete;
mod disable;
mod enable;
mod plan;
mod run;

use std::{
    io::{self, IsTerminal as _},
    time::Duration,
};

use crate::{
    StreamEventKind,
    client::{self, Client, EventFilter},
};

use crate::program::{
    Program,
    arguments::{ConnectionFlags, TaskCommand},
    connection::{self, process_environment},
    exit::Exit,
    look,
    output::{Approval, Terminal},
};

/// Runs a command to its end, on the terminal of the process.
pub(crate) fn run_command(program: &Program, command: &TaskCommand) -> Exit {
    on_terminal(async |terminal| execute(program, command, terminal).await)
}

/// Runs something to its end, on the terminal of the process.
pub(crate) fn on_terminal(work: impl AsyncFnOnce(&mut Terminal<'_>) -> io::Result<Exit>) -> Exit {
    let (mut input, mut output, mut errors) =
        (io::BufReader::new(io::stdin()), io::stdout(), io::stderr());
    let watched = errors.is_terminal();
    let mut terminal =
        Terminal { input: &mut input, output: &mut output, errors: &mut errors, watched };
    let ended = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(work(&mut terminal)));
    // Whoever read the output has gone; so there is nobody to tell.
    ended.unwrap_or(Exit::Error)
}

async fn execute(
    program: &Program,
    command: &TaskCommand,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    let connection = match command {
        TaskCommand::Create(flags) => &flags.connection,
        TaskCommand::Approve(flags) | TaskCommand::Delete(flags) | TaskCommand::Enable(flags) => {
            &flags.named.connection
        }
        TaskCommand::Disable(flags)
        | TaskCommand::Discard(flags)
        | TaskCommand::Plan(flags)
        | TaskCommand::Run(flags) => &flags.connection,
        TaskCommand::Events(flags) => &flags.look.named.connection,
        TaskCommand::Inputs(flags) | TaskCommand::Show(flags) => &flags.named.connection,
        TaskCommand::List(flags) => &flags.connection,
    };
    let client = match connect(program, connection, terminal)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    match command {
        TaskCommand::Approve(flags) => plan::approve(flags, &client, terminal).await,
        TaskCommand::Create(flags) => create::create(program, flags, &client, terminal).await,
        TaskCommand::Delete(flags) => delete::delete(flags, &client, terminal).await,
        TaskCommand::Disable(flags) => disable::disable(flags, &client, terminal).await,
        TaskCommand::Discard(flags) => plan::discard(flags, &client, terminal).await,
        TaskCommand::Enable(flags) => enable::enable(program, flags, &client, terminal).await,
        TaskCommand::Events(flags) => look::events(flags, &client, terminal).await,
        TaskCommand::Inputs(flags) => look::inputs(flags, &client, terminal).await,
        TaskCommand::List(flags) => look::list(flags, &client, terminal).await,
        TaskCommand::Show(flags) => look::show(flags, &client, terminal).await,
        TaskCommand::Plan(flags) => plan::show(flags, &client, terminal).await,
        TaskCommand::Run(flags) => run::run(program, flags, &client, terminal).await,
    }
}

pub(crate) fn connect(
    program: &Program,
    flags: &ConnectionFlags,
    terminal: &mut Terminal<'_>,
) -> io::Result<Result<Client, Exit>> {
    if flags.port.is_some() {
        terminal.warn("-port is deprecated, name the port in -http-addr")?;
    }
    match connection::commands_client(flags, &process_environment) {
        Ok(client) => Ok(Ok(client)),
        Err(why) => {
            terminal.error(&format!("unable to create a client for {}", program.product), &why)?;
            Ok(Err(Exit::Error))
        }
    }
}

/// Longest time to find out whether the daemon tells what goes on.
const TO_FOLLOW: Duration = Duration::from_secs(2);

/// Waits for an answer about a task, and shows meanwhile what its driver does.
async fn with_progress<T: Send>(
    name: &str,
    client: &Client,
    terminal: &mut Terminal<'_>,
    answer: impl Future<Output = T> + Send,
) -> io::Result<T> {
    let mut following = client.follow(EventFilter::of_task(name));
    // A daemon that does not tell answers all the same.
    let begun = tokio::time::timeout(TO_FOLLOW, following.begin()).await;
    let mut tells = matches!(begun, Ok(Ok(())));
    tokio::pin!(answer);
    loop {
        let events = tokio::select! {
            answer = &mut answer => return Ok(answer),
            events = following.next(), if tells => events,
        };
        tells = events.is_ok();
        for event in events.into_iter().flatten() {
            if let StreamEventKind::Progress { line } = event.kind {
                terminal.progress(name, &line)?;
            }
        }
    }
}

/// The two ways in which upstream's commands word a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wording {
    /// `request returned 404 status code with error: …`
    Update,
    /// `404 Not Found: …, see logs for more details (Request ID: …)`
    Lifecycle,
}

/// Tells what could not be done, why, and what helps.
pub(crate) fn failed(
    what: &str,
    error: &client::Error,
    wording: Wording,
    terminal: &mut Terminal<'_>,
) -> io::Result<Exit> {
    terminal.error(what, &reason(error, wording))?;
    if let Some(help) = help(error) {
        terminal.errors.write_all(b"\n")?;
        terminal.explain(help)?;
    }
    Ok(Exit::Error)
}

fn reason(error: &client::Error, wording: Wording) -> String {
    let client::Error::Refused { status, message, request_id, .. } = error else {
        return consul_watch::error_chain(error);
    };
    let request_id = request_id.as_deref().unwrap_or("unknown");
    match wording {
        Wording::Update => {
            format!("request returned {} status code with error: {message}", status.as_u16())
        }
        Wording::Lifecycle => {
            format!("{status}: {message}, see logs for more details (Request ID: {request_id})")
        }
    }
}

/// Returns advice on an error that does not give it by itself.
fn help(error: &client::Error) -> Option<&'static str> {
    match error {
        client::Error::Transport { hint: None, .. } => Some(help_to_connect(error)),
        client::Error::Refused { status, .. } if status.as_u16() == 401 => Some(
            "This daemon wants a token: name the file that holds it with -token-file or \
             CTS_TOKEN_FILE.",
        ),
        _ => None,
    }
}

/// Tells by the words of the TLS library, which has no others.
fn help_to_connect(error: &client::Error) -> &'static str {
    let text = consul_watch::error_chain(error);
    let told = |word| text.contains(word);
    if told("InvalidContentType") {
        return "The daemon probably serves no TLS: use http:// in the address.";
    }
    if told("CertificateRequired") {
        return "The daemon verifies its clients: show a certificate with -client-cert and \
                -client-key, or CTS_CLIENT_CERT and CTS_CLIENT_KEY.";
    }
    if told("CaUsedAsEndEntity") {
        return "The daemon shows the certificate of an authority (basicConstraints CA:TRUE), which is \
                accepted only if it is named itself. Name it with -ca-cert or CTS_CACERT, or give \
                the daemon one that says CA:FALSE; 'openssl req -x509' makes it with -addext \
                basicConstraints=critical,CA:FALSE.";
    }
    if told("invalid peer certificate") {
        return "Name the authority that signed the daemon's certificate with -ca-cert or -ca-path, \
                or CTS_CACERT or CTS_CAPATH. -ssl-verify=false trusts whoever answers.";
    }
    "Is the daemon running, and is this its address? -http-addr or CTS_ADDRESS names another \
     one; the daemon's log line 'serving the API' tells its port."
}

/// The end of a command that was not approved; `None` if it was.
fn unless_approved(
    approval: Approval,
    cancelled: &str,
    terminal: &mut Terminal<'_>,
) -> io::Result<Option<Exit>> {
    match approval {
        Approval::Given => Ok(None),
        Approval::Refused => {
            terminal.info(cancelled)?;
            Ok(Some(Exit::Ok))
        }
        Approval::Unanswered => Ok(Some(Exit::Error)),
    }
}

/// Announces a plan, in upstream's words where the tool is Terraform.
fn generating_plan(program: &Program) -> String {
    let product = program.product;
    match program.tool {
        Some(tool) => format!("Generating plan that {product} will use {tool} to execute"),
        None => format!("Generating plan that {product} will execute"),
    }
}

/// Prints a preview of a run, as the driver describes it.
fn show_plan(inspected: &client::Inspected, terminal: &mut Terminal<'_>) -> io::Result<()> {
    terminal.raw(inspected.plan.trim_matches('\n'))?;
    terminal.blank()?;
    if let Some(url) = &inspected.url {
        terminal.say(&format!("See also {url}"))?;
        terminal.blank()?;
    }
    Ok(())
}

/// Asks whether to do what was shown.
fn approve_plan(doing: &str, name: &str, terminal: &mut Terminal<'_>) -> io::Result<Approval> {
    terminal.info(&format!("{doing} the task will perform the actions described above."))?;
    terminal.say(&format!("Do you want to perform these actions for '{name}'?"))?;
    terminal.say(" - They cannot be taken back.")?;
    terminal.say(
        " - What is done may differ from this plan, if what the task depends on changes in Consul \
         before it runs.",
    )?;
    terminal.approved()
}
