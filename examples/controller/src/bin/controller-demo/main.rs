//! A controller in one process: it keeps a greeting in the metadata of every
//! artist.
//!
//! Needs nothing. Run it with
//! `cargo run -p controller --bin controller-demo`.
#![expect(clippy::print_stdout, reason = "that is what it is for")]

use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use resource_store::{
    Code, LocalClient, Registry, ResourceClient as _, ResourceData as _, ResourceService,
    backend::{WatchEvent, memory::MemoryBackend},
    controller::{BoxError, Controller, Manager, Outcome, Reconciler, Request, Runtime},
    demo::{self, v2::Artist},
    pb::WatchListRequest,
};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
struct Greeter;

#[async_trait]
impl Reconciler for Greeter {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let mut artist = match runtime.client.read(request.id.clone()).await {
            Ok(artist) => artist,
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            Err(error) => return Err(error.into()),
        };
        let greeting = format!("hello, {}", artist.name());
        if artist.metadata.insert("greeting".to_owned(), greeting.clone()) != Some(greeting) {
            // Conditional on the version that was read; who loses the race is asked again.
            runtime.client.write(artist).await?;
        }
        Ok(Outcome::Done)
    }
}

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
