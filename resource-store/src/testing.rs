//! For tests of users: conformance suites, a clock, a client that waits, and a
//! kit to drive controllers by hand.

mod acl;
mod client;
mod clock;
mod controller;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod history;
mod link;
pub mod storage;

pub use acl::{AclCase, Expected, check_acls};
pub use client::{TestClient, Unexpected};
pub use clock::ManualClock;
pub use controller::TestController;
pub use link::{Flow, Flows, Link};
