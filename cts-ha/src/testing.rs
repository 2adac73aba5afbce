//! Test support for programs that build on elections: an elector in this process, and the contract
//! of every [`Elector`](crate::Elector).

pub mod election;
mod in_process;
mod odd_clock;

pub use in_process::{Ballot, InProcessElector};
pub use odd_clock::OddClock;
