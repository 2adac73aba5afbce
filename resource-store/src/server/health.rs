//! Health as `grpc.health.v1.Health` tells it.
//!
//! | service | `SERVING` | `NOT_SERVING` |
//! |---|---|---|
//! | none named: liveness | the process serves | never |
//! | the resource service: readiness | the store can be read and written | it cannot, or the server is about to stop |

use std::{sync::Arc, time::Duration};

use futures::FutureExt as _;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tonic_health::server::HealthReporter;

use super::GrpcService;
use crate::{backend::Backend, pb::resource_service_server::ResourceServiceServer};

/// A look that takes so many intervals counts as failed.
const PATIENCE: u32 = 3;

type Service = ResourceServiceServer<GrpcService>;

/// Reports what is known at once, so that nobody finds a service without health.
pub(super) async fn begin(reporter: &HealthReporter, backend: &dyn Backend) {
    match backend.ready().now_or_never() {
        Some(Ok(())) => reporter.set_serving::<Service>().await,
        Some(Err(_)) | None => reporter.set_not_serving::<Service>().await,
    }
}

/// Tells whether the store can be used, until `stop`.
pub(super) async fn follow(
    reporter: HealthReporter,
    backend: Arc<dyn Backend>,
    every: Duration,
    stop: CancellationToken,
) {
    let mut looks = interval(every.max(Duration::from_millis(1)));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        let looked = async {
            looks.tick().await;
            match timeout(every * PATIENCE, backend.ready()).await {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_elapsed) => Some(format!("no answer within {:?}", every * PATIENCE)),
            }
        };
        let problem = tokio::select! {
            problem = looked => problem,
            () = stop.cancelled() => break,
        };
        let serving = problem.is_none();
        if told == Some(serving) {
            continue;
        }
        match problem {
            None => {
                reporter.set_serving::<Service>().await;
                if told.is_some() {
                    tracing::info!("the store can be used again; health is SERVING");
                }
            }
            Some(reason) => {
                reporter.set_not_serving::<Service>().await;
                tracing::warn!(reason, "the store cannot be used; health is NOT_SERVING");
            }
        }
        told = Some(serving);
    }
    reporter.set_not_serving::<Service>().await;
}
