//! Which connections there are, and which of them ends for a new one.
//!
//! | stage | a connection is in it | ends after | makes room |
//! |---|---|---|---|
//! | silent | until it sent the preface of HTTP/2, or a whole request of HTTP/1 | `handshake_timeout` | first |
//! | unused | until its first call over HTTP/2 | `idle_timeout` | second |
//! | idle | while none of its calls is under way | `idle_timeout` | last |
//! | at work | while a call or a watch is under way | never | never |
//!
//! Before the stage counts the address: the one with the most connections that are
//! not at work makes room, so that a crowd that says nothing ends itself and not the
//! client that is about to make its first call. Within a stage the connection that
//! is longest in it makes room.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, futures::Notified},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Upper bounds of the connections of a server.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Limits {
    /// Number of connections.
    pub(in crate::server) total: usize,
    /// Number of connections of one address; of IPv6 the first 64 bits count.
    pub(in crate::server) per_address: usize,
    /// Time in the stage silent.
    pub(in crate::server) silent: Duration,
    /// Time in the stages unused and idle.
    pub(in crate::server) idle: Duration,
}

/// Why a connection gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    Server,
    Address,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Silent,
    Unused,
    Idle,
}

/// The stage of a connection, and a number that grows with time.
type Rank = (Stage, u64);

/// The connections that there are.
#[derive(Debug)]
pub(in crate::server) struct Places {
    limits: Limits,
    state: Mutex<State>,
    /// Told whenever a connection is gone.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By number. Those that were told to end are not in it any more.
    connections: HashMap<u64, Connection>,
    by_address: HashMap<Option<IpAddr>, OfAddress>,
    /// All that are not at work, by stage and since when they are in it.
    waiting: BTreeMap<Rank, (u64, Instant)>,
    /// The addresses of those; the last one makes room.
    crowds: BTreeSet<Crowd>,
}

/// Number of connections of an address that are not at work, the first of them, and
/// the address.
type Crowd = (usize, Reverse<Rank>, Option<IpAddr>);

/// The connections of one address.
#[derive(Debug, Default)]
struct OfAddress {
    count: usize,
    /// Connections that are not at work, in the order in which they make room.
    waiting: BTreeMap<Rank, u64>,
}

impl OfAddress {
    fn crowd(&self, address: Option<IpAddr>) -> Option<Crowd> {
        let (first, _) = self.waiting.first_key_value()?;
        Some((self.waiting.len(), Reverse(*first), address))
    }
}

#[derive(Debug)]
struct Connection {
    address: Option<IpAddr>,
    ended: CancellationToken,
    calls: usize,
    /// None while it is at work.
    rank: Option<Rank>,
}

/// The place of one connection; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Place {
    handle: Handle,
    /// Cancelled when the connection has to end.
    pub(super) ended: CancellationToken,
}

/// Tells the places what a connection does.
#[derive(Debug, Clone)]
pub(in crate::server) struct Handle {
    number: u64,
    places: Arc<Places>,
}

/// A call under way; dropping it ends it.
#[derive(Debug)]
pub(in crate::server) struct Call(Handle);

