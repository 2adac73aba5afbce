//! For tests of users: conformance suites, a clock, and a kit to drive
//! controllers by hand.

mod clock;
mod controller;
pub mod history;
pub mod storage;

pub use clock::ManualClock;
pub use controller::TestController;
