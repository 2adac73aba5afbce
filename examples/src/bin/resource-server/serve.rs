//! Serving until it is told to stop.

use std::io;

use consul_watch::BoxError;
use resource_store::{
    LocalClient, Registry, ResourceService,
    controller::{Manager, reaper},
    demo,
    server::{Server, ServerConfig},
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{arguments::ServeOptions, logging, storage::Storage};

pub(crate) async fn serve(options: ServeOptions) -> Result<(), BoxError> {
    logging::start(options.log_level);
    let mut config = ServerConfig::default();
    if let Some(address) = options.listen.or(options.address) {
        config.address = address;
    }
    // Before a cluster takes a node in that could then not serve.
    let listener = TcpListener::bind(&config.address)
        .await
        .map_err(|error| format!("cannot listen at {}: {error}", config.address))?;
    let storage = Storage::open(&options.storage, &options.raft).await?;
    drop(listener);
    let served = serve_over(&storage, config).await;
    let closed = storage.close().await;
    served.and(closed)
}

#[expect(clippy::print_stdout, reason = "that is how the address is told")]
async fn serve_over(storage: &Storage, config: ServerConfig) -> Result<(), BoxError> {
    let mut registry = Registry::new()?;
    demo::register(&mut registry)?;
    let service = ResourceService::builder(registry, storage.backend()).build();

    let server = Server::bind(service.clone(), config).await?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_at_signal(stop.clone())?);
    println!("listening at {}", server.local_addr()?);

    let mut manager = Manager::new(LocalClient::new(service));
    if let Some(leadership) = storage.leadership() {
        manager = manager.with_lease(leadership);
    }
    manager.register(reaper::controller())?;
    manager.register(demo::controller())?;
    let controllers = tokio::spawn(manager.run(stop.child_token()));
    let mut serving = std::pin::pin!(server.run(stop.clone()));
    let failed = tokio::select! {
        served = &mut serving => served.map(|()| None)?,
        reason = storage.failed() => Some(reason),
    };
    stop.cancel();
    let Some(reason) = failed else { return Ok(controllers.await??) };
    // What else fails now, fails for the same reason.
    drop((serving.await, controllers.await));
    Err(reason)
}

/// Cancels at Ctrl-C or SIGTERM.
fn stop_at_signal(stop: CancellationToken) -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        #[cfg(not(unix))]
        let _ignored = tokio::signal::ctrl_c().await;
        stop.cancel();
    })
}
