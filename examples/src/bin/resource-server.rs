//! A resource server with the demo types, over memory: gRPC, and HTTP under
//! `/api`, on one port.
//!
//! Needs nothing. Run it with
//! `cargo run -p examples --features resource-store --bin resource-server`; the
//! address to listen at may follow (`127.0.0.1:8502` if not). It prints where it
//! listens, and stops at Ctrl-C.
#![expect(clippy::print_stdout, reason = "that is how the address is told")]

use std::sync::Arc;

use resource_store::{
    LocalClient, Registry, ResourceService,
    backend::memory::MemoryBackend,
    controller::{Manager, reaper},
    demo,
    server::{Server, ServerConfig},
};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut registry = Registry::new()?;
    demo::register(&mut registry)?;
    let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();

    let mut config = ServerConfig::default();
    if let Some(address) = std::env::args().nth(1) {
        config.address = address;
    }
    let server = Server::bind(service.clone(), config).await?;
    println!("listening at {}", server.local_addr()?);

    let stop = CancellationToken::new();
    let mut manager = Manager::new(LocalClient::new(service));
    manager.register(reaper::controller())?;
    manager.register(demo::controller())?;
    let controllers = tokio::spawn(manager.run(stop.child_token()));
    let on_signal = stop.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            on_signal.cancel();
        }
    });
    server.run(stop.clone()).await?;
    stop.cancel();
    controllers.await??;
    Ok(())
}
