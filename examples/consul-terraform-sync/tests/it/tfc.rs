//! The built binary with a real Consul and the Terraform Cloud double, which
//! runs a real OpenTofu or Terraform on what is uploaded.

use std::{fs, path::Path};

use consul_watch::{
    Client,
    testing::{parts::Suite, real::Consul},
    types::{CatalogDeregistration, HealthStatus},
};
use cts_driver_tfc::testing::{RunView, ServedTfc, TestTfc};
use tokio::time::timeout;

use crate::{
    end_to_end::instance,
    sync::{PATIENCE, SyncProcess},
};

/// What a test needs, and keeps alive.
pub(crate) struct Scene {
    _consul: Consul,
    pub(crate) client: Client,
    pub(crate) served: ServedTfc,
    folder: tempfile::TempDir,
    pub(crate) sync: SyncProcess,
}

/// A module that keeps the instances in a file; it fails where the test wants.
const MODULE: &str = r#"
variable "services" {
  type = map(object({ id = string }))
}
variable "file" {
  type = string
}
locals {
  ids = sort([for service in var.services : service.id])
}
resource "terraform_data" "one" {
  input            = var.file
  triggers_replace = local.ids
  lifecycle {
    precondition {
      condition     = !contains(local.ids, "web-7")
      error_message = "Number seven is not planned."
    }
  }
  provisioner "local-exec" {
    command     = "case \"$IDS\" in *web-8*) echo number eight fails >&2; exit 3;; esac; printf '%s' \"$IDS\" > \"$FILE\""
    environment = { FILE = var.file, IDS = join(" ", local.ids) }
  }
}
"#;

impl Scene {
    /// A scene whose only task is `web`; `None` where a real part is missing,
    /// which is reported.
    pub(crate) async fn new(suite: &'static str, settings: &str) -> Option<Self> {
        let suite = Suite(suite);
        let tool = match consul_watch::testing::parts::find("tofu") {
            Some(_) => suite.part("tofu", "all")?,
            None => suite.part("terraform", "all")?,
        };
        let consul = suite.part_in_turn("consul", "all")?;
        let consul = Consul::start(&consul.path).await.unwrap();
        let tfc = TestTfc::builder().tool(tool.path).build();
        let served = tfc.serve().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let module = folder.path().join("module");
        fs::create_dir(&module).unwrap();
        fs::write(module.join("main.tf"), MODULE).unwrap();
        let config = config(folder.path(), &module, &served.hostname(), settings);
        let client = consul.client();
        let sync = SyncProcess::new(folder.path(), &consul.address(), &config);
        let scene = Self { _consul: consul, client, served, folder, sync };
        scene.put(1).await;
        Some(scene)
    }

    pub(crate) fn tfc(&self) -> &TestTfc {
        self.served.tfc()
    }

    pub(crate) async fn put(&self, number: u16) {
        let instance = instance("web", number, HealthStatus::Passing);
        self.client.catalog_register(&instance).await.unwrap();
    }

    pub(crate) async fn remove(&self, number: u16) {
        let gone = CatalogDeregistration::service("outside", format!("web-{number}"));
        self.client.catalog_deregister(&gone).await.unwrap();
    }

    /// What was applied.
    pub(crate) fn applied(&self) -> String {
        fs::read_to_string(self.folder.path().join("applied")).unwrap_or_default()
    }

    /// Names of the files below the scene's folder that hold this text.
    fn files_with(&self, text: &str) -> Vec<String> {
        let (mut found, mut folders) = (Vec::new(), vec![self.folder.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text) {
                    found.push(path.file_name().unwrap().to_string_lossy().into_owned());
                }
            }
        }
        found
    }

    /// Waits for the newest run to have this status.
    pub(crate) async fn run(&self, status: &str) -> RunView {
        let waited = timeout(PATIENCE, self.tfc().wait_for_run("cts_web", status)).await;
        waited.unwrap_or_else(|_late| {
            panic!("no run is {status}: {:?}\n{}", self.tfc().runs("cts_web"), self.sync.log())
        })
    }

    /// Waits until so many runs are there and this many instances are applied.
    pub(crate) async fn until(&self, what: &str, look: impl Fn(&TestTfc) -> bool) {
        let waited = timeout(PATIENCE, self.tfc().wait_until(look)).await;
        assert!(waited.is_ok(), "{what}: {:?}\n{}", self.tfc().runs("cts_web"), self.sync.log());
    }
}

