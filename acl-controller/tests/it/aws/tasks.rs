//! The listing of tasks: pages, batches, tasks that drain, refusals.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use acl_controller::{Error, TaskSource as _};
use consul_watch::error_chain;
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::stub::{Stub, ok, refused};

const CLUSTER: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/prod";

fn arn(number: usize) -> String {
    format!("arn:aws:ecs:us-east-1:123456789012:task/prod/{number:032x}")
}

fn task(arn: &Value, last_status: &str) -> Value {
    json!({"taskArn": arn, "lastStatus": last_status, "desiredStatus": "RUNNING",
        "taskDefinitionArn": "arn:aws:ecs:us-east-1:123456789012:task-definition/web:3",
        "tags": [{"key": "consul.hashicorp.com/mesh", "value": "true"}, {"key": "bare"}]})
}

/// 250 tasks that run, on pages of 100 with an empty one between them; three that stop.
fn cluster(action: &str, input: &Value) -> ResponseTemplate {
    assert_eq!(input["cluster"], CLUSTER);
    match (action, input["desiredStatus"].as_str()) {
        ("ListTasks", Some("RUNNING")) => {
            let (numbers, next) = match input["nextToken"].as_str() {
                None => (0..100, Some("a")),
                Some("a") => (0..0, Some("b")),
                Some("b") => (100..200, Some("c")),
                Some("c") => (200..250, None),
                other => panic!("{other:?}"),
            };
            ok(&json!({"taskArns": numbers.map(arn).collect::<Vec<_>>(), "nextToken": next}))
        }
        // The last one began to stop after the first list was had.
        ("ListTasks", Some("STOPPED")) => ok(&json!({"taskArns": [arn(900), arn(901), arn(249)]})),
        ("DescribeTasks", _) => {
            let arns = input["tasks"].as_array().unwrap();
            assert!(!arns.is_empty() && arns.len() <= 100, "{}", arns.len());
            assert_eq!(input["include"], json!(["TAGS"]));
            let draining = arns.contains(&json!(arn(900)));
            let status = |arn: &Value| match arn {
                gone if *gone == arn_value(901) => "STOPPED",
                _ if draining => "DEPROVISIONING",
                _ => "RUNNING",
            };
            let tasks: Vec<Value> = arns.iter().map(|arn| task(arn, status(arn))).collect();
            ok(&json!({"tasks": tasks, "failures": []}))
        }
        other => panic!("{other:?}"),
    }
}

fn arn_value(number: usize) -> Value {
    json!(arn(number))
}

/// Case ACL6: every page of `ListTasks` is read, each with the token of the one before.
#[tokio::test]
async fn all_pages_are_read_and_a_task_is_there_until_it_has_stopped() {
    let stub = Stub::start(cluster).await;
    let listing = stub.aws(3).await.tasks(CLUSTER).tasks().await.unwrap();
    let found: BTreeMap<&str, &str> =
        listing.tasks.iter().map(|task| (task.arn.as_str(), task.last_status.as_str())).collect();
    assert_eq!((listing.tasks.len(), found.len(), listing.undescribed.len()), (251, 251, 0));
    assert_eq!(found[arn(900).as_str()], "DEPROVISIONING");
    assert_eq!(found[arn(249).as_str()], "DEPROVISIONING", "what was said last counts");
    assert!(!found.contains_key(arn(901).as_str()), "it has stopped");
    assert_eq!(listing.tasks[0].tags["consul.hashicorp.com/mesh"], "true");
    assert_eq!(listing.tasks[0].tags["bare"], "");
    assert!(listing.tasks[0].task_definition_arn.ends_with("/web:3"));
    // An empty page is not described, and is not the end.
    assert_eq!((stub.count("ListTasks").await, stub.count("DescribeTasks").await), (5, 4));
}

/// A cluster with two tasks; `answers` says what becomes of the calls.
async fn listed(
    attempts: u32,
    answers: impl Fn(&str, &Value) -> Option<ResponseTemplate> + Send + Sync + 'static,
) -> (Result<acl_controller::task::TaskListing, Error>, Stub) {
    let stub = Stub::start(move |action, input| {
        answers(action, input).unwrap_or_else(|| match action {
            "ListTasks" if input["desiredStatus"] == "RUNNING" => {
                ok(&json!({"taskArns": [arn(1), arn(2)]}))
            }
            "ListTasks" => ok(&json!({"taskArns": []})),
            _ => {
                let arns = input["tasks"].as_array().unwrap();
                let tasks: Vec<Value> = arns.iter().map(|arn| task(arn, "RUNNING")).collect();
                ok(&json!({"tasks": tasks}))
            }
        })
    })
    .await;
    let result = stub.aws(attempts).await.tasks(CLUSTER).tasks().await;
    (result, stub)
}

