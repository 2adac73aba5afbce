//! Typed calls about workspaces, on the double.

use cts_driver_tfc::{
    Client, Error, Platform as _,
    testing::TestTfc,
    types::{
        AgentPoolId, Category, ExecutionMode, NewConfigurationVersion, NewRun, NewVariable,
        NewWorkspace, TagBindingAttributes, VariableChange, Workspace, WorkspaceChange,
    },
};
use serde_json::json;

async fn scene() -> (TestTfc, Client, Workspace) {
    let tfc = TestTfc::new();
    let client = tfc.client();
    let workspace = client.create_workspace("my-org", &NewWorkspace::new("web")).await.unwrap();
    (tfc, client, workspace)
}

/// Case TFC26: a variable needs a key and a category, not a value, and takes changes of single
/// attributes.
#[tokio::test(start_paused = true)]
async fn variables_are_made_changed_and_deleted() {
    let (tfc, client, workspace) = scene().await;
    let id = &workspace.id;
    client.create_variable(id, &NewVariable::new("empty", "")).await.unwrap();
    assert_eq!(tfc.variable("web", "empty").as_deref(), Some(""));
    let nameless = client.create_variable(id, &NewVariable::new("", "x")).await.unwrap_err();
    assert!(matches!(nameless, Error::Input { .. }), "{nameless}");
    let long = client.create_variable(id, &NewVariable::new("k".repeat(129), "")).await;
    assert!(matches!(long.unwrap_err(), Error::Input { .. }));
    let mut described = NewVariable::new("described", "x");
    described.description = "x".repeat(513);
    assert!(client.create_variable(id, &described).await.unwrap_err().is_refused());
    let taken = client.create_variable(id, &NewVariable::new("empty", "")).await.unwrap_err();
    assert!(taken.to_string().contains("Key has already been taken"), "{taken}");
    let mut env = NewVariable::new("empty", "of the environment");
    env.description = "kept".to_owned();
    env.category = Category::Env;
    client.create_variable(id, &env).await.unwrap();

    let found = client.variables(id).await.unwrap();
    let of_input =
        found.iter().find(|one| one.attributes.category == Some(Category::Terraform)).unwrap();
    let change =
        VariableChange { value: Some("new".to_owned().into()), ..VariableChange::default() };
    let changed = client.update_variable(id, &of_input.id, "empty", &change).await.unwrap();
    assert_eq!(changed.attributes.value.as_deref(), Some("new"));
    assert_eq!((changed.attributes.key.as_str(), changed.attributes.hcl), ("empty", false));
    let of_env = found.iter().find(|one| one.attributes.category == Some(Category::Env)).unwrap();
    let changed = client.update_variable(id, &of_env.id, "empty", &change).await.unwrap();
    assert_eq!(changed.attributes.value.as_deref(), Some("new"));
    assert_eq!(changed.attributes.description.as_deref(), Some("kept"), "what is left out stays");
    assert_eq!(changed.attributes.category, Some(Category::Env));
    // A change of nothing changes nothing.
    let same = client.update_variable(id, &of_input.id, "empty", &VariableChange::default()).await;
    assert_eq!(same.unwrap().attributes.value.as_deref(), Some("new"));
    client.delete_variable(id, &of_input.id).await.unwrap();
    assert!(client.delete_variable(id, &of_input.id).await.unwrap_err().is_not_found());
}

