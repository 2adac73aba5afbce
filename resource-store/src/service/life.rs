//! The life of a resource from its creation to its deletion, and what a delete does in each state.
//!
//! | state | event | next state | action |
//! |---|---|---|---|
//! | absent | create | live | store it, with a new uid |
//! | absent | create held | held | store it, with a new uid |
//! | absent | create marked | absent | refuse: a mark is set on what exists |
//! | live | delete | absent | leave a tombstone, then delete |
//! | live | hold | held | store it |
//! | live | mark | released | store it |
//! | held | delete | marked | write the mark |
//! | held | let go | live | store it |
//! | held | mark | marked | store it |
//! | marked | change data | marked | refuse: only finalizers may change |
//! | marked | hold | marked | refuse: finalizers only become fewer |
//! | marked | let go | released | store it |
//! | marked | unmark | marked | refuse: a mark stays |
//! | released | delete | absent | leave a tombstone, then delete |
//! | released | hold | marked | store it |
//! | released | unmark | released | refuse: a mark stays |
//!
//! - *Held*: a finalizer holds it back. *Marked*: it has a deletion timestamp, and is held.
//! - *Released*: marked, and no finalizer is left. It stays until a second delete, as in Consul's
//!   code: its guide promises that the last finalizer takes the resource along, which
//!   [`remove_finalizer`](crate::remove_finalizer) does in two calls.
//! - *Let go* removes the last finalizer. Fewer of several is a write that changes no state.
//!
//! Every other pair changes nothing: a delete of what is absent or marked succeeds, and a write of
//! new data is stored. [`delete`](super::delete) and [`validate_update`](super::validate_update)
//! carry it out; a tenancy that is on its way out refuses more.

use crate::pb::Resource;

/// State of a stored resource with respect to its deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing holds it back from deletion.
    Live,
    /// A finalizer holds it back.
    Held,
    /// It is to be deleted once its finalizers are gone.
    Marked,
    /// It is to be deleted, and has no finalizers any more.
    Released,
}

/// Action of a delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDelete {
    /// Deletes the resource, after leaving a tombstone.
    Remove,
    /// Writes the mark, for the owners of the finalizers.
    Mark,
    /// Leaves the resource as it is: an earlier delete has marked it.
    Wait,
}

impl State {
    /// Returns the state of a stored resource.
    pub(super) fn of(resource: &Resource) -> Self {
        match (resource.is_marked_for_deletion(), resource.has_finalizers()) {
            (false, false) => Self::Live,
            (false, true) => Self::Held,
            (true, true) => Self::Marked,
            (true, false) => Self::Released,
        }
    }

    /// Returns what a delete does in this state.
    pub(super) fn on_delete(self) -> OnDelete {
        match self {
            Self::Live | Self::Released => OnDelete::Remove,
            Self::Held => OnDelete::Mark,
            Self::Marked => OnDelete::Wait,
        }
    }
}

#[cfg(test)]
mod tests;
