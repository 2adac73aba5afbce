//! Waits for locks on the state that somebody else holds.

use std::{collections::BTreeMap, path::Path, time::Duration};

use async_trait::async_trait;
use cts_tasks::Changes;
use tokio::time::{Instant, sleep};

use super::{
    ApplyOptions, Invocation, PlanOptions, ShownPlan, StateLock, Terraform, Tool, Validation,
};
use crate::{Error, Result};

/// Pause between two tries to lock the state.
const PAUSE: Duration = Duration::from_secs(1);

/// Calls again while somebody else has locked the state.
///
/// A process that was killed leaves its lock behind: in Consul until the
/// session's TTL of 15 s, which Consul may double, and the lock delay of 5 s
/// are over. A command that found the state locked has done nothing, so it can
/// be called again. The holder is reported once for each call, and stands in the
/// error when the limit is reached.
///
/// Deviation: upstream fails at once. Terraform's own `-lock-timeout` does not
/// help, because the Consul backend takes the lock already when it opens the
/// state, without waiting, in every command (Terraform 1.11.4 and `OpenTofu`
/// 1.6.2, observed).
#[derive(Debug, Clone)]
pub struct RetryOnLock<T> {
    inner: T,
    limit: Duration,
}

impl<T: Terraform> RetryOnLock<T> {
    /// Waits at most `limit` in each call.
    pub fn new(inner: T, limit: Duration) -> Self {
        Self { inner, limit }
    }

    /// Waits before the next try, or gives up with the error.
    async fn wait(
        &self,
        error: Error,
        began: Instant,
        run: &Invocation,
        told: &mut bool,
    ) -> Result<()> {
        let Some(holder) = error.lock_holder() else { return Err(error) };
        if began.elapsed() + PAUSE > self.limit {
            return Err(error);
        }
        if !std::mem::replace(told, true) {
            tracing::warn!(%holder, "the state is locked; waiting for the lock");
            run.progress.report(&format!("waiting for a lock on the state: {holder}"));
        }
        tokio::select! {
            () = sleep(PAUSE) => Ok(()),
            reason = run.stop.stopped() => Err(Error::Interrupted { reason }),
        }
    }
}

/// Calls until the state is not locked.
macro_rules! patiently {
    ($self:ident, $run:ident, $call:expr) => {{
        let (began, mut told) = (Instant::now(), false);
        loop {
            match $call.await {
                Ok(value) => return Ok(value),
                Err(error) => $self.wait(error, began, $run, &mut told).await?,
            }
        }
    }};
}

impl<T: Terraform> RetryOnLock<T> {
    async fn apply_patiently(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes> {
        patiently!(self, run, self.inner.apply(options, run))
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: Terraform> Terraform for RetryOnLock<T> {
    async fn version(&self) -> Result<Tool> {
        self.inner.version().await
    }

    async fn init(&self, run: &Invocation) -> Result<()> {
        run.progress.report("initializing: backend, modules and providers");
        patiently!(self, run, self.inner.init(run))
    }

    async fn new_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
        patiently!(self, run, self.inner.new_workspace(name, run))
    }

    async fn select_workspace(&self, name: &str, run: &Invocation) -> Result<()> {
        patiently!(self, run, self.inner.select_workspace(name, run))
    }

    async fn validate(&self, run: &Invocation) -> Result<Validation> {
        self.inner.validate(run).await
    }

    async fn plan(&self, options: &PlanOptions, run: &Invocation) -> Result<bool> {
        run.progress.report("planning");
        patiently!(self, run, self.inner.plan(options, run))
    }

    async fn apply(&self, options: &ApplyOptions, run: &Invocation) -> Result<Changes> {
        run.progress.report("applying");
        let changes = self.apply_patiently(options, run).await?;
        let Changes { add, change, destroy, .. } = changes;
        run.progress
            .report(&format!("applied: {add} added, {change} changed, {destroy} destroyed"));
        Ok(changes)
    }

    async fn destroy(&self, run: &Invocation) -> Result<Changes> {
        run.progress.report("destroying");
        patiently!(self, run, self.inner.destroy(run))
    }

    async fn show(&self, plan: &Path, run: &Invocation) -> Result<ShownPlan> {
        patiently!(self, run, self.inner.show(plan, run))
    }

    async fn pull_state(&self, run: &Invocation) -> Result<String> {
        patiently!(self, run, self.inner.pull_state(run))
    }

    async fn push_state(&self, state: &Path, run: &Invocation) -> Result<()> {
        patiently!(self, run, self.inner.push_state(state, run))
    }

    async fn push_newer_state(&self, state: &Path, run: &Invocation) -> Result<()> {
        patiently!(self, run, self.inner.push_newer_state(state, run))
    }

    async fn state_lock(&self, run: &Invocation) -> Result<Option<StateLock>> {
        self.inner.state_lock(run).await
    }

    async fn unlock_state(&self, id: &str, run: &Invocation) -> Result<()> {
        self.inner.unlock_state(id, run).await
    }

    async fn output(&self, run: &Invocation) -> Result<BTreeMap<String, serde_json::Value>> {
        patiently!(self, run, self.inner.output(run))
    }
}
