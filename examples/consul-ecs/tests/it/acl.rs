//! The controller of ACL tokens as a process, on moto and a real Consul.
#![expect(clippy::print_stdout, reason = "figures and seeds of the long form")]

mod checker;
mod commands;
mod election;
mod faults;
mod leaks;
mod login;
mod mesh;
mod process;
mod proxy;
mod rights;
mod trust;
mod world;
