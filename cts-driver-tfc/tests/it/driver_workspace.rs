//! What becomes of a task's workspace.

use std::{fs, io::Read as _, sync::Arc};

use bytes::Bytes;
use cts_driver_tfc::{
    ExchangeError, Platform, TfcFactory,
    testing::{Fault, TestTfc},
    types::NewConfigurationVersion,
};
use cts_tasks::{
    ApplyRequest, DriverFactory as _, Literal, Outcome, ProviderBlock, RunContext, Task, Verdict,
};
use http::{Method, Request, Response};
use serde_json::{Value, json};

use crate::scene::{Scene, count, inputs, read, web, with_block};

fn text_of(archive: &[u8], name: &str) -> String {
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
    for entry in tar.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().to_string_lossy() == name {
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            return text;
        }
    }
    panic!("{name} is not in the archive")
}

/// Case TFC9: a new workspace has the version of Terraform that the task names.
#[tokio::test(start_paused = true)]
async fn a_workspace_is_made_as_the_task_says() {
    let tfc = TestTfc::new();
    let pool = tfc.add_pool("pool");
    let settings = json!({"workspaces": {"prefix": "cts_", "tags": ["Team-A"]}});
    let scene = Scene::with(tfc, settings).await;
    let mut task = with_block(&[
        ("execution_mode", "agent"),
        ("agent_pool_name", "pool"),
        ("terraform_version", "1.9.4"),
    ]);
    task.description = "rules of the web".to_owned();
    scene.prepared(&task).await;
    let attribute = |name: &str| scene.tfc.attribute("cts_web", name);
    assert_eq!(attribute("terraform-version"), Some(json!("1.9.4")));
    assert_eq!(attribute("execution-mode"), Some(json!("agent")));
    assert_eq!(attribute("auto-apply"), Some(json!(true)));
    assert_eq!(attribute("description"), Some(json!("rules of the web")));
    assert_eq!(scene.tfc.tags("cts_web"), ["source:cts", "team-a"]);
    assert!(!pool.is_empty());
    let missing = with_block(&[("execution_mode", "agent"), ("agent_pool_name", "nobody")]);
    let mut missing_task = missing;
    missing_task.name = "other".to_owned().try_into().unwrap();
    let error = scene.refused(&missing_task).await;
    assert!(error.contains("has no agent pool \"nobody\""), "{error}");
    assert_eq!(scene.tfc.attribute("cts_other", "name"), None, "nothing is made");
}

#[tokio::test(start_paused = true)]
async fn a_found_workspace_keeps_its_manual_apply_and_gets_what_the_task_sets() {
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({"terraform-version": "1.0.0"}), &["own"]);
    let scene = Scene::with(tfc, json!({})).await;
    scene.prepared(&with_block(&[("terraform_version", "1.9.4")])).await;
    assert_eq!(scene.tfc.attribute("web", "auto-apply"), Some(json!(false)));
    assert_eq!(scene.tfc.attribute("web", "terraform-version"), Some(json!("1.9.4")));
    assert_eq!(scene.tfc.tags("web"), ["own", "source:cts"]);
    // Twice is as good as once.
    let before = scene.tfc.requests().len();
    scene.prepared(&with_block(&[("terraform_version", "1.9.4")])).await;
    let requests = scene.tfc.requests();
    let writes = requests[before..].iter().filter(|request| request.method != "GET");
    assert_eq!(writes.count(), 0, "{:?}", &requests[before..]);
}

