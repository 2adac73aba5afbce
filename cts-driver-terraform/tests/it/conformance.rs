//! The contract of drivers, kept by the Terraform driver: over a model of the
//! tool, and over the real ones.

use std::{path::PathBuf, sync::Arc};

use cts_driver_terraform::{Settings, TerraformDriver};
use cts_tasks::{ConsulConfig, Driver, DriverSettings, testing::driver::DriverFixture};
use serde_json::json;

use crate::{
    fixtures::{matching, services_condition, task},
    model::{self, Model},
    site::{SUITE, Site},
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

/// A module of built-in resources, which do not drift, on a real tool; or the
/// model where that tool is not.
enum OnTool {
    Real(Box<Site>),
    Missing(Modelled),
}

impl OnTool {
    fn new(name: &str) -> Self {
        match SUITE.part(name, "conformance") {
            Some(tool) => Self::Real(Box::new(Site::new(&tool))),
            None => Self::Missing(Modelled::new()),
        }
    }
}

impl DriverFixture for OnTool {
    fn driver(&self) -> Arc<dyn Driver> {
        match self {
            Self::Real(site) => site.driver(&json!({})),
            Self::Missing(modelled) => modelled.driver(),
        }
    }
}

mod tofu {
    use super::OnTool;

    cts_tasks::driver_conformance!(OnTool::new("tofu"));
}

mod terraform {
    use super::OnTool;

    cts_tasks::driver_conformance!(OnTool::new("terraform"));
}