fn config(folder: &Path, module: &Path, hostname: &str, settings: &str) -> String {
    let variables = folder.join("web.tfvars");
    let applied = folder.join("applied");
    fs::write(&variables, format!("file = \"{}\"\n", applied.display())).unwrap();
    format!(
        r#"
driver "terraform-cloud" {{
  hostname     = "{hostname}"
  organization = "{organization}"
  token        = "{token}"
  workspaces {{ prefix = "cts_" }}
  required_providers {{ }}
  run {{
    poll_min = "50ms"
    poll_max = "200ms"
  }}
  {settings}
}}
task {{
  name           = "web"
  module         = "{module}"
  variable_files = ["{variables}"]
  condition "services" {{ names = ["web"] }}
}}
"#,
        organization = TestTfc::ORGANIZATION,
        token = TestTfc::TOKEN,
        module = module.display(),
        variables = variables.display(),
    )
}

#[tokio::test]
async fn what_changes_in_consul_is_a_run_in_the_workspace() {
    let Some(mut scene) = Scene::new("tfc", "").await else { return };
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    assert_eq!(scene.applied(), "web-1");
    scene.put(2).await;
    scene.sync.ran("web", 2).await;
    assert_eq!(scene.applied(), "web-1 web-2");
    scene.remove(1).await;
    scene.sync.ran("web", 3).await;
    assert_eq!(scene.applied(), "web-2");

    let runs = scene.tfc().runs("cts_web");
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert!(runs.iter().all(|run| run.status == "applied"), "{runs:?}");
    assert_eq!(scene.tfc().tags("cts_web"), ["source:cts"]);
    assert_eq!(scene.tfc().uploads("cts_web").len(), 1, "data goes by variables");
    let events = scene.sync.events("web").await;
    assert_eq!(events[0]["changes"]["add"], 1, "{}", events[0]);
    for path in ["/v1/tasks/web", "/v1/status/tasks?include=events", "/v1/status"] {
        let answer = scene.sync.get(path).await.unwrap().to_string();
        assert!(!answer.contains(TestTfc::TOKEN), "{answer}");
    }

    // An idle task asks for nothing, and nor does the end of the process.
    let before = scene.tfc().requests().len();
    // A restart applies what is there: a new upload of the same bytes.
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
    assert_eq!(scene.tfc().requests().len(), before);
    scene.sync.start();
    scene.sync.ran("web", 1).await;
    let uploads = scene.tfc().uploads("cts_web");
    assert_eq!(uploads.len(), 2);
    assert_eq!(uploads[0], uploads[1], "byte for byte");
    assert_eq!(
        scene.run("planned_and_finished").await.configuration_version,
        scene.tfc().runs("cts_web")[3].configuration_version
    );
    assert_eq!(scene.sync.end("-TERM").await.code(), Some(0), "{}", scene.sync.log());
    // The token stands where the operator wrote it, and in no log or other file.
    assert_eq!(scene.files_with(TestTfc::TOKEN), ["sync.hcl"], "{}", scene.sync.log());
    assert_eq!(scene.files_with("_archivist"), [""; 0], "{}", scene.sync.log());
    assert!(scene.sync.log().contains("/app/my-org/workspaces/cts_web/runs/run-"));
}

#[tokio::test]
async fn an_inspection_shows_the_plan_and_changes_nothing() {
    let Some(mut scene) = Scene::new("tfc_inspect", "").await else { return };
    scene.sync.start_with(|command| {
        command.arg("-inspect");
    });
    assert_eq!(scene.sync.ended().await.code(), Some(0), "{}", scene.sync.log());
    let log = scene.sync.log();
    assert!(log.contains("changes_present=true") && log.contains("Plan: 1 to add"), "{log}");
    assert_eq!(scene.applied(), "");
    let runs = scene.tfc().runs("cts_web");
    assert!(runs.len() == 1 && runs[0].plan_only, "{runs:?}");
}
