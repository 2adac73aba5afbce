//! For tests of what is built on elections: an elector in this process, and
//! what every [`Elector`](crate::Elector) must do.

pub mod election;
mod in_process;
mod odd_clock;

pub use in_process::{Ballot, InProcessElector};
pub use odd_clock::OddClock;
