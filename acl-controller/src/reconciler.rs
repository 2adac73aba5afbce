use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{Error, Report, Result, Writer};

/// Brings Consul in line with the tasks of a cluster, one pass after the other.
///
/// Every change goes through the [`Writer`], so that a dry run changes nothing.
#[async_trait]
pub trait Reconciler: fmt::Debug + Send + Sync + 'static {
    /// What has to be there before the first pass. Doing it twice changes nothing.
    ///
    /// # Errors
    ///
    /// The first that occurs; the rest is not tried then.
    async fn prepare(&self, writer: &Writer) -> Result<()>;

    /// Looks at everything and puts right what is not. `check` also compares what lists do not
    /// show: secrets, rules, and what [`prepare`](Self::prepare) makes.
    ///
    /// # Errors
    ///
    /// When not even a list could be had. What fails for one resource is in the report, and does
    /// not stop the others.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the next pass, of this or another controller, makes good what
    /// is half done.
    async fn pass(&self, writer: &Writer, check: bool) -> Result<Report>;

    /// Removes everything that belongs to the cluster, which is taken down. Unless `force` is
    /// given, nothing is removed while tasks of the mesh run.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] while tasks run; others as for [`pass`](Self::pass).
    async fn cleanup(&self, writer: &Writer, force: bool) -> Result<Report>;
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: Reconciler + ?Sized> Reconciler for Arc<T> {
    async fn prepare(&self, writer: &Writer) -> Result<()> {
        (**self).prepare(writer).await
    }

    async fn pass(&self, writer: &Writer, check: bool) -> Result<Report> {
        (**self).pass(writer, check).await
    }

    async fn cleanup(&self, writer: &Writer, force: bool) -> Result<Report> {
        (**self).cleanup(writer, force).await
    }
}

/// Refuses a clean-up while tasks run that would lose their tokens.
pub(crate) fn refuse_running(tasks: usize) -> Result<()> {
    if tasks == 0 {
        return Ok(());
    }
    Err(Error::input(format!(
        "{tasks} tasks of the mesh still run in the cluster and would lose their tokens; stop them first, or force it"
    )))
}
