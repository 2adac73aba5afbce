//! The connections that are open, and which one gives way to a new one.
//!
//! A connection counts until it is closed. Where there are too many, of one
//! client or in all, the one that has kept the server waiting longest for a
//! request is closed: a client that sends its request at once is answered,
//! however many others are slow. One that is being answered never gives way.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{limits::ConnectionLimits, pace::Phase};

/// Connections that may still be closing beyond the bound, before new ones wait.
const CLOSING: usize = 32;

#[derive(Debug)]
pub(super) struct Roster {
    limits: ConnectionLimits,
    open: Mutex<Open>,
    closed: Notify,
}

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// Connections that have not been asked to give way, by number.
    listed: BTreeMap<u64, Listed>,
    /// Sockets that exist, with those that are giving way.
    sockets: usize,
}

#[derive(Debug)]
struct Listed {
    client: IpAddr,
    phase: Phase,
}

/// The place of one connection, given up when dropped.
#[derive(Debug)]
pub(super) struct Listing {
    roster: Arc<Roster>,
    number: u64,
    pub(super) phase: Phase,
}

impl Roster {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default(), closed: Notify::new() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until connections that gave way are really closed, so that their
    /// descriptors are free.
    pub(super) async fn room(&self) {
        loop {
            let closed = self.closed.notified();
            if self.open().sockets < self.limits.all + CLOSING {
                return;
            }
            closed.await;
        }
    }

    /// Enters a connection; `None` if it has to be refused, because all that
    /// could give way to it are being answered.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Listing> {
        let client = client(peer);
        let mut open = self.open();
        let of_client = open.listed.values().filter(|listed| listed.client == client).count();
        if of_client >= self.limits.per_client {
            open.give_way(|listed| listed.client == client).then_some(())?;
        } else if open.listed.len() >= self.limits.all {
            // The client with the most connections pays for the bound of all.
            let crowd = open.crowd();
            (open.give_way(|listed| Some(listed.client) == crowd) || open.give_way(|_| true))
                .then_some(())?;
        }
        let (number, phase) = (open.next, Phase::new());
        open.next += 1;
        open.sockets += 1;
        open.listed.insert(number, Listed { client, phase: phase.clone() });
        Some(Listing { roster: Arc::clone(self), number, phase })
    }
}

impl Open {
    /// The client that has the most connections.
    fn crowd(&self) -> Option<IpAddr> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for listed in self.listed.values() {
            *counts.entry(listed.client).or_default() += 1;
        }
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(client, _)| client)
    }

    /// Closes the connection that has been waited for longest among those that
    /// `fits` picks; `false` if there is none.
    fn give_way(&mut self, fits: impl Fn(&Listed) -> bool) -> bool {
        loop {
            let waiting = self.listed.iter().filter(|(_, listed)| fits(listed));
            let longest = waiting
                .filter_map(|(number, listed)| Some((listed.phase.waiting_since()?, *number)))
                .min();
            let Some((_, number)) = longest else { return false };
            // Its request may have come in between; then it is another one's turn.
            if self.listed.get(&number).is_some_and(|listed| listed.phase.cut()) {
                self.listed.remove(&number);
                return true;
            }
        }
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        let mut open = self.roster.open();
        open.listed.remove(&self.number);
        open.sockets -= 1;
        drop(open);
        self.roster.closed.notify_one();
    }
}

/// The client behind an address. Who has one IPv6 address has its whole /64.
fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster(all: usize, per_client: usize) -> Arc<Roster> {
        Roster::new(ConnectionLimits { all, per_client })
    }

    fn from(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_wait_of_the_same_client_gives_way() {
        let roster = roster(10, 2);
        let other = roster.enter(from(2)).unwrap();
        let first = roster.enter(from(1)).unwrap();
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        let second = roster.enter(from(1)).unwrap();
        let _third = roster.enter(from(1)).unwrap();
        assert!(first.phase.is_cut() && !second.phase.is_cut() && !other.phase.is_cut());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_being_answered_never_gives_way() {
        let roster = roster(10, 2);
        let busy: Vec<_> = (0..2).map(|_| roster.enter(from(1)).unwrap()).collect();
        assert!(busy.iter().all(|listing| listing.phase.answering()));
        assert!(roster.enter(from(1)).is_none());
        // Others are not concerned, and an answer that ended makes room.
        let _other = roster.enter(from(2)).unwrap();
        busy[0].phase.answered();
        assert!(roster.enter(from(1)).is_some());
        assert!(busy[0].phase.is_cut() && !busy[1].phase.is_cut());
    }

    #[tokio::test(start_paused = true)]
    async fn the_client_with_the_most_connections_pays_for_the_bound_of_all() {
        let roster = roster(3, 3);
        let lone = roster.enter(from(2)).unwrap();
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        let crowd: Vec<_> = (0..2).map(|_| roster.enter(from(1)).unwrap()).collect();
        let _new = roster.enter(from(3)).unwrap();
        assert!(!lone.phase.is_cut());
        assert_eq!(crowd.iter().filter(|listing| listing.phase.is_cut()).count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn room_is_waited_for_until_sockets_are_closed() {
        let roster = roster(1, 1);
        let held: Vec<_> = (0..=CLOSING).map(|_| roster.enter(from(1)).unwrap()).collect();
        let waiting = tokio::spawn({
            let roster = Arc::clone(&roster);
            async move { roster.room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap();
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let of = |text: &str| client(text.parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("::1"), of("::2"));
    }
}
