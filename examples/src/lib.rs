//! The code of the workspace's README, so that it is compiled. The examples
//! themselves are the binaries in `src/bin`.

/// The README.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
