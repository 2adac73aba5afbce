//! The size of a change to infrastructure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The size of a change: counts, and a bounded list of addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Changes {
    /// Resources to add, a replacement counting as one here and one in `destroy`.
    pub add: u64,
    /// Resources to change in place.
    pub change: u64,
    /// Resources to destroy.
    pub destroy: u64,
    /// `true` if only output values differ.
    pub outputs_only: bool,
    /// Addresses with their action, at most [`Changes::MAX_ADDRESSES`].
    pub addresses: BTreeMap<String, Action>,
    /// Number of addresses that were left out.
    pub more: u64,
}

impl Changes {
    /// The most addresses that are listed; the rest is a number.
    pub const MAX_ADDRESSES: usize = 100;

    /// Returns `true` if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.add == 0 && self.change == 0 && self.destroy == 0 && !self.outputs_only
    }

    /// Counts one resource, and lists its address if there is room.
    pub fn record(&mut self, address: impl Into<String>, action: Action) {
        match action {
            Action::Create => self.add += 1,
            Action::Update => self.change += 1,
            Action::Delete => self.destroy += 1,
            Action::Replace => {
                self.add += 1;
                self.destroy += 1;
            }
        }
        if self.addresses.len() < Self::MAX_ADDRESSES {
            self.addresses.insert(address.into(), action);
        } else {
            self.more += 1;
        }
    }
}

/// The kinds of change to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// It is made.
    Create,
    /// It is changed in place.
    Update,
    /// It is destroyed.
    Delete,
    /// The resource is destroyed and created again.
    Replace,
}
