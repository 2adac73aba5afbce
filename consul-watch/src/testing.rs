//! What tests of programs on Consul need: a double, real agents, and helpers.
//!
//! - [`TestConsul`]: an in-process Consul with true blocking queries. Its
//!   client works in memory, so that a test can pause tokio's clock, and it
//!   can be [served](TestConsul::serve) on a socket. On request it
//!   [enforces ACLs](TestConsulBuilder::acls) with [`DefaultPolicy`], and a
//!   [`LoginVerifier`] of the test's judges logins to its auth methods. Lists
//!   take filter expressions where Consul takes them.
//! - [`real`]: starts a real Consul server that survives restarts.
//! - [`Program`]: any other server, which ends with the test.
//! - [`Log`]: takes what a test logs.
//! - [`parts`]: finds real programs and reports which ones a suite used.
//! - [`script`]: scripts blocking answers with `wiremock`.
//! - [`conformance`]: what every [`Query`](crate::Query) must do.

mod acl;
mod answer;
mod clock;
pub mod conformance;
mod double;
mod faults;
mod filter;
mod go_json;
mod log;
mod login;
mod memory;
pub mod parts;
mod program;
pub mod real;
mod refused;
mod route;
pub mod script;
mod serve;
mod state;

pub use clock::TestClock;
pub use double::{DefaultPolicy, TestConsul, TestConsulBuilder};
pub use faults::Fault;
pub use log::Log;
pub use login::{LoginAttempt, LoginIdentity, LoginVerifier};
pub use program::Program;
pub use serve::ServedConsul;
pub use state::Behaviour;
