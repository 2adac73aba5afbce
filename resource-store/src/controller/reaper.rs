//! Deletes what deleted resources owned.
//!
//! Source: `internal/resource/reaper`, Consul 1.21.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;

use super::{BoxError, Controller, Outcome, Reconciler, Request, Runtime};
use crate::{
    clock::{Clock, SystemClock},
    code::Code,
    pb::{
        Condition, DeleteRequest, Id, Resource, Status, Tombstone, WriteStatusRequest,
        condition::State,
    },
    registry::tombstone_type,
    typed::decode_data,
};

/// The name of the controller and of its status key.
pub const NAME: &str = "consul.io/reaper-controller";
/// How long after the first pass the second one comes.
const SECOND_PASS: Duration = Duration::from_secs(30);

/// The reaper: for each tombstone it deletes what the deleted resource owned,
/// twice, and then the tombstone.
///
/// The second pass, 30 seconds after the first, is for what was created around
/// the time of the deletion. What is created later than that stays.
pub fn controller() -> Controller {
    controller_with_clock(SystemClock)
}

/// The same with another clock.
pub fn controller_with_clock(clock: impl Clock) -> Controller {
    Controller::new(NAME, tombstone_type()).with_reconciler(Reaper { clock: Arc::new(clock) })
}

#[derive(Debug)]
struct Reaper {
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Reconciler for Reaper {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let tombstone = match runtime.client.read(request.id.clone()).await {
            Ok(tombstone) => tombstone,
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            Err(error) => return Err(error.into()),
        };
        let first_pass = finished_first_pass(&tombstone);
        if first_pass.is_some_and(|at| at + SECOND_PASS >= self.clock.now()) {
            return Ok(Outcome::RequeueAfter(SECOND_PASS));
        }
        delete_children(runtime, &tombstone).await?;
        if first_pass.is_none() {
            mark_first_pass(runtime, &tombstone).await?;
            return Ok(Outcome::RequeueAfter(SECOND_PASS));
        }
        runtime.client.delete(DeleteRequest { id: tombstone.id, version: String::new() }).await?;
        Ok(Outcome::Done)
    }
}

/// When the first pass was finished, if it was.
fn finished_first_pass(tombstone: &Resource) -> Option<SystemTime> {
    let status = tombstone.status.get(NAME)?;
    let done = status.conditions.first().is_some_and(|condition| condition.state() == State::True);
    let at = status.updated_at.filter(|_| done)?;
    SystemTime::try_from(at).ok()
}

async fn delete_children(runtime: &Runtime, tombstone: &Resource) -> Result<(), BoxError> {
    let owner: Id = decode_data::<Tombstone>(tombstone)?.owner.unwrap_or_default();
    for child in runtime.client.list_by_owner(owner).await? {
        runtime.client.delete(DeleteRequest { id: child.id, version: String::new() }).await?;
    }
    Ok(())
}

async fn mark_first_pass(runtime: &Runtime, tombstone: &Resource) -> Result<(), BoxError> {
    let condition = Condition {
        r#type: "FirstPassCompleted".to_owned(),
        state: State::True.into(),
        reason: "Success".to_owned(),
        message: "First pass of child resource deletion completed".to_owned(),
        resource: None,
    };
    let status = Status {
        observed_generation: tombstone.generation.clone(),
        conditions: vec![condition],
        updated_at: None,
    };
    let request = WriteStatusRequest {
        id: tombstone.id.clone(),
        version: tombstone.version.clone(),
        key: NAME.to_owned(),
        status: Some(status),
    };
    runtime.client.write_status(request).await?;
    Ok(())
}