impl Places {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), freed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a place, if need be that of a connection that is not at work.
    pub(super) fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Place, Full> {
        let address = address.map(block);
        let mut state = self.state();
        let of_address = state.by_address.get(&address).map_or(0, |of_address| of_address.count);
        if address.is_some() && of_address >= self.limits.per_address {
            let number = state.first_of(address).ok_or(Full::Address)?;
            state.end(number);
        }
        if state.connections.len() >= self.limits.total && !state.end_first() {
            return Err(Full::Server);
        }
        let (number, ended) = (state.next, CancellationToken::new());
        state.next += 1;
        state.by_address.entry(address).or_default().count += 1;
        state
            .connections
            .insert(number, Connection { address, ended: ended.clone(), calls: 0, rank: None });
        state.wait(number, Stage::Silent);
        drop(state);
        Ok(Place { handle: Handle { number, places: Arc::clone(self) }, ended })
    }

    /// Ends the connection that makes room first. `false` if all are at work.
    pub(super) fn end_first(&self) -> bool {
        self.state().end_first()
    }

    /// Waits until a connection is gone, from the moment of this call on.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// Ends those whose time in their stage is over.
    pub(super) fn end_overdue(&self, now: Instant) {
        let mut state = self.state();
        for (stage, limit) in [
            (Stage::Silent, self.limits.silent),
            (Stage::Unused, self.limits.idle),
            (Stage::Idle, self.limits.idle),
        ] {
            let in_stage = state.waiting.range((stage, 0)..=(stage, u64::MAX));
            let overdue =
                in_stage.take_while(|(_, (_, since))| now.duration_since(*since) >= limit);
            let overdue: Vec<u64> = overdue.map(|(_, (number, _))| *number).collect();
            for number in overdue {
                state.end(number);
            }
        }
    }
}

impl State {
    fn wait(&mut self, number: u64, stage: Stage) {
        self.stop_waiting(number);
        let rank = (stage, self.next);
        self.next += 1;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.rank = Some(rank);
        let address = connection.address;
        self.waiting.insert(rank, (number, Instant::now()));
        self.change(address, |waiting| {
            waiting.insert(rank, number);
        });
    }

    fn stop_waiting(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let (address, Some(rank)) = (connection.address, connection.rank.take()) else { return };
        self.waiting.remove(&rank);
        self.change(address, |waiting| {
            waiting.remove(&rank);
        });
    }

    /// Changes which connections of an address are not at work.
    fn change(&mut self, address: Option<IpAddr>, change: impl FnOnce(&mut BTreeMap<Rank, u64>)) {
        let Some(of_address) = self.by_address.get_mut(&address) else { return };
        if let Some(before) = of_address.crowd(address) {
            self.crowds.remove(&before);
        }
        change(&mut of_address.waiting);
        self.crowds.extend(of_address.crowd(address));
    }

    fn end_first(&mut self) -> bool {
        let Some((_, _, address)) = self.crowds.last() else { return false };
        let Some(number) = self.first_of(*address) else { return false };
        self.end(number);
        true
    }

    fn first_of(&self, address: Option<IpAddr>) -> Option<u64> {
        let (_, number) = self.by_address.get(&address)?.waiting.first_key_value()?;
        Some(*number)
    }

    fn end(&mut self, number: u64) {
        if let Some(connection) = self.remove(number) {
            connection.ended.cancel();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        self.stop_waiting(number);
        let connection = self.connections.remove(&number)?;
        if let Some(of_address) = self.by_address.get_mut(&connection.address) {
            of_address.count -= 1;
            if of_address.count == 0 {
                self.by_address.remove(&connection.address);
            }
        }
        Some(connection)
    }
}

impl Place {
    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let places = &self.handle.places;
        drop(places.state().remove(self.handle.number));
        places.freed.notify_waiters();
    }
}

impl Handle {
    /// Notes that the connection sent the preface of HTTP/2.
    pub(super) fn greeted(&self) {
        let mut state = self.places.state();
        let silent = state.connections.get(&self.number).and_then(|connection| connection.rank);
        if silent.is_some_and(|(stage, _)| stage == Stage::Silent) {
            state.wait(self.number, Stage::Unused);
        }
    }

    /// Notes that a call begins.
    pub(in crate::server) fn call(&self) -> Call {
        let mut state = self.places.state();
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.calls += 1;
        }
        state.stop_waiting(self.number);
        drop(state);
        Call(self.clone())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut state = self.0.places.state();
        let Some(connection) = state.connections.get_mut(&self.0.number) else { return };
        connection.calls = connection.calls.saturating_sub(1);
        if connection.calls == 0 {
            state.wait(self.0.number, Stage::Idle);
        }
    }
}

