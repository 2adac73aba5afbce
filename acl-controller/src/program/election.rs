//! Leadership among several controllers: one works, the others stand by.

use std::sync::Arc;

use consul_watch::Client;
use cts_ha::{
    Candidate, Consul, ConsulElector, ElectionOptions, Elector as _, ElectorExt as _, Leadership,
};
use tokio_util::sync::CancellationToken;

use ecs_mesh_init::program::Failure;

use super::failure::logged;
use crate::{Controller, ControllerOptions, Reconciler};

/// A candidate that no other controller's is equal to: process ids are 1 in every container, and
/// containers on one host may share its name.
fn candidate(task_arn: &str) -> Candidate {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let task = task_arn.rsplit('/').next().unwrap_or_default();
    let mut candidate = Candidate::new("");
    let random: String = candidate.uuid.chars().take(8).collect();
    let parts = ["consul-ecs", host.trim(), task, random.as_str()];
    candidate.id = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    candidate
}

/// Runs a controller while this process leads, again and again until `stop` is cancelled.
pub(super) async fn run(
    client: Client,
    key: String,
    reconciler: &Arc<dyn Reconciler>,
    options: &ControllerOptions,
    task_arn: &str,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let candidate = candidate(task_arn);
    tracing::info!(candidate = candidate.id, "waits for leadership");
    let own = candidate.uuid.clone();
    let consul = Consul::new(client);
    let elector = ConsulElector::new(&consul, key, candidate, ElectionOptions::default())
        .map_err(|error| logged(&error))?;
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
        done = work => Some(done.map_err(|error| logged(&error))?),
        () = interrupted => None,
    };
    elector.shutdown().await;
    Ok(done.unwrap_or(Ok(()))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_controllers_of_one_task_are_two_candidates() {
        let task = "arn:aws:ecs:us-east-1:1:task/prod/0123456789abcdef";
        let (one, other) = (candidate(task), candidate(task));
        assert!(one.id.starts_with("consul-ecs-") && one.id.contains("-0123456789abcdef-"));
        assert!(one.id != other.id && one.uuid != other.uuid);
        let random = one.id.rsplit('-').next().unwrap();
        assert!(random.len() == 8 && one.uuid.starts_with(random));
    }
}
