//! Runs another program as a container's first process, and passes signals on in the order in which
//! a task of the mesh has to end: applications first, the proxy last.

mod app;
mod arguments;
mod child;
mod envoy;
mod signals;

pub use app::{AppOptions, run_app};
pub use arguments::{Arguments, no_arguments};
pub use envoy::{is_application, run_envoy};
pub use signals::{SignalNumber, Signals, SystemSignals};
