//! Typed calls about runs and uploads, on the double.

use bytes::Bytes;
use cts_driver_tfc::{
    Client, Error,
    testing::{Hold, TestTfc},
    types::{
        NewConfigurationVersion, NewRun, NewWorkspace, RunId, RunStatus, RunVariable, Workspace,
    },
};

/// Sets something of a new run.
type Change = fn(&mut NewRun);

/// A workspace with something uploaded.
async fn scene() -> (TestTfc, Client, Workspace) {
    let tfc = TestTfc::new();
    let client = tfc.client();
    let workspace = client.create_workspace("my-org", &NewWorkspace::new("web")).await.unwrap();
    upload(&client, &workspace).await;
    (tfc, client, workspace)
}

async fn upload(
    client: &Client,
    workspace: &Workspace,
) -> cts_driver_tfc::types::ConfigurationVersionId {
    let options = NewConfigurationVersion::default();
    let version = client.create_configuration_version(&workspace.id, options).await.unwrap();
    let address = version.attributes.upload_url.unwrap();
    client.upload(&address, Bytes::from_static(b"files")).await.unwrap();
    version.id
}

/// Case TFC21: options of a new run are sent if they are set; a run without a workspace is not
/// sent.
#[tokio::test(start_paused = true)]
async fn runs_are_made_as_asked_for() {
    let tfc = TestTfc::new();
    let client = tfc.client();
    let workspace = client.create_workspace("my-org", &NewWorkspace::new("web")).await.unwrap();
    let first = upload(&client, &workspace).await;
    let second = upload(&client, &workspace).await;
    let new = || NewRun::new(workspace.id.clone());
    let made = |change: &dyn Fn(&mut NewRun)| {
        let mut new = new();
        change(&mut new);
        let client = client.clone();
        async move { client.create_run(&new).await.unwrap() }
    };
    // Without an upload named, the newest counts; with one, that.
    let plain = made(&|_| ()).await;
    let versions = |id: &RunId| {
        let runs = tfc.runs("web");
        runs.into_iter().find(|run| run.id == id.as_str()).unwrap().configuration_version
    };
    assert_eq!(versions(&plain.id), second.as_str());
    assert!(!plain.attributes.auto_apply && !plain.attributes.plan_only);
    assert_eq!(plain.attributes.message.as_deref(), Some(""));
    let named = made(&|run| run.configuration_version = Some(first.clone())).await;
    assert_eq!(versions(&named.id), first.as_str());
    assert!(made(&|run| run.auto_apply = Some(true)).await.attributes.auto_apply);
    let version = made(&|run| {
        run.plan_only = Some(true);
        run.terraform_version = Some("1.9.4".to_owned());
    });
    let version = version.await.attributes;
    assert!(version.plan_only);
    assert_eq!(version.terraform_version.as_deref(), Some("1.9.4"));
    let variables = made(&|run| run.variables = vec![RunVariable::new("services", "{}")]).await;
    assert_eq!(variables.attributes.variables[0].key, "services");

    // What the platform is known to refuse is not sent.
    let before = tfc.requests().len();
    let mut both = new();
    (both.is_destroy, both.refresh_only) = (Some(true), Some(true));
    let mut version = new();
    version.terraform_version = Some("1.9.4".to_owned());
    for refused in [NewRun::default(), both, version] {
        let error = client.create_run(&refused).await.unwrap_err();
        assert!(matches!(error, Error::Input { .. }), "{error}");
    }
    assert_eq!(tfc.requests().len(), before);
}

/// Case TFC21: options of a new run are sent if they are set; a run without a workspace is not
/// sent.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_saved_or_refreshes_only_is_not_applied_by_itself() {
    let cases: [(Change, &str); 2] = [
        (|run| run.save_plan = Some(true), "planned_and_saved"),
        (|run| run.refresh_only = Some(true), "planned_and_finished"),
    ];
    for (change, status) in cases {
        let (tfc, client, workspace) = scene().await;
        let mut new = NewRun::new(workspace.id);
        new.auto_apply = Some(true);
        change(&mut new);
        client.create_run(&new).await.unwrap();
        tfc.wait_for_run("web", status).await;
    }
}

/// Case TFC22: ending a run by force needs that it was cancelled; before that it is a 409.
#[tokio::test(start_paused = true)]
async fn a_run_is_cancelled_before_it_is_ended_by_force() {
    let (tfc, client, workspace) = scene().await;
    tfc.hold(Hold::Planning);
    let run = client.create_run(&NewRun::new(workspace.id)).await.unwrap().id;
    tfc.wait_for_run("web", "planning").await;
    assert!(client.force_cancel_run(&run, "").await.unwrap_err().is_conflict());
    client.cancel_run(&run, "enough").await.unwrap();
    let report = client.run(&run).await.unwrap().run.attributes;
    assert!(report.force_cancel_available_at.is_some());
    tfc.wait_for_run("web", "canceled").await;
    assert_eq!(client.run(&run).await.unwrap().run.attributes.status, RunStatus::Canceled);
}

/// Case TFC23: discarding, applying or cancelling an unknown run is a 404.
#[tokio::test(start_paused = true)]
async fn what_is_not_there_cannot_be_acted_on() {
    let (_tfc, client, _) = scene().await;
    let nobody: RunId = "run-nobody".parse().unwrap();
    for error in [
        client.discard_run(&nobody, "").await.unwrap_err(),
        client.confirm_run(&nobody, "").await.unwrap_err(),
        client.cancel_run(&nobody, "").await.unwrap_err(),
        client.force_cancel_run(&nobody, "").await.unwrap_err(),
        client.force_execute_run(&nobody).await.unwrap_err(),
        client.run(&nobody).await.unwrap_err(),
    ] {
        assert!(error.is_not_found(), "{error}");
    }
}

/// Case TFC25: the current configuration version cannot be archived.
#[tokio::test(start_paused = true)]
async fn the_current_upload_is_kept() {
    let (_tfc, client, workspace) = scene().await;
    let first = upload(&client, &workspace).await;
    assert!(client.archive_configuration_version(&first).await.unwrap_err().is_conflict());
    upload(&client, &workspace).await;
    client.archive_configuration_version(&first).await.unwrap();
    let mut run = NewRun::new(workspace.id);
    run.configuration_version = Some(first);
    assert!(client.create_run(&run).await.unwrap_err().is_refused());
}

#[tokio::test(start_paused = true)]
async fn plans_and_applies_can_be_read_alone() {
    let (tfc, client, workspace) = scene().await;
    let mut run = NewRun::new(workspace.id.clone());
    run.auto_apply = Some(true);
    let run = client.create_run(&run).await.unwrap().id;
    tfc.wait_for_run("web", "applied").await;
    let report = client.run(&run).await.unwrap();
    assert_eq!(report.plan.unwrap().attributes.resource_additions, Some(1));
    assert_eq!(report.apply.unwrap().attributes.resource_additions, Some(1));
    assert!(client.outputs(&workspace.id).await.unwrap().is_empty());
    assert_eq!(client.current_state(&workspace.id).await.unwrap().unwrap().attributes.serial, 1);
}
