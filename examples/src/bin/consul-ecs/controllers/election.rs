use std::sync::Arc;

use acl_controller::{Controller, ControllerOptions, Reconciler};
use consul_watch::Client;
use cts_ha::{
    Candidate, Consul, ConsulElector, ElectionOptions, Elector as _, ElectorExt as _, Leadership,
};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

/// Runs a controller while this process leads, again and again until `stop` is cancelled.
pub(super) async fn run(
    client: Client,
    key: String,
    reconciler: &Arc<dyn Reconciler>,
    options: &ControllerOptions,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let candidate = Candidate::new(format!("consul-ecs-{}", std::process::id()));
    let own = candidate.uuid.clone();
    let consul = Consul::new(client);
    let elector = ConsulElector::new(&consul, key, candidate, ElectionOptions::default())?;
    let work = elector.run(|leadership: Leadership| {
        let controller = Controller::new(Arc::clone(reconciler), options.clone());
        let led = stop.child_token();
        async move {
            tracing::info!(term = %leadership.token(), "leads");
            let ended = leadership.ended().clone();
            tokio::select! {
                biased;
                () = ended.cancelled() => {
                    tracing::warn!("leads no more");
                    Ok(())
                }
                done = controller.run(led) => done,
            }
        }
    });
    let interrupted = async {
        stop.cancelled().await;
        if elector.leader().is_some_and(|leader| leader.uuid == own) {
            // The work ends by itself, and gives leadership up.
            std::future::pending::<()>().await;
        }
    };
    let done = tokio::select! {
        done = work => Some(done?),
        () = interrupted => None,
    };
    elector.farewell().await;
    Ok(done.unwrap_or(Ok(()))?)
}
