//! For tests of what is built on this crate: a driver that records what it is
//! told, and what every store must do.

pub mod driver;
mod recording;
pub mod store;

pub use recording::{Call, HeldRun, RecordingDriver};

use crate::{BufferPeriod, Condition, Task, TaskName};

/// An enabled task without a buffer period, that runs when the service of the
/// same name changes.
///
/// # Panics
///
/// When `name` is no name for a task.
#[expect(clippy::expect_used, reason = "a test's own mistake")]
pub fn task(name: &str) -> Task {
    let valid = TaskName::try_from(name.to_owned()).expect("a valid name");
    let task = Task::new(valid, Condition::services([name])).with_module("./module");
    Task {
        buffer_period: BufferPeriod::Disabled,
        buffer_period_inherited: false,
        working_dir: name.into(),
        working_dir_inherited: false,
        ..task
    }
}
