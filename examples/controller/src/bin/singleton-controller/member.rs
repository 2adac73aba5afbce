//! One of the processes: it runs the controller while it leads.

use std::sync::Arc;

use consul_watch::Client;
use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions};
use resource_store::{
    GrpcClient, GrpcClientConfig, ResourceData as _,
    controller::{BoxError, Controller, Leadership, Manager},
    demo::v2::Artist,
};
use tokio_util::sync::CancellationToken;

use crate::{keeper::Keeper, lease};

fn controller(name: &str) -> Controller {
    let (starts, stops) = (name.to_owned(), name.to_owned());
    Controller::new("keeper", Artist::resource_type())
        .with_reconciler(Keeper::new(name))
        .with_notify_start(move |_| println!("{starts} runs"))
        .with_notify_stop(move |_| println!("{stops} runs no more"))
}

/// Runs until Ctrl-C.
pub(crate) async fn run(name: &str, address: &str) -> Result<(), BoxError> {
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
    elector.shutdown().await;
    Ok(())
}
