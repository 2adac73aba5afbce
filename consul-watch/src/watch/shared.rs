//! What a shared read shows to its subscribers.

use std::sync::Arc;

use crate::watch::{
    Snapshot, WatchError,
    state::{Repairs, WatchState},
};

/// State of a read, as its subscribers see it.
#[derive(Debug)]
pub(super) struct Shared<T> {
    pub(super) snapshot: Option<Snapshot<T>>,
    /// The error since the last answer, with its number among all errors.
    pub(super) failure: Option<(u64, WatchError)>,
    pub(super) state: WatchState,
    pub(super) repairs: Arc<Repairs>,
}

impl<T> Shared<T> {
    pub(super) fn new(repairs: Arc<Repairs>) -> Self {
        Self { snapshot: None, failure: None, state: WatchState::new(), repairs }
    }
}
