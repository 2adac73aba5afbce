//! Deletes what deleted resources owned.
//!
//! A tombstone is written before its owner is deleted, so that a crash between
//! the two loses no cascade. It therefore proves nothing yet: the delete may
//! have failed, or not have happened so far.
//!
//! | owner, by uid | what a reconcile does |
//! |---|---|
//! | is there | nothing; looks again after 30 s |
//! | is gone, no pass done | deletes the children, marks the first pass |
//! | is gone, first pass older than 30 s | deletes the children, and the tombstone |
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
/// Time from the first pass to the second, and between two looks at an owner
/// that lives.
const SECOND_PASS: Duration = Duration::from_secs(30);

/// The reaper: for each tombstone it deletes what the deleted resource owned,
/// twice, and then the tombstone.
///
/// The second pass, 30 seconds after the first, is for what was created around
/// the time of the deletion. What is created later than that stays.
///
/// Deviation: nothing is deleted while the owner, by its uid, is still there,
/// as after a delete that failed behind its tombstone; upstream deletes the
/// children of that living owner.
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
        let owner = decode_data::<Tombstone>(&tombstone)?.owner.unwrap_or_default();
        if lives(runtime, &owner).await? {
            return Ok(Outcome::RequeueAfter(SECOND_PASS));
        }
        delete_children(runtime, owner).await?;
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

/// Looks the owner up by its uid, which no later resource can have, so that
/// an owner once gone stays gone.
async fn lives(runtime: &Runtime, owner: &Id) -> Result<bool, BoxError> {
    match runtime.client.read_strong(owner.clone()).await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Code::NotFound => Ok(false),
        // Stored under another version of its group, or of a type that is not
        // registered here: who cannot know must not delete.
        Err(error) if error.code() == Code::InvalidArgument => {
            tracing::debug!(owner = %owner, error = %error, "the owner of a tombstone is left alone");
            Ok(true)
        }
        Err(error) => Err(error.into()),
    }
}

async fn delete_children(runtime: &Runtime, owner: Id) -> Result<(), BoxError> {
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
