//! A resource server with the demo types, over memory: gRPC, and HTTP under
//! `/api`, on one port.
//!
//! Needs nothing. Run it with
//! `cargo run -p examples --features resource-store --bin resource-server`; the
//! address to listen at may follow (`127.0.0.1:8502` if not). It prints where it
//! listens, and stops at Ctrl-C.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "that is how the address is told")]

use std::{process::ExitCode, sync::Arc};

use consul_watch::{BoxError, error_chain};
use resource_store::{
    LocalClient, Registry, ResourceService,
    backend::memory::MemoryBackend,
    controller::{Manager, reaper},
    demo,
    server::{Server, ServerConfig},
};
use tokio_util::sync::CancellationToken;

const USAGE: &str = "Usage: resource-server [ADDRESS]

Serves the demo types at ADDRESS (127.0.0.1:8502): gRPC, and HTTP under /api.
What it holds is in memory. It stops at Ctrl-C.";

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let served = match arguments.as_slice() {
        [] => serve(ServerConfig::default()).await,
        [help] if matches!(help.as_str(), "-h" | "-help" | "--help") => {
            println!("{USAGE}");
            Ok(())
        }
        [address] if !address.starts_with('-') => {
            let mut config = ServerConfig::default();
            config.address.clone_from(address);
            serve(config).await
        }
        _ => Err(USAGE.into()),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error_chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: ServerConfig) -> Result<(), BoxError> {
    let mut registry = Registry::new()?;
    demo::register(&mut registry)?;
    let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();

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