/// Case TFC33: a workspace with a repository, the mode `local`, a denied tag or no allowed one is
/// refused and left alone.
#[tokio::test(start_paused = true)]
async fn a_workspace_that_cannot_serve_is_refused_and_left_alone() {
    let lists = json!({"workspaces": {"tags_allowlist": ["allowed"], "tags_denylist": ["denied"]}});
    for (attributes, tags, settings, part) in [
        (
            json!({"vcs-repo": {"identifier": "x"}}),
            &["allowed"][..],
            json!({}),
            "connected to a repository",
        ),
        (json!({"execution-mode": "local"}), &[], json!({}), "has the execution mode 'local'"),
        (
            json!({}),
            &["allowed", "Denied"],
            lists.clone(),
            "has the tag \"denied\", which tags_denylist forbids",
        ),
        (json!({}), &["other"], lists.clone(), "has none of the tags in tags_allowlist (allowed)"),
    ] {
        let tfc = TestTfc::new();
        tfc.add_workspace("web", &attributes, tags);
        let scene = Scene::with(tfc, settings).await;
        let error = scene.refused(&web()).await;
        assert!(error.contains(part) && error.contains("workspace \"web\""), "{error}");
        let requests = scene.tfc.requests();
        assert!(requests.iter().all(|request| request.method == "GET"), "{requests:?}");
        assert_eq!(scene.tfc.tags("web"), tags, "nothing is modified");
    }
    let tfc = TestTfc::new();
    tfc.add_workspace("web", &json!({}), &["allowed"]);
    Scene::with(tfc, lists).await.prepared(&web()).await;
}

#[tokio::test(start_paused = true)]
async fn an_upload_of_somebody_else_is_not_taken_over() {
    let tfc = TestTfc::new();
    let id = tfc.add_workspace("web", &json!({"source-name": "somebody"}), &[]).parse().unwrap();
    let client = tfc.client();
    let options = NewConfigurationVersion::default();
    let version = client.create_configuration_version(&id, options).await.unwrap();
    client.upload(&version.attributes.upload_url.unwrap(), "theirs".into()).await.unwrap();
    let scene = Scene::with(tfc, json!({})).await;
    let before = scene.tfc.requests().len();
    let error = scene.refused(&web()).await;
    assert!(
        error.contains(
            "workspace \"web\" has a configuration version not uploaded by this application"
        ),
        "{error}"
    );
    let requests = scene.tfc.requests();
    assert!(requests[before..].iter().all(|request| request.method == "GET"), "left as it is");
    // The tag says whose it is.
    client.add_tags(&id, &["source:cts".to_owned()]).await.unwrap();
    scene.prepared(&web()).await;
}

