//! A controller that runs in one of several processes: it notes in the metadata
//! of every artist who keeps it.
//!
//! Needs a Consul agent, found as Consul's own tools find it (`CONSUL_HTTP_ADDR`,
//! …), and a running `resource-server`. Run
//! `cargo run -p examples --features resource-store --bin singleton-controller -- NAME`
//! in several terminals; the address of the server may follow (`127.0.0.1:8502`
//! if not). End the one that runs with Ctrl-C, and another one runs at once.
//! Killed or suspended instead, it is replaced within a minute.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

mod keeper;
mod lease;

use std::sync::Arc;

use consul_watch::Client;
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

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("usage: singleton-controller NAME [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8502".to_owned());
    let client = GrpcClient::new(&GrpcClientConfig::new(&format!("http://{address}")))?;
    let consul = Consul::new(Client::from_env()?);
    let options = ElectionOptions::default();
    let key = "singleton-controller/leader";
    let elector = Arc::new(ConsulElector::new(&consul, key, Candidate::new(&name), options)?);

    let lease = Leadership::default();
    let mut manager = Manager::new(client).with_lease(lease.clone());
    manager.register(controller(&name))?;
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
