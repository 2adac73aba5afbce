use std::{ffi::OsString, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{SignalNumber, Signals, child::Child};
use crate::{
    Result,
    config::Generation,
    metadata::{Container, Task, TaskMetadata},
};

/// Containers of the mesh in the current generation; in 0.7 `consul-ecs-control-plane` did the work of
/// two, and it waits for the proxy to end, as the proxy does for applications.
const CURRENT: &[&str] = &[
    "consul-ecs-mesh-init",
    "consul-dataplane",
    "consul-ecs-health-sync",
    "consul-ecs-control-plane",
];
/// Containers of the mesh in the early generation.
const EARLY: &[&str] =
    &["consul-ecs-mesh-init", "consul-client", "sidecar-proxy", "consul-ecs-health-sync"];

/// Whether a container is the user's: the proxy must outlive it.
pub fn is_application(generation: Generation, container: &Container) -> bool {
    let name = container.name.as_str();
    match generation {
        Generation::Early => !EARLY.contains(&name),
        Generation::Current => container.kind == "NORMAL" && !CURRENT.contains(&name),
    }
}

fn applications_have_stopped(generation: Generation, task: &Task) -> bool {
    let mut applications =
        task.containers.iter().filter(|container| is_application(generation, container));
    applications.all(Container::has_stopped)
}

/// Runs the proxy and returns its exit code.
///
/// `SIGTERM` is not passed on: after it, the metadata is asked every `period`, and when all of the
/// user's containers have stopped the proxy's process group is terminated. Every other signal is
/// passed on. When the metadata fails, the proxy goes on.
///
/// # Errors
///
/// [`Error::Input`](crate::Error::Input) without a command, [`Error::Command`](crate::Error::Command)
/// when it cannot be started.
///
/// Source: consul-ecs 0.10 `subcommand/envoy-entrypoint/command.go`.
pub async fn run_envoy(
    command: &[OsString],
    generation: Generation,
    metadata: &dyn TaskMetadata,
    period: Duration,
    signals: &mut dyn Signals,
) -> Result<i32> {
    let mut child = Child::start(command)?;
    let mut next_look: Option<Instant> = None;
    let mut terminated = false;
    loop {
        let look = async {
            match next_look {
                Some(at) => {
                    sleep_until(at).await;
                    metadata.task().await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            code = child.wait() => return code,
            signal = signals.next() => {
                if signal == SignalNumber::TERM {
                    tracing::info!("ignoring SIGTERM until the applications have stopped");
                    if !terminated {
                        terminated = true;
                        next_look = Some(Instant::now() + period);
                    }
                } else {
                    child.signal(signal);
                }
            }
            task = look => {
                next_look = Some(Instant::now() + period);
                match task {
                    Ok(task) if applications_have_stopped(generation, &task) => {
                        child.signal_group(SignalNumber::TERM);
                        next_look = None;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "unable to get task metadata"
                    ),
                }
            }
        }
    }
}
