//! For tests of users: conformance suites, and a kit to drive controllers by
//! hand.

pub mod storage;
