//! The block `buffer_period`, and how a task's completes the deployment's.

use std::time::Duration;

use super::{
    decode::{Findings, SignedDuration, Spanned},
    raw::RawBufferPeriod,
};
use crate::{
    BufferPeriod,
    task::{DEFAULT_MIN, MAX_FACTOR},
};

impl BufferPeriod {
    /// Completes a block from its parent: the task's from the global one, the
    /// global one's from [`BufferPeriod::default`].
    ///
    /// A block that sets nothing takes the parent's. One that sets something
    /// is enabled unless it says otherwise; its `max` is four times `min`
    /// unless set, and never less than `min`.
    ///
    /// Source: Consul-Terraform-Sync 0.9.0 `config/buffer_period.go` (`Finalize`).
    #[must_use]
    pub fn resolve(
        enabled: Option<bool>,
        min: Option<Duration>,
        max: Option<Duration>,
        parent: Self,
    ) -> Self {
        if enabled == Some(false) {
            return Self::Disabled;
        }
        if enabled.is_none() && min.is_none() && max.is_none() {
            return parent;
        }
        let min = min.unwrap_or(match parent {
            Self::Enabled { min, .. } => min,
            Self::Disabled => DEFAULT_MIN,
        });
        let max = max.unwrap_or(min.saturating_mul(MAX_FACTOR)).max(min);
        Self::Enabled { min, max }
    }
}

/// Checks a block and resolves it under its parent.
pub(super) fn finalize(
    raw: Option<&RawBufferPeriod>,
    parent: BufferPeriod,
    findings: &mut Findings,
) -> BufferPeriod {
    let Some(raw) = raw else { return parent };
    let enabled = raw.enabled.as_ref().map(|enabled| enabled.value);
    let min = length(raw.min.as_ref(), findings);
    let max = length(raw.max.as_ref(), findings);
    let resolved = BufferPeriod::resolve(enabled, min, max, parent);
    if let (BufferPeriod::Enabled { min, .. }, Some(max), Some(raw)) = (resolved, max, &raw.max)
        && max < min
    {
        findings.warn(
            "buffer_period: max is less than min",
            raw.place.clone(),
            "min is used for both; raise max, or leave it out",
        );
    }
    resolved
}

fn length(raw: Option<&Spanned<SignedDuration>>, findings: &mut Findings) -> Option<Duration> {
    let raw = raw?;
    match raw.value {
        SignedDuration::Positive(length) => Some(length),
        SignedDuration::Negative => {
            findings.error("buffer_period: cannot be negative", raw.place.clone());
            None
        }
    }
}
