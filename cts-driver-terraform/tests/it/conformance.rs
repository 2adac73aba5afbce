//! The contract of drivers, kept by the Terraform driver: over a model of the
//! tool, and over the real ones.

use std::{path::PathBuf, sync::Arc};

use consul_watch::testing::parts::Part;
use cts_driver_terraform::{Settings, TerraformDriver};
use cts_tasks::{ConsulConfig, Driver, DriverSettings, testing::driver::DriverFixture};
use serde_json::json;

use crate::{
    fixtures::{matching, services_condition, task},
    model::{self, Model},
    site::{Site, tools},
};

struct Modelled(tempfile::TempDir);

impl Modelled {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn task_dir(&self) -> PathBuf {
        self.0.path().join("sync-tasks/test")
    }
}

impl DriverFixture for Modelled {
    fn driver(&self) -> Arc<dyn Driver> {
        let consul = ConsulConfig::default();
        let settings = Settings::read(DriverSettings::new(&consul, self.0.path())).unwrap();
        let task = task(&json!({"condition": services_condition(&matching(), true)}));
        Arc::new(TerraformDriver::new(task, Arc::new(settings), Arc::new(Model)).unwrap())
    }

    fn drift(&self) -> bool {
        let world = model::world(&self.task_dir());
        let mut resources: std::collections::BTreeMap<String, String> = model::read(&world);
        assert!(resources.pop_first().is_some(), "something was applied");
        model::write(&world, &resources);
        true
    }
}

mod modelled {
    use super::Modelled;

    cts_tasks::driver_conformance!(Modelled::new());
}

/// A real tool and a module of built-in resources, which do not drift.
struct Real(Site);

impl Real {
    fn new(tool: &Part) -> Self {
        Self(Site::new(tool))
    }
}

impl DriverFixture for Real {
    fn driver(&self) -> Arc<dyn Driver> {
        self.0.driver(&json!({}))
    }
}

/// Each sentence of the contract on each tool that is there.
macro_rules! on_each_tool {
    ($($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                for tool in tools(concat!("conformance::real::", stringify!($case))) {
                    cts_tasks::testing::driver::$case(&Real::new(&tool)).await;
                }
            }
        )*
    };
}

mod real {
    use super::{Real, tools};

    on_each_tool!(
        preparing_twice_is_as_good_as_once
        a_plan_changes_nothing
        what_is_applied_is_in_line_until_the_inputs_change
        a_plan_counts_what_it_destroys
        exactly_the_plan_is_applied_and_only_once
        the_same_plan_has_the_same_id
        a_plan_that_is_not_for_an_apply_is_not_kept
        a_plan_that_nobody_made_is_superseded
        a_plan_that_was_discarded_is_superseded
        a_plan_that_no_longer_fits_is_superseded
        a_plan_that_is_held_after_a_restart_can_be_applied
        what_was_destroyed_can_be_applied_anew
        a_stop_ends_every_call_and_changes_nothing
        without_a_permit_nothing_is_changed
        drift_is_found_and_not_repaired
    );
}
