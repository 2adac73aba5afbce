//! A controller that runs in one of several processes: it notes in the metadata
//! of every artist who keeps it.
//!
//! Needs a Consul agent, found as Consul's own tools find it (`CONSUL_HTTP_ADDR`,
//! …), and a running `resource-server`. Run
//! `cargo run -p controller --bin singleton-controller -- NAME`
//! in several terminals; the address of the server may follow (`127.0.0.1:8502`
//! if not). End the one that runs with Ctrl-C, and another one runs at once.
//! Killed or suspended instead, it is replaced within a minute.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "that is what it is for")]

mod keeper;
mod lease;

use std::{process::ExitCode, sync::Arc};

use consul_watch::{Client, error_chain};
use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions};
use keeper::Keeper;
use resource_store::{
    GrpcClient, GrpcClientConfig, ResourceData as _,
    controller::{BoxError, Controller, Leadership, Manager},
    demo::v2::Artist,
};
use tokio_util::sync::CancellationToken;

fn controller(name: &str) -> Controller {
    let (starts, stops) = (name.to_owned(), name.to_owned());
    Controller::new("keeper", Artist::resource_type())
        .with_reconciler(Keeper::new(name))
        .with_notify_start(move |_| println!("{starts} runs"))
        .with_notify_stop(move |_| println!("{stops} runs no more"))
}

const USAGE: &str = "Usage: singleton-controller NAME [ADDRESS]

Runs a controller over the resource-server at ADDRESS (127.0.0.1:8502) while NAME
leads in Consul, which is found by CONSUL_HTTP_ADDR and its kin. It stops at
Ctrl-C, and another process takes over.";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = match arguments.as_slice() {
        ["-h" | "-help" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        [name] if !name.starts_with('-') => run(name, "127.0.0.1:8502").await,
        [name, address] if !name.starts_with('-') => run(name, address).await,
        _ => Err(USAGE.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(name: &str, address: &str) -> Result<(), BoxError> {
    let client = GrpcClient::new(&GrpcClientConfig::new(&format!("http://{address}")))?;
    let consul = Consul::new(Client::from_env()?);
    let options = ElectionOptions::default();
    let key = "singleton-controller/leader";
    let elector = Arc::new(ConsulElector::new(&consul, key, Candidate::new(name), options)?);

    let lease = Leadership::default();
    let mut manager = Manager::new(client).with_lease(lease.clone());
    manager.register(controller(name))?;
    let (stop, give_up) = (CancellationToken::new(), CancellationToken::new());
    println!("{name} waits");
    let running = tokio::spawn(manager.run(stop.clone()));
    let mut holding = tokio::spawn(lease::hold(Arc::clone(&elector), lease, give_up.clone()));
    let early = tokio::select! {
        ended = &mut holding => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    // The controllers end first, and only then may another process run them.
    stop.cancel();
    running.await??;
    give_up.cancel();
    match early {
        Some(ended) => ended??,
        None => holding.await??,
    }
    elector.farewell().await;
    Ok(())
}
