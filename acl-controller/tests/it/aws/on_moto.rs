//! The same on moto, which knows nothing of our stubs.

use acl_controller::{
    SecretStore as _, TaskSource as _,
    secret_store::{Replaced, SecretVersion},
    testing::{Moto, secret_store as contract},
};
use consul_watch::testing::parts::Suite;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use super::stub::connect;

const SUITE: Suite = Suite("acl-controller on AWS");

async fn moto(case: &str) -> Option<Moto> {
    let part = SUITE.part("moto_server", case)?;
    Some(Moto::start(&part.path).await.unwrap())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tasks_of_a_cluster_with_their_tags() {
    let Some(moto) = moto("tasks").await else { return };
    let ecs = async |action: &str, input: Value| moto.ecs(action, &input).await.unwrap();
    for cluster in ["prod", "stage"] {
        ecs("CreateCluster", json!({"clusterName": cluster})).await;
    }
    let container = json!({"name": "app", "image": "app", "memory": 64, "cpu": 1});
    ecs("RegisterTaskDefinition", json!({"family": "web", "containerDefinitions": [container]}))
        .await;
    let run = async |cluster: &str, tags: Value| {
        let input = json!({"cluster": cluster, "taskDefinition": "web", "launchType": "FARGATE",
            "tags": tags});
        text(&ecs("RunTask", input).await["tasks"][0]["taskArn"])
    };
    let mesh = json!([{"key": "consul.hashicorp.com/mesh", "value": "true"}]);
    let arns = [run("prod", mesh.clone()).await, run("prod", json!([])).await];
    let stopped = run("prod", mesh.clone()).await;
    ecs("StopTask", json!({"cluster": "prod", "task": stopped, "reason": "test"})).await;
    run("stage", mesh).await;

    let tasks = connect(moto.endpoint(), 3).await.tasks("prod");
    for _again in 0..3 {
        let mut listing = tasks.tasks().await.unwrap();
        assert!(listing.undescribed.is_empty(), "{:?}", listing.undescribed);
        listing.tasks.sort_by_key(|task| arns.iter().position(|arn| *arn == task.arn));
        let [first, second] = &listing.tasks[..] else { panic!("{listing:?}") };
        assert_eq!((&first.arn, &second.arn), (&arns[0], &arns[1]));
        assert_eq!(first.tags["consul.hashicorp.com/mesh"], "true");
        assert_eq!(first.last_status, "RUNNING");
        assert!(first.task_definition_arn.ends_with(":task-definition/web:1"));
    }
    let error = connect(moto.endpoint(), 3).await.tasks("nothing").tasks().await.unwrap_err();
    assert!(!error.is_retryable());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.starts_with("ClusterNotFoundException"), "{cause}");
}

#[tokio::test]
async fn secrets_with_their_versions() {
    let Some(moto) = moto("secrets").await else { return };
    let create = async |input: Value| moto.secrets("CreateSecret", &input).await.unwrap();
    let web = create(json!({"Name": "prod-web", "SecretString": "{}"})).await;
    create(json!({"Name": "prod-empty"})).await;
    create(json!({"Name": "stage-web", "SecretString": "{}"})).await;
    let store = connect(moto.endpoint(), 3).await.secrets();

    let read = store.get("prod-web").await.unwrap().unwrap();
    assert_eq!(read.value.as_ref().unwrap().expose_secret(), "{}");
    assert_eq!(read.version.as_str(), web["VersionId"]);
    assert!(store.get("prod-nothing").await.unwrap().is_none());
    assert!(store.get("prod-empty").await.unwrap().unwrap().value.is_none());

    for name in ["prod-web", "prod-empty"] {
        let read = store.get(name).await.unwrap().unwrap();
        let [one, two] = ["one", "two"].map(SecretString::from);
        let Replaced::Done(version) = store.replace(name, &read.version, &one).await.unwrap()
        else {
            panic!("{name}");
        };
        let late = store.replace(name, &read.version, &two).await.unwrap();
        assert_eq!(late, Replaced::Conflict);
        let now = store.get(&name.replace("prod-web", &text(&web["ARN"]))).await.unwrap().unwrap();
        assert_eq!(now.version, version);
        assert_eq!(now.value.unwrap().expose_secret(), "one");
    }
    let versions = store.versions("prod-").await.unwrap().unwrap();
    assert_eq!(versions.keys().collect::<Vec<_>>(), ["prod-empty", "prod-web"]);
    let current = store.get("prod-web").await.unwrap().unwrap().version;
    assert_eq!(versions["prod-web"], current);
    assert_ne!(versions["prod-web"], SecretVersion::new(text(&web["VersionId"])));

    moto.secrets("DeleteSecret", &json!({"SecretId": "prod-web"})).await.unwrap();
    let error = store.get("prod-web").await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(!error.is_retryable() && cause.starts_with("InvalidRequestException"), "{cause}");
}

#[tokio::test]
async fn moto_keeps_the_contract_of_a_store() {
    let Some(moto) = moto("the contract of a secret store").await else { return };
    let store = connect(moto.endpoint(), 3).await.secrets();
    let create = async |name: &str| {
        let input = json!({"Name": name, "SecretString": "{}"});
        moto.secrets("CreateSecret", &input).await.unwrap();
    };
    for name in ["prod-a", "prod-b", "prod-c", "prod-d"] {
        create(name).await;
    }
    contract::what_is_written_can_be_read(&store, "prod-a").await;
    contract::an_older_version_is_a_conflict(&store, "prod-b").await;
    contract::a_list_tells_the_same_versions(&store, "prod-c").await;
    contract::nothing_shows_a_value(&store, "prod-d").await;
    let case = "one of many writers gets through";
    SUITE.not_applicable("moto_server", case, "moto compares and writes in two steps");
}
