//! What backends share: keys, conditions, changes, and how watches follow them.

pub(crate) mod backlog;
pub(crate) mod change;
pub(crate) mod condition;
#[cfg(any(feature = "durable", feature = "raft"))]
pub(crate) mod folder;
#[cfg(any(feature = "etcd", feature = "postgres"))]
pub(crate) mod following;
#[cfg(feature = "raft")]
pub(crate) mod held;
pub(crate) mod key;
mod missed;
#[cfg(feature = "raft")]
pub(crate) mod state;
pub(crate) mod sync;
pub(crate) mod topic;
pub(crate) mod topics;
pub(crate) mod watch;
