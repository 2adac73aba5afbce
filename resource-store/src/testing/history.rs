//! Checks what many concurrent users of a backend saw.
//!
//! [`run`] has writers, readers and watchers work at random on a few names, and
//! notes what each did and saw. [`History::check`] then looks for anything that
//! the contract of [`Backend`](crate::backend::Backend) rules out: a lost or
//! repeated update, a read that goes back, a watch that misses, repeats or
//! reorders an event, or that tells of what cannot be read yet.
//!
//! [`Load`] does the same over clients of servers that may fail meanwhile, and
//! [`settle`] finds out what became of operations that were not answered.

mod check;
mod load;
mod run;
mod unsure;

pub use check::Violation;
pub use load::{Load, LoadNode, LoadOptions, LoadReport};
pub use run::{HistoryOptions, run};
pub use unsure::{Answer, Attempt, Sighting, settle};

/// The stored version under one name; none if there is nothing.
pub type Seen = Option<String>;

/// The kinds of operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A conditional write or delete.
    Change {
        /// The version that it expected; none for a creation.
        expected: Seen,
        /// Version that it left, or none for a delete.
        left: Seen,
    },
    /// A change that was refused because of its version.
    Refused {
        /// The version that it expected; none for a creation.
        expected: Seen,
    },
    /// A strong read.
    Read(Seen),
}

/// An operation on one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The name. All deletes of one name are made by one task, one after the
    /// other, because a delete does not say whether it was the one.
    pub name: String,
    /// When it began, by a counter that all share.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// Kind of the operation, with its result.
    pub action: Action,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// The name.
    pub name: String,
    /// The version that the event carried.
    pub version: String,
    /// `true` if that version was deleted.
    pub deleted: bool,
    /// Result of an eventual read right after the event, if there was one.
    pub read_after: Option<Seen>,
}

/// The events that one watch saw, from its snapshot to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WatchLog {
    /// The snapshot: names and versions.
    pub snapshot: Vec<(String, String)>,
    /// The events after it.
    pub events: Vec<Observed>,
    /// `true` if it went on to the end of the run; else it fell behind.
    pub complete: bool,
}

/// The operations and observations of all clients.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Every operation, in no order.
    pub operations: Vec<Operation>,
    /// Every watch.
    pub watches: Vec<WatchLog>,
}
