//! The entrypoint of the proxy's container, which keeps Envoy alive until the applications, which
//! still need the mesh to finish their work, have stopped.

use std::{ffi::OsString, time::Duration};

use tokio::time::{Instant, sleep_until};

use super::{SignalNumber, Signals, child::Child};
use crate::{
    Result,
    config::Generation,
    metadata::{Container, Task, TaskMetadata},
};

/// Containers of the mesh in the current generation.
///
/// In 0.7 `consul-ecs-control-plane` did the work of two; it waits for the proxy, as the proxy
/// waits for applications, so it must not count as one.
const CURRENT: &[&str] = &[
    "consul-ecs-mesh-init",
    "consul-dataplane",
    "consul-ecs-health-sync",
    "consul-ecs-control-plane",
];
/// Containers of the mesh in the early generation.
const EARLY: &[&str] =
    &["consul-ecs-mesh-init", "consul-client", "sidecar-proxy", "consul-ecs-health-sync"];

/// Returns `true` if a container is the user's, which the proxy must outlive.
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
/// `SIGTERM` is not passed on. After it the metadata is read every `period`, and once all of the
/// user's containers have stopped the proxy's process group gets the `SIGTERM`. Every other signal
/// is passed on. While metadata cannot be read, the proxy keeps running.
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
        // Built again for each turn of the loop: a signal that arrives during the request cancels
        // it, and `next_look` makes up for it.
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
                        // Once is enough; Envoy may take its time to drain.
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
