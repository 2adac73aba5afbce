//! A controller in one process: it keeps a greeting in the metadata of every
//! artist.
//!
//! Needs nothing. Run it with
//! `cargo run -p controller --bin controller-demo`.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

mod greeter;

use std::sync::Arc;

use futures::StreamExt as _;
use greeter::Greeter;
use resource_store::{
    LocalClient, Registry, ResourceClient as _, ResourceData as _, ResourceService,
    backend::{WatchEvent, memory::MemoryBackend},
    controller::{BoxError, Controller, Manager},
    demo::{self, v2::Artist},
    pb::WatchListRequest,
};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut registry = Registry::new()?;
    demo::register(&mut registry)?;
    let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();
    let client = LocalClient::new(service);
    let mut manager = Manager::new(client.clone());
    manager
        .register(Controller::new("greeter", Artist::resource_type()).with_reconciler(Greeter))?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));

    let request =
        WatchListRequest { r#type: Some(Artist::resource_type()), ..WatchListRequest::default() };
    let mut events = client.watch_list(request).await?;
    client.write(demo::artist("korn").encode()).await?;
    while let Some(event) = events.next().await {
        let WatchEvent::Upsert(artist) = event? else { continue };
        println!("{} at version {}: {:?}", artist.name(), artist.version, artist.metadata);
        if artist.metadata.contains_key("greeting") {
            break;
        }
    }
    stop.cancel();
    Ok(running.await??)
}