/// The platform's own words for a key, a category and a value that are missing.
///
/// Case TFC26: a variable needs a key and a category, not a value, and takes changes of single
/// attributes.
#[tokio::test(start_paused = true)]
async fn the_platform_refuses_variables_without_key_or_category() {
    use cts_driver_tfc::Platform as _;
    let (tfc, _, workspace) = scene().await;
    for (attributes, status) in [
        (json!({"category": "terraform"}), 422),
        (json!({"key": "", "category": "terraform"}), 422),
        (json!({"key": "k"}), 422),
        (json!({"key": "k", "category": "terraform"}), 201),
    ] {
        let body = json!({"data": {"type": "vars", "attributes": attributes}}).to_string();
        let request =
            http::Request::post(format!("http://tfc/api/v2/workspaces/{}/vars", workspace.id))
                .header("authorization", format!("Bearer {}", TestTfc::TOKEN))
                .header("content-type", "application/vnd.api+json")
                .body(body.into())
                .unwrap();
        let answer = tfc.exchange(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{attributes}");
    }
}

/// Case TFC27: a workspace with an invalid name, or whose mode and pool do not fit, is refused
/// before it is sent.
#[tokio::test(start_paused = true)]
async fn workspaces_that_cannot_be_are_not_asked_for() {
    let (tfc, client, _) = scene().await;
    let before = tfc.requests().len();
    let mut agent = NewWorkspace::new("a");
    agent.execution_mode = Some(ExecutionMode::Agent);
    let mut pool = NewWorkspace::new("a");
    pool.execution_mode = Some(ExecutionMode::Remote);
    pool.agent_pool_id = Some("apool-1".parse::<AgentPoolId>().unwrap());
    let mut poolless = NewWorkspace::new("a");
    poolless.agent_pool_id = Some("apool-1".parse().unwrap());
    let mut both = NewWorkspace::new("a");
    both.execution_mode = Some(ExecutionMode::Remote);
    both.operations = Some(true);
    let names = ["", "a b", "a.b", "ä", "a/b"].map(NewWorkspace::new);
    for refused in names.iter().chain([&agent, &pool, &poolless, &both]) {
        let error = client.create_workspace("my-org", refused).await.unwrap_err();
        assert!(matches!(error, Error::Input { .. }), "{refused:?}: {error}");
    }
    assert_eq!(tfc.requests().len(), before, "nothing was sent");
    let taken = client.create_workspace("my-org", &NewWorkspace::new("web")).await.unwrap_err();
    assert!(taken.is_refused() && taken.to_string().contains("already been taken"), "{taken}");
}

/// Case TFC28: 26 tags are listed over pages, and more than 10 tag bindings are refused.
#[tokio::test(start_paused = true)]
async fn many_tags_are_listed_and_many_bindings_refused() {
    let (tfc, client, workspace) = scene().await;
    let tags: Vec<String> = (0..126).map(|number| format!("tag-{number:03}")).collect();
    client.add_tags(&workspace.id, &tags).await.unwrap();
    let listed = client.tags(&workspace.id).await.unwrap();
    let listed: Vec<String> = listed.into_iter().map(|tag| tag.attributes.name).collect();
    assert_eq!(listed, tags, "over two pages");
    client.remove_tags(&workspace.id, &tags[1..]).await.unwrap();
    assert_eq!(tfc.tags("web"), ["tag-000"]);

    let binding =
        |number: usize| TagBindingAttributes { key: format!("k{number}"), value: "v".into() };
    let many: Vec<_> = (0..26).map(binding).collect();
    let error = client.set_tag_bindings(&workspace.id, &many).await.unwrap_err();
    assert!(error.to_string().contains("cannot exceed 10 bindings per resource"), "{error}");
    client.set_tag_bindings(&workspace.id, &many[..10]).await.unwrap();
    let listed = client.tag_bindings(&workspace.id, true).await.unwrap();
    assert_eq!(listed.len(), 10);
    // What is there counts, too: the platform says the same.
    let error = client.set_tag_bindings(&workspace.id, &many[10..11]).await.unwrap_err();
    assert!(error.to_string().contains("cannot exceed 10 bindings per resource"), "{error}");
}

/// Case TFC29: safe-delete of a locked or managing workspace is a 409, of a free one a 204.
#[tokio::test(start_paused = true)]
async fn a_workspace_is_deleted_only_when_it_is_free() {
    let (tfc, client, workspace) = scene().await;
    let id = &workspace.id;
    client.lock(id, "a test").await.unwrap();
    let twice = client.lock(id, "a test").await.unwrap_err();
    assert!(twice.is_conflict() && twice.to_string().contains("is locked by"), "{twice}");
    let locked = client.safe_delete_workspace(id).await.unwrap_err();
    assert!(locked.is_conflict() && locked.to_string().contains("locked"), "{locked}");
    client.unlock(id, false).await.unwrap();
    assert!(client.unlock(id, true).await.unwrap_err().is_conflict());

    let options = NewConfigurationVersion::default();
    let version = client.create_configuration_version(id, options).await.unwrap();
    client.upload(&version.attributes.upload_url.unwrap(), bytes::Bytes::new()).await.unwrap();
    let apply = |destroy: bool| {
        let mut run = NewRun::new(id.clone());
        run.auto_apply = Some(true);
        run.is_destroy = Some(destroy);
        run
    };
    client.create_run(&apply(false)).await.unwrap();
    tfc.wait_for_run("web", "applied").await;
    let manages = client.safe_delete_workspace(id).await.unwrap_err();
    assert!(
        manages.is_conflict() && manages.to_string().contains("manages resources"),
        "{manages}"
    );
    let destroyed = client.create_run(&apply(true)).await.unwrap().id;
    tfc.wait_until(|tfc| {
        tfc.runs("web").iter().any(|run| run.id == destroyed.as_str() && run.status == "applied")
    })
    .await;
    client.safe_delete_workspace(id).await.unwrap();
    assert!(client.workspace(id).await.unwrap_err().is_not_found());
    assert!(client.safe_delete_workspace(id).await.unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_workspace_is_changed_in_what_is_named() {
    let (_tfc, client, workspace) = scene().await;
    let mut change = WorkspaceChange::default();
    assert!(change.is_empty());
    change.description = Some("new".to_owned());
    let changed = client.update_workspace(&workspace.id, &change).await.unwrap();
    assert_eq!(changed.attributes.description.as_deref(), Some("new"));
    assert_eq!(changed.attributes.mode(), ExecutionMode::Remote);
    client.force_delete_workspace(&workspace.id).await.unwrap();
}

/// Methods that the driver's client has no calls for.
#[tokio::test]
async fn tags_are_added_replaced_and_removed_by_the_method_of_the_request() {
    let (tfc, client, workspace) = scene().await;
    let path = format!("http://tfc/api/v2/workspaces/{}/relationships/tags", workspace.id);
    let ask = async |method: &str, names: &[&str]| {
        let tags = names.iter().map(|name| json!({"type": "tags", "attributes": {"name": name}}));
        let body = json!({"data": tags.collect::<Vec<_>>()}).to_string();
        let request = http::Request::builder()
            .method(method)
            .uri(path.as_str())
            .header("authorization", format!("Bearer {}", TestTfc::TOKEN))
            .header("content-type", "application/vnd.api+json")
            .body(bytes::Bytes::from(body))
            .unwrap();
        let status = tfc.exchange(request).await.unwrap().status().as_u16();
        let found = client.tags(&workspace.id).await.unwrap();
        let mut names: Vec<_> = found.into_iter().map(|tag| tag.attributes.name).collect();
        names.sort();
        (status, names.join(" "))
    };
    assert_eq!(ask("POST", &["a", "b"]).await, (204, "a b".to_owned()));
    assert_eq!(ask("POST", &["c"]).await, (204, "a b c".to_owned()));
    assert_eq!(ask("DELETE", &["a"]).await, (204, "b c".to_owned()));
    assert_eq!(ask("PATCH", &["d"]).await, (204, "d".to_owned()));
    assert_eq!(ask("PUT", &["e"]).await, (405, "d".to_owned()));
}
