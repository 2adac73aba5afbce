//! What a pass over a large cluster asks of AWS where there is nothing to do.

use std::{collections::BTreeMap, sync::Arc};

use acl_controller::{Reconciler as _, SecretStore, TaskSource, Writer};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::stub::{Stub, ok};
use crate::scale::{CLUSTER, Large};

/// Tasks on a page, as AWS has them at most.
const PAGE: usize = 100;

fn arn(number: usize) -> String {
    format!("arn:aws:ecs:us-east-1:123456789012:task/c1/{number:032x}")
}

fn described(arn: &Value, services: usize) -> Value {
    let id = arn.as_str().unwrap().rsplit_once('/').unwrap().1;
    let family = usize::from_str_radix(id, 16).unwrap() % services;
    json!({"taskArn": arn, "lastStatus": "RUNNING", "desiredStatus": "RUNNING",
        "taskDefinitionArn":
            format!("arn:aws:ecs:us-east-1:123456789012:task-definition/service-{family}:3"),
        "tags": [{"key": "consul.hashicorp.com/mesh", "value": "true"}]})
}

/// All tasks run, on full pages; the last page names no other.
fn cluster(tasks: usize, services: usize, action: &str, input: &Value) -> ResponseTemplate {
    match (action, input["desiredStatus"].as_str()) {
        ("ListTasks", Some("RUNNING")) => {
            let page: usize = input["nextToken"].as_str().map_or(0, |page| page.parse().unwrap());
            let arns: Vec<String> = (page * PAGE..tasks.min((page + 1) * PAGE)).map(arn).collect();
            let next = ((page + 1) * PAGE < tasks).then(|| (page + 1).to_string());
            ok(&json!({"taskArns": arns, "nextToken": next}))
        }
        ("ListTasks", Some("STOPPED")) => ok(&json!({"taskArns": []})),
        ("DescribeTasks", _) => {
            let arns = input["tasks"].as_array().unwrap();
            let tasks: Vec<Value> = arns.iter().map(|arn| described(arn, services)).collect();
            ok(&json!({"tasks": tasks, "failures": []}))
        }
        other => panic!("{other:?}"),
    }
}

/// The calls that a pass with nothing to do makes over so many tasks: of service tokens, then of login
/// tokens; each the calls to Consul, and those to AWS by their action.
pub(crate) async fn calls_of_a_pass(
    tasks: usize,
) -> [(Vec<String>, BTreeMap<&'static str, usize>); 2] {
    let large = Large::new(tasks);
    let secrets = large.secrets();
    large.make_everything(&large.service_tokens(&large.task_source(), &secrets)).await;
    let logins = large.login_tokens(&large.task_source());
    logins.prepare(&Writer::new()).await.unwrap();

    let services = large.services();
    let stub = Stub::start(move |action, input| cluster(tasks, services, action, input)).await;
    let aws = stub.aws(1).await;
    let tasks: Arc<dyn TaskSource> = Arc::new(aws.tasks(CLUSTER));
    // A read of a secret would be a call that the stub does not know.
    let secrets: Arc<dyn SecretStore> = Arc::new(aws.secrets());
    let mut before = 0;
    let made = large
        .measured("service tokens, from ECS", &large.service_tokens(&tasks, &secrets), false)
        .await;
    let service_tokens = (made, counts(&stub, &mut before).await);
    let made = large.measured("login tokens, from ECS", &large.login_tokens(&tasks), false).await;
    [service_tokens, (made, counts(&stub, &mut before).await)]
}

/// What ECS's API cannot be asked in fewer calls: each page is listed and described; one more list for
/// tasks that stop, which has no task.
pub(crate) fn fewest(tasks: usize) -> BTreeMap<&'static str, usize> {
    let pages = tasks.div_ceil(PAGE);
    BTreeMap::from([("DescribeTasks", pages), ("ListTasks", pages + 1)])
}

#[tokio::test]
async fn a_pass_over_a_hundred_pages_makes_two_calls_for_each() {
    let [service_tokens, login_tokens] = calls_of_a_pass(10_000).await;
    assert_eq!(service_tokens.0, ["GET /v1/acl/policies", "GET /v1/acl/tokens"]);
    assert_eq!(login_tokens.0.len(), 2, "tokens and services of the node: {:?}", login_tokens.0);
    assert_eq!((service_tokens.1, login_tokens.1), (fewest(10_000), fewest(10_000)));
}

/// The calls since the last time.
async fn counts(stub: &Stub, before: &mut usize) -> BTreeMap<&'static str, usize> {
    let calls = stub.calls().await;
    let mut counts = BTreeMap::new();
    for (action, _) in calls.iter().skip(*before) {
        let known = ["DescribeTasks", "ListTasks"].into_iter().find(|known| known == action);
        *counts.entry(known.unwrap_or("another")).or_default() += 1;
    }
    *before = calls.len();
    counts
}
