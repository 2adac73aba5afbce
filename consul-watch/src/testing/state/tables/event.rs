//! User events as the agent keeps them.

use std::collections::VecDeque;

use crate::types::UserEvent;

/// The events that the agent has received, oldest first.
#[derive(Debug, Default)]
pub(in crate::testing) struct Events(pub(in crate::testing) VecDeque<UserEvent>);
