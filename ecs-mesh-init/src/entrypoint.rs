//! Running another program as a container's first process, with the signals that ECS sends at the
//! end of a task in the order that the mesh needs.

mod app;
mod arguments;
mod child;
mod envoy;
mod signals;

pub use app::{AppOptions, run_app};
pub use arguments::{Arguments, no_arguments};
pub use envoy::{is_application, run_envoy};
pub use signals::{SignalNumber, Signals, SystemSignals};
