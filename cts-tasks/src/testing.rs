//! For tests of what is built on this crate: a driver that records what it is
//! told, and what every store must do.

pub mod driver;
mod recording;
pub mod store;

use std::collections::BTreeMap;

pub use recording::{Call, Gate, RecordingDriver};

use crate::{BufferPeriod, Condition, Guard, NamedService, ServiceSelection, Task, TaskName};

/// An enabled task without a buffer period, that runs when the service of the
/// same name changes.
///
/// # Panics
///
/// When `name` is no name for a task.
#[expect(clippy::expect_used, reason = "a test's own mistake")]
pub fn task(name: &str) -> Task {
    let service = NamedService {
        name: name.to_owned(),
        datacenter: String::new(),
        namespace: String::new(),
        filter: String::new(),
        cts_user_defined_meta: BTreeMap::new(),
    };
    Task {
        name: TaskName::try_from(name.to_owned()).expect("a valid name"),
        description: String::new(),
        enabled: true,
        module: "./module".to_owned(),
        version: None,
        providers: Vec::new(),
        variables: BTreeMap::new(),
        buffer_period: BufferPeriod::Disabled,
        buffer_period_inherited: false,
        working_dir: name.into(),
        working_dir_inherited: false,
        condition: Condition::Services {
            services: ServiceSelection::Named(vec![service]),
            use_as_module_input: true,
        },
        module_inputs: Vec::new(),
        guard: Guard::default(),
        unconditional: false,
        services_listed: false,
        destroy_on_delete: false,
        drift_check: None,
        driver_blocks: BTreeMap::new(),
    }
}
