//! How one watch waits for changes: on its own connection, for a signal, or in turn.

use std::{sync::Arc, time::Duration};

use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    query::{Mode, Position, Scope},
    watch::{
        broad_queries::{BroadQueries, Membership, Signal},
        slots::{Activity, Claim, Place, Slots},
        state::{Connection, Repairs},
    },
};

/// Schedules a watch's requests: how it waits for changes, and which connections it may use.
#[derive(Debug)]
pub(super) struct Scheduler {
    slots: Arc<Slots>,
    broad_queries: Arc<BroadQueries>,
    scope: Scope,
    polled: bool,
    number: u64,
    repairs: Arc<Repairs>,
    claim: Option<Claim>,
    membership: Option<Membership>,
    /// Read since it was told to for the first time.
    has_read: bool,
    /// Activity of the watch when it lost its last place.
    activity: Activity,
}

/// A watch's next step.
#[derive(Debug)]
pub(super) enum NextAction {
    /// Ask, blocking up to this long, until the token says to stop. The
    /// permit, if one is needed, is a connection's.
    Block(Duration, CancellationToken, Option<OwnedSemaphorePermit>),
    /// Read without blocking what every read from now on must show. With
    /// `compare` the data is compared even if the index is the same.
    Read { compare: bool, permit: OwnedSemaphorePermit },
    /// Take this as the outcome of an attempt.
    Failed(Arc<Error>),
}

impl Scheduler {
    pub(super) fn new(
        slots: Arc<Slots>,
        broad_queries: Arc<BroadQueries>,
        scope: Scope,
        mode: Mode,
        number: u64,
        repairs: Arc<Repairs>,
    ) -> Self {
        // A broad query tells of indexes only.
        let scope = if mode == Mode::Index { scope } else { Scope::Opaque };
        let polled = matches!(mode, Mode::Polled(_));
        Self {
            slots,
            broad_queries,
            scope,
            polled,
            number,
            repairs,
            claim: None,
            membership: None,
            has_read: false,
            activity: Activity::default(),
        }
    }

    /// Waits until the watch may go on from `position`. `wait` is the longest
    /// block that it is allowed.
    pub(super) async fn next_action(&mut self, position: &Position, wait: Duration) -> NextAction {
        self.try_next_action(position, wait)
            .await
            .unwrap_or_else(|error| NextAction::Failed(Arc::new(error)))
    }

    /// Returns the way in which the watch waits now.
    pub(super) fn connection(&self) -> Connection {
        match self.claim.as_ref().map(Claim::place) {
            _ if self.polled => Connection::Polled,
            None => Connection::None,
            Some(Place::Own) => Connection::Own,
            Some(Place::Covered) => Connection::Covered,
            Some(Place::RoundRobin) => Connection::RoundRobin,
        }
    }

    /// The watch changed: those that do so often keep connections of their own.
    pub(super) fn changed(&mut self) {
        if let Some(claim) = &mut self.claim {
            claim.changed();
        }
    }

    /// Begins the read of [`NextAction::Read`].
    pub(super) fn begin(&self) {
        if let Some(membership) = &self.membership {
            membership.begin();
        }
    }

    /// Ends that read: `index` is the answer's, `None` after a failure, and `published` says
    /// that it brought a snapshot. Returns the time since the signal that asked for the read.
    pub(super) fn end(&self, index: Option<u64>, published: bool) -> Option<Duration> {
        let membership = self.membership.as_ref()?;
        let told_for = membership.refresh_signal().told_for();
        membership.end(index, published);
        told_for
    }

    async fn try_next_action(&mut self, position: &Position, wait: Duration) -> Result<NextAction> {
        let never = CancellationToken::new();
        // It holds no connection between two reads, and so needs no place.
        if self.polled {
            return Ok(NextAction::Block(wait, never, Some(self.slots.read().await?)));
        }
        loop {
            self.take_place();
            let Some(claim) = &mut self.claim else { continue };
            // The rows of `slots::place`, state by state.
            match claim.place() {
                Place::Own if claim.hand_over() => self.join(),
                Place::Own => {
                    let wait = claim.longest_block(wait);
                    return Ok(NextAction::Block(wait, claim.revoked().clone(), None));
                }
                Place::Covered => {
                    if let Some(action) = self.covered(position).await? {
                        return Ok(action);
                    }
                }
                Place::RoundRobin if claim.upgrade() => {}
                // The first read has nothing to block on, and would waste a turn.
                Place::RoundRobin if *position == Position::Start => {
                    return Ok(NextAction::Block(wait, never, Some(self.slots.read().await?)));
                }
                Place::RoundRobin => {
                    let (permit, turn) = self.slots.turn().await?;
                    return Ok(NextAction::Block(wait.min(turn), never, Some(permit)));
                }
            }
        }
    }

    /// Waits for the event of a covered watch; `None` if it has another place since.
    async fn covered(&mut self, position: &Position) -> Result<Option<NextAction>> {
        let (Some(claim), Some(membership)) = (&mut self.claim, &self.membership) else {
            self.join();
            return Ok(None);
        };
        let told = if self.has_read && *position == Position::Start {
            // The last attempt asks for another one, told or not.
            membership.refresh_signal().clear();
            Some(Signal::Read { compare: true })
        } else {
            tokio::select! {
                // The signal first: a change of place would read as well, but later.
                biased;
                signal = membership.refresh_signal().signal() => Some(signal),
                () = claim.called() => None,
                () = self.slots.room() => None,
            }
        };
        match told {
            Some(Signal::Failed(error)) => {
                self.has_read = true;
                Ok(Some(NextAction::Failed(error)))
            }
            Some(Signal::Read { compare }) => {
                // The signal is taken: should this wait be cut short, by a
                // new token, the next turn must read all the same.
                self.has_read = true;
                let permit = self.slots.read().await?;
                Ok(Some(NextAction::Read { compare, permit }))
            }
            None => {
                if claim.take_up() || claim.upgrade() {
                    self.membership = None;
                }
                Ok(None)
            }
        }
    }

    /// Lets broad queries stand in for the watch.
    fn join(&mut self) {
        self.membership = self.broad_queries.join(&self.scope, &self.repairs);
        self.has_read = false;
    }

    /// Gets a place if the watch has none, or has lost it.
    fn take_place(&mut self) {
        // A claim is given back before the next one is made.
        if let Some(lost) = self.claim.take_if(|claim| claim.is_lost()) {
            self.activity = lost.activity();
        }
        if self.claim.is_some() {
            return;
        }
        let claim = self.slots.claim(self.number, self.scope != Scope::Opaque, self.activity);
        if claim.place() == Place::Covered {
            self.join();
        }
        self.claim = Some(claim);
    }
}
