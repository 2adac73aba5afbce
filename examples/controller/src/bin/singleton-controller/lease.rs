//! Binds the lease of controllers to an election, so that a singleton runs in
//! one of several processes.

use cts_ha::Elector;
use resource_store::controller::Leadership;
use tokio_util::sync::CancellationToken;

/// The lease is taken when this is dropped, however that comes.
struct Held<'a>(&'a Leadership);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// Gives the controllers their lease while this process leads, and takes it when
/// leadership ends, until `stop`; then leadership is given up.
///
/// Where leadership is lost, a reconcile under way is dropped within the margin
/// that leadership leaves for that. Before `stop`, stop the manager and wait for
/// it, so that no controller runs any more when another process is elected.
///
/// # Errors
///
/// As [`Elector::campaign`]: what no retry cures.
pub(crate) async fn hold(
    elector: impl Elector,
    lease: Leadership,
    stop: CancellationToken,
) -> cts_ha::Result<()> {
    while !stop.is_cancelled() {
        let leadership = tokio::select! {
            elected = elector.campaign() => elected?,
            () = stop.cancelled() => break,
        };
        lease.set(true);
        let held = Held(&lease);
        tokio::select! {
            () = leadership.ended().cancelled() => {}
            () = stop.cancelled() => {}
        }
        drop(held);
        leadership.resign().await;
    }
    Ok(())
}
