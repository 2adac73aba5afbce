//! The ways in which a watch waits for changes, and what takes it from one to another.
//!
//! | state | event | next state | action |
//! |---|---|---|---|
//! | none | free | own | block on the connection |
//! | none | full, coverable | covered | join the broad queries |
//! | none | full, displaces | own | take the connection of the quietest coverable watch |
//! | none | full, opaque | round-robin | queue for a turn |
//! | own | revoked | none | end the request, ask for a place again |
//! | own | outpaced | covered | hand the connection on, join the broad queries |
//! | covered | handed | own | leave the broad queries |
//! | covered | room | own | leave the broad queries |
//! | covered | signal | covered | read without blocking |
//! | round-robin | room | own | block on the connection |
//! | round-robin | turn | round-robin | block for the length of the turn |
//!
//! - `free`, `full`: fewer holders than the limit, or as many. A watch is *coverable* if a broad query
//!   can stand in for it; an opaque one *displaces* a coverable holder if there is one.
//! - `revoked` comes whenever the limit falls: the first watch past the budget, connections that Consul
//!   refuses, broad queries of nodes.
//! - `outpaced` is asked between two requests only: Consul 1.8 counts a connection that is closed within
//!   one until the time of that request is over.
//! - `room` is not for a covered watch while another one waits for turns, which is later by seconds.
//!
//! Every other pair changes nothing. [`Slots`](super::Slots) deals the places out,
//! [`Scheduler`](crate::watch::scheduler::Scheduler) carries the actions out.

/// Way in which a watch waits for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::watch) enum Place {
    /// On its own connection.
    Own,
    /// For a broad query to say that something changed.
    Covered,
    /// For its turn on one of a few connections.
    RoundRobin,
}

impl Place {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Covered => "covered",
            Self::RoundRobin => "turn",
        }
    }
}

/// An event of a watch that waits, or has no place yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// It asks for a place, and a connection is free.
    Free,
    /// It asks for a place, and none is free.
    Full {
        /// A broad query can stand in for it.
        coverable: bool,
        /// A coverable watch has a connection that it may take.
        displaces: bool,
    },
    /// The connection was taken back.
    Revoked,
    /// A covered watch that is much busier waits, between two requests of this one.
    Outpaced,
    /// It was handed the connection of a quiet one.
    Handed,
    /// A connection is free, and nobody needs it more.
    Room,
}

/// Returns the place after an event; `None` is no place.
#[expect(clippy::match_same_arms, reason = "one arm for each row of the table")]
pub(super) fn next(place: Option<Place>, event: Event) -> Option<Place> {
    match (place, event) {
        (None, Event::Free) => Some(Place::Own),
        (None, Event::Full { coverable: true, .. }) => Some(Place::Covered),
        (None, Event::Full { displaces: true, .. }) => Some(Place::Own),
        (None, Event::Full { .. }) => Some(Place::RoundRobin),
        (Some(Place::Own), Event::Revoked) => None,
        (Some(Place::Own), Event::Outpaced) => Some(Place::Covered),
        (Some(Place::Covered), Event::Handed) => Some(Place::Own),
        (Some(Place::Covered | Place::RoundRobin), Event::Room) => Some(Place::Own),
        (place, _) => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: [(&str, Option<Place>); 4] = [
        ("none", None),
        ("own", Some(Place::Own)),
        ("covered", Some(Place::Covered)),
        ("round-robin", Some(Place::RoundRobin)),
    ];
    const EVENTS: [(&str, Event); 8] = [
        ("free", Event::Free),
        ("full, coverable", Event::Full { coverable: true, displaces: false }),
        ("full, displaces", Event::Full { coverable: false, displaces: true }),
        ("full, opaque", Event::Full { coverable: false, displaces: false }),
        ("revoked", Event::Revoked),
        ("outpaced", Event::Outpaced),
        ("handed", Event::Handed),
        ("room", Event::Room),
    ];

    /// Every pair of state and event does what its row says, and nothing if there is none.
    #[test]
    fn the_code_does_what_the_table_says() {
        let rows: Vec<Vec<&str>> = include_str!("place.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! | "))
            .map(|line| line.trim_end_matches('|').split(" | ").map(str::trim).collect())
            .collect();
        let (mut found, mut kept) = (0, 0);
        for (state, place) in PLACES {
            for (name, event) in EVENTS {
                let row = rows.iter().find(|row| (row[0], row[1]) == (state, name));
                let expected = row.map_or(state, |row| row[2]);
                let (_name, expected) =
                    PLACES.iter().find(|(name, _place)| *name == expected).unwrap();
                assert_eq!(next(place, event), *expected, "{state}: {name}");
                found += usize::from(row.is_some());
            }
        }
        // These two are rows without a change of place, which the scheduler carries out.
        for row in rows.iter().filter(|row| ["signal", "turn"].contains(&row[1])) {
            assert_eq!(row[0], row[2]);
            kept += 1;
        }
        assert_eq!(found + kept, rows.len() - 1, "a row that names no state or event: {rows:?}");
    }
}
