//! The seam for work that a provider leaves to do after an apply.

#[cfg(feature = "panos")]
mod panos;

use std::fmt::Debug;

use async_trait::async_trait;
use cts_tasks::{ProviderBlock, Stop};

#[cfg(feature = "panos")]
pub use self::panos::PanosCommit;
use crate::Result;

/// Does what a provider leaves to do when Terraform has applied.
///
/// It runs for tasks that use its provider with `auto_commit = true`, after
/// each apply that succeeded, also one that found nothing to change: an
/// earlier run may have ended in between. After a failed apply it does not
/// run. Its failure is the run's.
///
/// Source: Consul-Terraform-Sync 0.9, post-apply handlers.
///
/// Deviation: it runs after a destroy too.
#[async_trait]
pub trait Handler: Debug + Send + Sync + 'static {
    /// The local name of its provider.
    fn provider(&self) -> &'static str;

    /// Checks a block of the provider before its first run. Its arguments may
    /// still be templates. Touches nothing outside.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] that says what is missing.
    fn check(&self, provider: &ProviderBlock) -> Result<()>;

    /// Does its work with the arguments that the provider has now, and ends
    /// soon after `stop` is given.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Handler`] without any secret of the provider, or
    /// [`crate::Error::Interrupted`].
    async fn applied(&self, provider: &ProviderBlock, stop: &Stop) -> Result<()>;
}