/// State, last run, tags and our variables each show whose a workspace is.
#[tokio::test(start_paused = true)]
async fn a_used_workspace_of_somebody_else_is_not_taken_over() {
    let marked = json!({"key": "services", "value": "", "category": "terraform",
        "description": "Managed by Consul-Terraform-Sync"});
    let unmarked = json!({"key": "region", "value": "eu", "category": "terraform",
        "description": "of the team"});
    for what in ["has a state", "has had runs", "manages 2 resources"] {
        let tfc = TestTfc::new();
        let resources = if what.starts_with("manages") { 2 } else { 0 };
        tfc.add_workspace("web", &json!({"resource-count": resources}), &["team"]);
        tfc.add_variable("web", &unmarked);
        match what {
            "has a state" => tfc.add_state("web"),
            "has had runs" => tfc.add_past_run("web"),
            _ => {}
        }
        let scene = Scene::with(tfc, json!({})).await;
        let before = scene.tfc.requests().len();
        let error = scene.refused(&web()).await;
        assert!(error.contains(what) && error.contains("to hand it over"), "{error}");
        let requests = scene.tfc.requests();
        assert!(requests[before..].iter().all(|request| request.method == "GET"), "{requests:?}");
        // One variable of ours shows that it was used by this application.
        scene.tfc.add_variable("web", &marked);
        scene.prepared(&web()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn tags_that_were_taken_away_are_added_again_by_the_next_start() {
    let settings = json!({"workspaces": {"tags": ["team-a"]}});
    let scene = Scene::with(TestTfc::new(), settings).await;
    let driver = scene.prepared(&web()).await;
    let client = scene.tfc.client();
    let id = client.workspace_named("my-org", "web").await.unwrap().id;
    client.add_tags(&id, &["own".to_owned()]).await.unwrap();
    client.remove_tags(&id, &["source:cts", "team-a"].map(str::to_owned)).await.unwrap();
    driver.prepare(&RunContext::default()).await.unwrap();
    assert_eq!(scene.tfc.tags("web"), ["own", "source:cts", "team-a"]);
}

/// Case TFC16: a request of the preparation that is answered with 500 twice succeeds in the end.
#[tokio::test(start_paused = true)]
async fn failures_that_pass_do_not_fail_the_preparation() {
    let scene = Scene::new().await;
    for path in ["/workspaces/web", "/relationships/tags", "/configuration-versions", "/vars"] {
        scene.tfc.inject(None, path, Fault::Status(500), 2);
    }
    scene.prepared(&web()).await;
    let failed = scene.tfc.requests().iter().filter(|request| request.status == 500).count();
    assert_eq!(failed, 8, "every fault was met");
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_was_lost_is_found_again() {
    let scene = Scene::new().await;
    scene.tfc.inject(Some(Method::POST), "/organizations/my-org/workspaces", Fault::AnswerLost, 1);
    scene.tfc.inject(Some(Method::POST), "/vars", Fault::AnswerLost, 1);
    let driver = scene.prepared(&web()).await;
    let context = RunContext::default();
    driver.apply(ApplyRequest::Inputs(&inputs(&["a"])), &context).await.unwrap();
    let requests = scene.tfc.requests();
    assert_eq!(count(&requests, "POST", "/organizations/my-org/workspaces"), 1);
    assert_eq!(count(&requests, "POST", "/vars"), 1, "the variable is found, too");
    assert_eq!(scene.tfc.tags("web"), ["source:cts"]);
}

/// Case TFC11: source and version of `required_providers` stand in `main.tf` as written.
#[tokio::test(start_paused = true)]
async fn sources_and_versions_of_providers_stand_in_the_upload() {
    let tfc = TestTfc::new();
    let provider = json!({"source": "namespace/myprovider", "version": "1.3.0"});
    let scene =
        Scene::with(tfc, json!({"required_providers": {"myprovider": provider, "other": "2"}}))
            .await;
    let mut task = web();
    task.providers = vec!["myprovider".to_owned()];
    task.variables.insert("zone".to_owned(), Literal::from("a"));
    scene.prepared(&task).await;
    let upload = scene.tfc.uploads("web").pop().unwrap();
    let main = text_of(&upload, "main.tf");
    for part in [
        "source  = \"namespace/myprovider\"",
        "version = \"1.3.0\"",
        "required_version = \">= 0.13.0\"",
        "source   = \"org/rules/cts\"",
        "version  = \"1.2.3\"",
    ] {
        assert!(main.contains(part), "{part} in {main}");
    }
    assert!(
        !main.contains("backend") && !main.contains("cloud {") && !main.contains("other"),
        "{main}"
    );
    assert!(text_of(&upload, "variables.tf").contains("variable \"services\""));
    assert_eq!(scene.tfc.variable("web", "zone").as_deref(), Some("\"a\""));
}

#[tokio::test(start_paused = true)]
async fn a_local_module_is_uploaded_and_again_only_when_it_changed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("main.tf"), "variable \"services\" {}\n").unwrap();
    fs::write(folder.path().join("terraform.tfstate"), "secret").unwrap();
    let scene = Scene::new().await;
    let mut task = web();
    task.module = folder.path().to_string_lossy().into_owned();
    task.version = None;
    let driver = scene.prepared(&task).await;
    scene.prepared(&task).await;
    let uploads = scene.tfc.uploads("web");
    assert_eq!(uploads.len(), 1, "the same files are not uploaded twice");
    assert!(text_of(&uploads[0], "main.tf").contains("source   = \"./modules/web\""));
    assert_eq!(text_of(&uploads[0], "modules/web/main.tf"), "variable \"services\" {}\n");

    // Another process uploads the same bytes.
    let again = Scene::with(scene.tfc.clone(), json!({})).await;
    again.prepared(&task).await;
    let uploads = scene.tfc.uploads("web");
    assert_eq!(uploads.len(), 2);
    assert_eq!(uploads[0], uploads[1], "byte for byte");

    fs::write(folder.path().join("main.tf"), "variable \"services\" { default = 1 }\n").unwrap();
    let context = RunContext::default();
    driver.apply(ApplyRequest::Inputs(&inputs(&["a"])), &context).await.unwrap();
    let uploads = scene.tfc.uploads("web");
    assert_eq!(uploads.len(), 3);
    assert_ne!(uploads[1], uploads[2]);
}

#[tokio::test(start_paused = true)]
async fn secrets_go_by_sensitive_variables_and_leftovers_are_taken_away() {
    let tfc = TestTfc::new();
    let mut block = ProviderBlock::new("local");
    block.arguments.insert("password".to_owned(), Literal::from("hunter2"));
    block.task_env.insert("API_KEY".to_owned(), "k3y".to_owned().into());
    let body = cts_tasks::ConfigValue::from(
        json!({"organization": "my-org", "token": TestTfc::TOKEN, "required_providers": {}}),
    );
    let consul = cts_tasks::ConsulConfig::default();
    let providers = [block];
    let mut settings = cts_tasks::DriverSettings::new(&consul, std::path::Path::new("/"));
    settings.body = Some(&body);
    settings.providers = &providers;
    let settings =
        cts_driver_tfc::Settings::read_with(settings, &|_| None, &mut Vec::new()).unwrap();
    let factory = TfcFactory::new(settings, Some(Arc::new(tfc.clone())));
    factory.start().await.unwrap();
    let mut task = web();
    task.providers = vec!["local".to_owned()];
    task.variables.insert("zone".to_owned(), Literal::from("a"));
    task.env.set("TASK_KEY", "t4sk").unwrap();
    factory.driver(&task).unwrap().prepare(&RunContext::default()).await.unwrap();
    assert!(tfc.variable("web", "local").unwrap().contains("hunter2"));
    assert_eq!(tfc.variable("web", "API_KEY").as_deref(), Some("k3y"));
    assert_eq!(tfc.variable("web", "TASK_KEY").as_deref(), Some("t4sk"));
    let upload = tfc.uploads("web").pop().unwrap();
    for name in ["main.tf", "variables.tf", "variables.module.tf"] {
        assert!(!text_of(&upload, name).contains("hunter2"), "{name}");
    }
    let client = tfc.client();
    let workspace = client.workspace_named("my-org", "web").await.unwrap().id;
    let given = client.variables(&workspace).await.unwrap();
    assert!(
        given
            .iter()
            .all(|variable| variable.attributes.sensitive && variable.attributes.value.is_none())
    );
    // The same values are not written again by this process.
    let writes = |tfc: &TestTfc| {
        count(&tfc.requests(), "PATCH", "/vars/*") + count(&tfc.requests(), "POST", "/vars")
    };
    let before = writes(&tfc);
    factory.driver(&task).unwrap().prepare(&RunContext::default()).await.unwrap();
    assert_eq!(writes(&tfc), before);
    task.variables.clear();
    factory.driver(&task).unwrap().prepare(&RunContext::default()).await.unwrap();
    assert_eq!(tfc.variable("web", "zone"), None);
    assert!(tfc.variable("web", "local").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_old_release_has_no_tags_and_gets_none() {
    let scene = Scene::with(TestTfc::builder().release("v202104-1").build(), json!({})).await;
    scene.prepared(&web()).await;
    assert_eq!(count(&scene.tfc.requests(), "POST", "/relationships/tags"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_or_organization_is_reported_at_the_start() {
    for (more, part) in [
        (json!({"token": "wrong"}), "the token is not known at https://app.terraform.io"),
        (json!({"organization": "other"}), "organization \"other\" was not found"),
    ] {
        let (settings, _) = read(&more, &[]).unwrap();
        let tfc = TestTfc::new();
        let factory = TfcFactory::new(settings, Some(Arc::new(tfc)));
        let error = factory.start().await.unwrap_err();
        assert!(error.to_string().contains(part) && !error.is_retryable(), "{error}");
        let [found] = factory.check().await.try_into().unwrap();
        assert_eq!(found.result, Verdict::Missing);
        assert!(found.detail.contains(part), "{}", found.detail);
    }
}

/// `doctor` asks what a start asks, and leaves everything as it is.
#[tokio::test(start_paused = true)]
async fn a_check_asks_for_the_organization_and_changes_nothing() {
    let (settings, _) = read(&json!({}), &[]).unwrap();
    let tfc = TestTfc::new();
    let factory = TfcFactory::new(settings, Some(Arc::new(tfc.clone())));
    let [found] = factory.check().await.try_into().unwrap();
    assert_eq!(found.result, Verdict::Ok, "{}", found.detail);
    assert!(found.detail.ends_with("has the organization my-org"), "{}", found.detail);
    assert!(tfc.requests().iter().all(|request| request.method == "GET"));
}

/// Case TFC24: an upload to a bad address, of a path that is no folder, or of none is an error
/// without a run.
#[tokio::test(start_paused = true)]
async fn a_module_that_is_gone_or_no_folder_makes_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("main.tf").to_string_lossy().into_owned();
    fs::write(&file, "").unwrap();
    for (module, part) in [
        ("./no-such-module", "cannot read /nowhere/no-such-module"),
        (file.as_str(), "main.tf is not a directory"),
    ] {
        let scene = Scene::new().await;
        let mut task = web();
        task.version = None;
        module.clone_into(&mut task.module);
        let error = scene.refused(&task).await;
        assert!(error.contains(part), "{error}");
        let applied = apply(&scene, &task).await.unwrap_err().to_string();
        assert!(applied.contains(part), "{applied}");
        assert!(scene.tfc.runs("web").is_empty() && scene.tfc.uploads("web").is_empty());
    }
}

/// Applies to a driver that was not prepared, which it makes good.
async fn apply(scene: &Scene, task: &Task) -> cts_tasks::Result<Outcome> {
    let inputs = inputs(&["a"]);
    scene.driver(task).apply(ApplyRequest::Inputs(&inputs), &RunContext::default()).await
}

/// The double, which names another place to upload to.
#[derive(Debug)]
struct Elsewhere {
    tfc: TestTfc,
    address: Value,
}

#[async_trait::async_trait]
impl Platform for Elsewhere {
    async fn exchange(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ExchangeError> {
        let answer = self.tfc.exchange(request).await?;
        Ok(answer.map(|body| {
            let mut document: Value = serde_json::from_slice(&body).unwrap_or_default();
            match document.pointer_mut("/data/attributes/upload-url") {
                Some(address) => {
                    *address = self.address.clone();
                    document.to_string().into()
                }
                None => body,
            }
        }))
    }
}

/// Case TFC24: an upload to a bad address, of a path that is no folder, or of none is an error
/// without a run.
#[tokio::test(start_paused = true)]
async fn an_upload_that_cannot_be_made_is_followed_by_no_run() {
    for address in [json!(null), json!(""), json!("ftp://s3cr3t/x"), json!("http://s3cr3t:99999/")]
    {
        let tfc = TestTfc::new();
        let (settings, _) = read(&json!({}), &[]).unwrap();
        let platform = Arc::new(Elsewhere { tfc: tfc.clone(), address: address.clone() });
        let scene = Scene { tfc, factory: TfcFactory::new(settings, Some(platform)) };
        scene.factory.start().await.unwrap();
        let refused = scene.refused(&web()).await;
        let applied = apply(&scene, &web()).await.unwrap_err().to_string();
        for error in [refused, applied] {
            assert!(error.contains("upload configuration"), "{address}: {error}");
            assert!(!error.contains("s3cr3t"), "{error}");
        }
        assert!(scene.tfc.runs("web").is_empty() && scene.tfc.uploads("web").is_empty());
    }
    // An address that is none any more.
    let scene = Scene::new().await;
    scene.tfc.inject(Some(Method::PUT), "/_archivist/cv", Fault::Status(404), 2);
    let refused = scene.refused(&web()).await;
    assert!(refused.contains("upload configuration: "), "{refused}");
    apply(&scene, &web()).await.unwrap_err();
    assert!(scene.tfc.runs("web").is_empty());
    apply(&scene, &web()).await.unwrap();
}