fn throttled() -> ResponseTemplate {
    refused(400, "ThrottlingException", "Rate exceeded")
}

#[tokio::test]
async fn a_throttled_call_is_made_again() {
    let calls = AtomicUsize::new(0);
    let (result, stub) = listed(3, move |_, _| {
        // The first, and the second of the next.
        [0, 2].contains(&calls.fetch_add(1, Ordering::SeqCst)).then(throttled)
    })
    .await;
    assert_eq!(result.unwrap().tasks.len(), 2);
    assert_eq!(stub.calls().await.len(), 5);
}

#[tokio::test]
async fn a_cluster_that_stays_throttled_is_no_empty_cluster() {
    for action in ["ListTasks", "DescribeTasks"] {
        let (result, stub) = listed(2, move |called, _| (called == action).then(throttled)).await;
        let error = result.unwrap_err();
        assert!(error.is_retryable());
        let doing = if action == "ListTasks" { "listing" } else { "describing" };
        let expected =
            format!("{doing} tasks of the cluster {CLUSTER}: ThrottlingException: Rate exceeded");
        assert_eq!(error_chain(&error), expected);
        assert_eq!(stub.count(action).await, 2);
    }
}

#[tokio::test]
async fn a_refusal_that_no_retry_cures_is_asked_for_once() {
    for (code, message) in [
        ("AccessDeniedException", "User: x is not authorized to perform: ecs:ListTasks"),
        ("ClusterNotFoundException", "Cluster not found."),
    ] {
        let (result, stub) = listed(3, move |_, _| Some(refused(400, code, message))).await;
        let error = result.unwrap_err();
        assert!(!error.is_retryable(), "{code}");
        assert!(error_chain(&error).ends_with(&format!("{code}: {message}")));
        assert_eq!(stub.calls().await.len(), 1);
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_described_is_said_to_be_so() {
    let (result, _stub) = listed(3, |action, _| {
        (action == "DescribeTasks")
            .then(|| ok(&json!({"tasks": [], "failures": [{"arn": arn(2), "reason": "MISSING"}]})))
    })
    .await;
    let listing = result.unwrap();
    assert!(listing.tasks.is_empty());
    let undescribed: Vec<(&str, &str)> =
        listing.undescribed.iter().map(|task| (task.arn.as_str(), task.reason.as_str())).collect();
    assert_eq!(undescribed, [(arn(1).as_str(), "not in the answer"), (arn(2).as_str(), "MISSING")]);
}

/// ECS forgets stopped tasks, also between its answers: that must not hold anything up. A task that
/// was to run may run.
#[tokio::test]
async fn a_stopped_task_that_was_forgotten_is_no_task_in_doubt() {
    let (result, _stub) = listed(3, |action, input| match action {
        "ListTasks" if input["desiredStatus"] == "STOPPED" => {
            Some(ok(&json!({"taskArns": [arn(2), arn(3), arn(4)]})))
        }
        "DescribeTasks" if input["tasks"].as_array().unwrap().len() == 3 => {
            let failure = |number, reason| json!({"arn": arn(number), "reason": reason});
            let failures = [failure(2, "MISSING"), failure(3, "MISSING"), failure(4, "BUSY")];
            Some(ok(&json!({"tasks": [], "failures": failures})))
        }
        "DescribeTasks" => {
            let failures = [json!({"arn": arn(2), "reason": "MISSING"})];
            Some(ok(&json!({"tasks": [task(&json!(arn(1)), "RUNNING")], "failures": failures})))
        }
        _ => None,
    })
    .await;
    let listing = result.unwrap();
    assert_eq!(listing.tasks.len(), 1);
    let undescribed: Vec<(&str, &str)> =
        listing.undescribed.iter().map(|task| (task.arn.as_str(), task.reason.as_str())).collect();
    assert_eq!(undescribed, [(arn(2).as_str(), "MISSING"), (arn(4).as_str(), "BUSY")]);
}

#[tokio::test]
async fn pages_that_lead_in_a_circle_end_the_listing() {
    for length in [1, 2, 3] {
        let calls = AtomicUsize::new(0);
        let (result, stub) = listed(3, move |action, _| {
            let next = (calls.fetch_add(1, Ordering::SeqCst) % length).to_string();
            (action == "ListTasks").then(|| ok(&json!({"taskArns": [], "nextToken": next})))
        })
        .await;
        assert!(result.unwrap_err().to_string().contains("a page again"));
        assert_eq!(stub.calls().await.len(), length + 1);
    }
}

#[tokio::test]
async fn nobody_at_the_endpoint_is_told_as_such() {
    let aws = super::stub::connect("http://127.0.0.1:9", 1).await;
    let error = aws.tasks(CLUSTER).tasks().await.unwrap_err();
    assert!(error.is_retryable());
    let text = error_chain(&error);
    assert!(text.contains("onnect"), "{text}");
}