/// Gives what counts as one address: of IPv6 a whole network, because whoever has
/// one address there has them all.
pub(in crate::server) fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(total: usize, per_address: usize) -> Arc<Places> {
        let (silent, idle) = (Duration::from_secs(10), Duration::from_mins(5));
        Places::new(Limits { total, per_address, silent, idle })
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_do_nothing_make_room_and_those_at_work_do_not() {
        let places = places(4, 100);
        let [busy, idle, unused, silent] =
            [1, 2, 3, 4].map(|last| places.take(Some(address(last))).unwrap());
        let call = busy.handle().call();
        drop(idle.handle().call());
        unused.handle().greeted();
        let ended = |place: &Place| place.ended.is_cancelled();
        let mut newer = Vec::new();
        for expected in [&silent, &unused, &idle] {
            assert!(!ended(expected));
            let new = places.take(None).unwrap();
            assert!(ended(expected), "{expected:?}");
            newer.push((new.handle().call(), new));
        }
        assert!(!ended(&busy));
        assert_eq!(places.take(None).unwrap_err(), Full::Server);
        drop(call);
        drop(places.take(None).unwrap());
        assert!(ended(&busy), "its call is over");
        drop((busy, idle, unused, silent, newer));
        let state = places.state();
        assert!(state.connections.is_empty() && state.waiting.is_empty());
        assert!(state.by_address.is_empty() && state.crowds.is_empty());
    }

    #[test]
    fn a_crowd_makes_room_and_no_lone_client() {
        let places = places(5, 100);
        let crowd = [1, 1, 1].map(|last| places.take(Some(address(last))).unwrap());
        for connection in &crowd {
            connection.handle().greeted();
        }
        let lasting = places.take(Some(address(2))).unwrap();
        drop(lasting.handle().call());
        // It is about to say something, while the crowd has greeted already.
        let lone = places.take(Some(address(3))).unwrap();
        let mut more = Vec::new();
        for (gone, from) in crowd.iter().zip([4, 5]) {
            more.push(places.take(Some(address(from))).unwrap());
            assert!(gone.ended.is_cancelled());
        }
        assert!(!lone.ended.is_cancelled() && !lasting.ended.is_cancelled());
    }

    #[test]
    fn an_address_has_so_many_and_takes_none_from_others() {
        let places = places(100, 2);
        let other = places.take(Some(address(2))).unwrap();
        let first = places.take(Some(address(1))).unwrap();
        let second = places.take(Some(address(1))).unwrap();
        let call = second.handle().call();
        let third = places.take(Some(address(1))).unwrap();
        assert!(first.ended.is_cancelled() && !other.ended.is_cancelled());
        let busy = third.handle().call();
        assert_eq!(places.take(Some(address(1))).unwrap_err(), Full::Address);
        drop((call, busy));
        assert!(places.take(Some(address(1))).is_ok());
        let network = |last: u16| Some(IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, last]));
        let of_network = [network(1), network(2)].map(|address| places.take(address).unwrap());
        let calls = of_network.each_ref().map(|place| place.handle().call());
        assert_eq!(places.take(network(3)).unwrap_err(), Full::Address);
        drop((calls, other));
    }

    #[tokio::test(start_paused = true)]
    async fn each_stage_has_its_time() {
        let places = places(10, 10);
        let [busy, unused, silent] =
            [1, 2, 3].map(|last| places.take(Some(address(last))).unwrap());
        let call = busy.handle().call();
        unused.handle().greeted();
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        places.end_overdue(later(9));
        assert!(!silent.ended.is_cancelled());
        places.end_overdue(later(10));
        assert!(silent.ended.is_cancelled() && !unused.ended.is_cancelled());
        places.end_overdue(later(300));
        assert!(unused.ended.is_cancelled() && !busy.ended.is_cancelled());
        drop(call);
        places.end_overdue(later(299));
        assert!(!busy.ended.is_cancelled(), "since its last call");
        places.end_overdue(later(300));
        assert!(busy.ended.is_cancelled());
    }
}
