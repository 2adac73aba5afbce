//! Serving until a signal to stop.

use std::io;

use crate::{
    LocalClient, Parity, ResourceService,
    controller::{Manager, reaper},
    server::{Server, ServerConfig},
};
use consul_watch::BoxError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{ServerProgram, arguments::ServeOptions, logging, storage::Storage};

pub(super) async fn serve(program: &ServerProgram, options: ServeOptions) -> Result<(), BoxError> {
    if options.demo && program.demo.is_none() {
        return Err(format!("{} has no demonstration controller for --demo", program.name).into());
    }
    logging::start(program.name, options.log_level, options.access.audit);
    let mut config = ServerConfig::default();
    options.access.apply(&mut config)?;
    if let Some(address) = options.listen.as_ref().or(options.address.as_ref()) {
        config.address.clone_from(address);
    }
    // Before a cluster takes a node in that could then not serve.
    let listener = TcpListener::bind(&config.address)
        .await
        .map_err(|error| format!("cannot listen at {}: {error}", config.address))?;
    let storage = Storage::open(&options.storage, &options.raft).await?;
    drop(listener);
    let served = serve_over(program, &storage, config, options).await;
    let closed = storage.close().await;
    served.and(closed)
}

#[expect(clippy::print_stdout, reason = "that is how the address is reported")]
async fn serve_over(
    program: &ServerProgram,
    storage: &Storage,
    config: ServerConfig,
    options: ServeOptions,
) -> Result<(), BoxError> {
    let registry = program.registry()?;
    let parity = if options.upstream_parity { Parity::Upstream } else { Parity::Corrected };
    let service = ResourceService::builder(registry, storage.backend()).parity(parity);
    // Controllers act for the server and not for a caller.
    let own =
        ResourceService::builder(program.registry()?, storage.backend()).parity(parity).build();
    let (service, tokens) = options.access.guard(service)?;
    let service = service.build();

    let server = Server::bind(service.clone(), config).await?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_at_signal(stop.clone())?);
    println!("listening at {}", server.local_addr()?);

    let files = options.access.follow_files(server.tls_handle(), tokens, stop.child_token());
    let files = tokio::spawn(files);
    let (node, tls, ends) = (storage.node(), options.raft.tls, stop.child_token());
    let peer_files = tokio::spawn(async move {
        if let Some(node) = node {
            tls.follow(&node, ends).await;
        }
    });
    let mut manager = Manager::new(LocalClient::new(own));
    if let Some(leadership) = storage.leadership() {
        manager = manager.with_lease(leadership);
    }
    manager.register(reaper::controller())?;
    let demo = program.demo.filter(|_| options.demo);
    for controller in program.controllers.iter().chain(&demo) {
        manager.register(controller())?;
    }
    let mut controllers = tokio::spawn(manager.run(stop.child_token()));
    let mut serving = std::pin::pin!(server.run(stop.clone()));
    let failed = tokio::select! {
        served = &mut serving => served.map(|()| None)?,
        reason = storage.failed() => Some(reason),
        ended = &mut controllers => {
            stop.cancel();
            let served = serving.await;
            // They end by themselves only when something is wrong, or to stop.
            ended??;
            return Ok(served?);
        }
    };
    stop.cancel();
    files.await?;
    peer_files.await?;
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
