//! The seam between the controller's loop and the two kinds of tokens.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use crate::{Error, Report, Result, Writer};

/// Reconciles Consul with the tasks of a cluster, one pass after the other.
///
/// Every change goes through the [`Writer`], so that a dry run changes nothing.
#[async_trait]
pub trait Reconciler: fmt::Debug + Send + Sync + 'static {
    /// Creates what has to exist before the first pass. A second call changes nothing.
    ///
    /// # Errors
    ///
    /// The first error; the rest is not tried then.
    async fn prepare(&self, writer: &Writer) -> Result<()>;

    /// Compares everything and corrects what differs.
    ///
    /// `check` also compares what lists do not show: secrets, rules, and the objects of
    /// [`prepare`](Self::prepare).
    ///
    /// # Errors
    ///
    /// The error of a listing, without which nothing can be done. Errors of single resources are in
    /// the report, and do not stop the others.
    ///
    /// # Cancel safety
    ///
    /// After the future is dropped, the next pass, of this or another controller, completes what is
    /// half done.
    async fn pass(&self, writer: &Writer, check: bool) -> Result<Report>;

    /// Removes everything that belongs to the cluster, when it is taken down. Without `force`,
    /// nothing is removed while tasks of the mesh run.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] while tasks run; otherwise the errors of [`pass`](Self::pass).
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
