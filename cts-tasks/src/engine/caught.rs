//! A driver whose panics are errors of its task, and one that could not be made.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use async_trait::async_trait;
use consul_watch::error_chain;
use futures::FutureExt as _;

use crate::{
    ApplyRequest, Driver, DriverFactory, Error, Outcome, Plan, PlanId, PlanPurpose, Result,
    RunContext, Task, TaskInputs,
};

/// Makes the driver of a task, whose panics become errors.
///
/// # Errors
///
/// The factory's, or that it panicked.
pub(super) fn driver_of(task: &Task, factory: &dyn DriverFactory) -> Result<Arc<dyn Driver>> {
    let made = catch_unwind(AssertUnwindSafe(|| factory.driver(task)));
    Ok(Arc::new(Caught(made.unwrap_or_else(|panic| Err(panicked(&*panic)))?)))
}

/// Gives a panic of the driver back as an error, so that one task's defect
/// concerns no other task.
#[derive(Debug)]
struct Caught(Arc<dyn Driver>);

async fn caught<T>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let ended = AssertUnwindSafe(work).catch_unwind().await;
    ended.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

/// The same input leads to the same panic, so it is not tried again by itself.
fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::Driver {
        message: format!("the driver panicked, which is a defect of it: {}", panic_text(panic)),
        retryable: false,
        source: None,
    }
}

/// The message of a panic.
pub(super) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Caught {
    async fn prepare(&self, context: &RunContext) -> Result<()> {
        caught(self.0.prepare(context)).await
    }

    async fn try_out(&self, context: &RunContext) -> Result<Option<String>> {
        caught(self.0.try_out(context)).await
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> Result<Plan> {
        caught(self.0.plan(inputs, purpose, context)).await
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        caught(self.0.apply(request, context)).await
    }

    async fn holds(&self, plan: &PlanId, context: &RunContext) -> Result<bool> {
        caught(self.0.holds(plan, context)).await
    }

    async fn changed(&self) {
        // One that panics tells of no change.
        if AssertUnwindSafe(self.0.changed()).catch_unwind().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn discard(&self, plan: &PlanId, context: &RunContext) -> Result<()> {
        caught(self.0.discard(plan, context)).await
    }

    async fn follow(&self, ticket: &str, context: &RunContext) -> Result<Outcome> {
        caught(self.0.follow(ticket, context)).await
    }

    async fn destroy(&self, context: &RunContext) -> Result<Outcome> {
        caught(self.0.destroy(context)).await
    }
}

/// Stands for a driver that could not be made: every call fails with the reason.
#[derive(Debug)]
pub(super) struct Unmade {
    reason: String,
}

impl Unmade {
    pub(super) fn new(error: &Error) -> Self {
        Self { reason: error_chain(error) }
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::Driver { message: self.reason.clone(), retryable: false, source: None })
    }
}

#[async_trait]
impl Driver for Unmade {
    async fn prepare(&self, _context: &RunContext) -> Result<()> {
        self.refuse()
    }

    async fn plan(
        &self,
        _inputs: &TaskInputs,
        _purpose: PlanPurpose,
        _context: &RunContext,
    ) -> Result<Plan> {
        self.refuse()
    }

    async fn apply(&self, _request: ApplyRequest<'_>, _context: &RunContext) -> Result<Outcome> {
        self.refuse()
    }

    async fn discard(&self, _plan: &PlanId, _context: &RunContext) -> Result<()> {
        self.refuse()
    }

    async fn follow(&self, _ticket: &str, _context: &RunContext) -> Result<Outcome> {
        self.refuse()
    }

    async fn destroy(&self, _context: &RunContext) -> Result<Outcome> {
        self.refuse()
    }
}
