//! A change that would destroy too much waits for an operator.

use std::{fs, path::Path, process::Stdio};

use consul_watch::{
    Client,
    types::{CatalogDeregistration, CatalogRegistration, Service},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
    time::timeout,
};

use crate::{
    parts,
    sync::{PATIENCE, SyncProcess},
    world::operate,
};

fn on_rack(number: u16) -> CatalogRegistration {
    let mut service = Service::new("web", format!("web-{number}"));
    service.port = i64::from(8000 + number);
    CatalogRegistration::new("rack", "10.0.0.1").with_service(service)
}

/// All at once, as when a rack loses its power.
async fn lose_the_rack(consul: &Client) {
    consul.catalog_deregister(&CatalogDeregistration::node("rack")).await.unwrap();
}

fn rules(folder: &Path) -> usize {
    fs::read_dir(folder.join("rules")).unwrap().count()
}

/// The plan that waits, once there is one that would destroy so many.
async fn waits(sync: &SyncProcess, destroy: u64) -> Value {
    let waited = timeout(PATIENCE, async {
        loop {
            let answer = sync.get("/v1/tasks/web/plan").await.unwrap_or_default();
            if answer["plan"]["changes"]["destroy"] == destroy {
                return answer["plan"].clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    });
    waited.await.unwrap_or_else(|_late| panic!("no such plan waits\n{}", sync.log()))
}

#[tokio::test]
async fn a_change_that_would_destroy_all_is_applied_when_an_operator_approves_that_very_plan() {
    let Some(consul) = parts::consul_and_terraform("guard").await else { return };
    let client = consul.client();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for number in 1..=100 {
        client.catalog_register(&on_rack(number)).await.unwrap();
    }
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rules");
    let (rules_folder, variables) = (folder.join("rules"), folder.join("web.tfvars"));
    fs::create_dir(&rules_folder).unwrap();
    fs::write(&variables, format!("folder = \"{}\"\n", rules_folder.display())).unwrap();
    let task = format!(
        "task {{\n  name = \"web\"\n  module = \"{}\"\n  variable_files = [\"{}\"]\n  \
         max_destroy = 10\n  condition \"services\" {{\n    names = [\"web\"]\n  }}\n}}\n",
        module.display(),
        variables.display()
    );
    let mut sync = SyncProcess::new(folder, &consul.address(), &task);
    sync.start();
    sync.ran("web", 1).await;
    assert_eq!(rules(folder), 100);

    lose_the_rack(&client).await;
    let first = waits(&sync, 100).await;
    let shown = operate(&sync, folder, &["task", "plan", "web"], "").await;
    assert_eq!(shown.code, Some(0), "{}", shown.complained);
    for part in ["it would destroy 100 resources, and max_destroy is 10", "terraform_data.rule"] {
        assert!(shown.said.contains(part), "{part} is missing: {}", shown.said);
    }
    assert_eq!(rules(folder), 100, "nothing is destroyed");

    // While an operator reads one plan, another takes its place: the answer was about the first.
    let mut approval = Command::new(env!("CARGO_BIN_EXE_consul-terraform-sync"))
        .args(["task", "approve", "web"])
        .env("CTS_ADDRESS", sync.address().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let (mut asked, mut stdout) = (Vec::new(), approval.stdout.take().unwrap());
    let question = async {
        while !String::from_utf8_lossy(&asked).contains("Enter a value: ") {
            assert_ne!(stdout.read_buf(&mut asked).await.unwrap(), 0, "it does not ask");
        }
    };
    timeout(PATIENCE, question).await.unwrap();
    client.catalog_register(&on_rack(1)).await.unwrap();
    let second = waits(&sync, 99).await;
    assert_ne!(first["id"], second["id"]);
    approval.stdin.take().unwrap().write_all(b"yes\n").await.unwrap();
    let refused = timeout(PATIENCE, approval.wait_with_output()).await.unwrap().unwrap();
    let complained = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(11), "{complained}");
    assert!(complained.contains("unable to approve the plan of 'web'"), "{complained}");
    assert_eq!(rules(folder), 100, "neither plan is applied");

    let yes = operate(&sync, folder, &["task", "approve", "web"], "yes\n").await;
    assert_eq!(yes.code, Some(0), "{}", yes.complained);
    assert_eq!(rules(folder), 1);
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}
