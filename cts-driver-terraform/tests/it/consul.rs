//! Runs of real tools with the state in a real Consul.

use std::sync::Arc;

use consul_watch::{
    QueryOptions,
    testing::{parts::Part, real::Consul},
};
use cts_tasks::{ApplyRequest, PlanPurpose, RunContext, Stop, StopReason};
use serde_json::json;

use crate::commands::processes_in;
use crate::site::{SUITE, Site, context, counts, eventually, services, tools};

const STATE: &str = "consul-terraform-sync/terraform-env:test";

/// Every Consul with every tool that is there; without any the report says so.
async fn consuls_and_tools(case: &str) -> Vec<(Arc<Consul>, Part)> {
    let mut pairs = Vec::new();
    for part in SUITE.parts("consul", case) {
        let consul = Arc::new(Consul::start(&part.path).await.unwrap());
        pairs.extend(tools(case).into_iter().map(|tool| (Arc::clone(&consul), tool)));
    }
    pairs
}

fn site(consul: &Consul, tool: &Part) -> Site {
    let mut site = Site::new(tool);
    site.driver_block = json!({});
    site.consul.address = consul.address();
    site
}

async fn value(consul: &Consul, key: &str) -> Option<Vec<u8>> {
    let answer = consul.client().kv_get(key, &QueryOptions::default()).await.unwrap();
    answer.value.map(|pair| pair.value.to_vec())
}

/// Spec: CTS42
#[tokio::test]
async fn state_is_kept_in_consul_by_default() {
    for (consul, tool) in consuls_and_tools("state_is_kept_in_consul_by_default").await {
        let site = site(&consul, &tool);
        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        assert!(value(&consul, STATE).await.is_some(), "the workspace is created at once");
        let inputs = services(&[("a", 80)]);
        let applied = driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(counts(&applied), (1, 0, 0));
        assert_eq!(value(&consul, &format!("{STATE}/.lock")).await, None);
        assert!(!site.task_dir().join("terraform.tfstate.d").exists());
        let plan = driver.plan(&services(&[]), PlanPurpose::Inspect, &context()).await.unwrap();
        assert_eq!(plan.changes.destroy, 1);
        driver.destroy(&context()).await.unwrap();
    }
}

#[tokio::test]
async fn a_stop_gives_the_lock_back_and_the_next_run_converges() {
    let case = "a_stop_gives_the_lock_back_and_the_next_run_converges";
    for (consul, tool) in consuls_and_tools(case).await {
        let site = site(&consul, &tool);
        let slow = json!({"variables": {"directory": site.path().join("rules"), "pause": 600}});
        let driver = site.driver(&slow);
        driver.prepare(&context()).await.unwrap();
        let stop = Stop::new();
        let running = {
            let stop = stop.clone();
            tokio::spawn(async move {
                let inputs = services(&[("a", 80)]);
                driver.apply(ApplyRequest::Inputs(&inputs), &RunContext::new(stop)).await
            })
        };
        let rules = site.task_dir().join("terraform.tfvars");
        eventually("the apply", || rules.is_file()).await;
        while value(&consul, &format!("{STATE}/.lock")).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        stop.stop(StopReason::LeadershipLost);
        let error = running.await.unwrap().unwrap_err();
        assert!(matches!(error, cts_tasks::Error::Stopped { reason: StopReason::LeadershipLost }));
        let left = || processes_in(&site.task_dir()).is_empty();
        eventually("the end of what the provisioner started", left).await;
        assert_eq!(value(&consul, &format!("{STATE}/.lock")).await, None);

        let driver = site.driver(&json!({}));
        driver.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        driver.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(site.rules(), ["a=10.0.0.1:80"]);
        driver.destroy(&context()).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_that_is_held_is_reported_with_its_holder() {
    let case = "a_lock_that_is_held_is_reported_with_its_holder";
    for (consul, tool) in consuls_and_tools(case).await {
        let mut site = site(&consul, &tool);
        let slow = json!({"variables": {"directory": site.path().join("rules"), "pause": 600}});
        let holder = site.driver(&slow);
        holder.prepare(&context()).await.unwrap();
        let stop = Stop::new();
        let running = {
            let stop = stop.clone();
            tokio::spawn(async move {
                let inputs = services(&[("a", 80)]);
                holder.apply(ApplyRequest::Inputs(&inputs), &RunContext::new(stop)).await
            })
        };
        while value(&consul, &format!("{STATE}/.lockinfo")).await.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        site.driver_block = json!({"lock_timeout": "1s"});
        let second = site.driver(&json!({"working_dir": "sync-tasks/elsewhere"}));
        second.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        let error = second.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with("error tf-apply for 'test': apply failed: "), "{message}");
        for part in ["Lock Info", "Who:", "OperationTypeApply"] {
            assert!(message.contains(part), "{part} is missing: {message}");
        }
        assert!(error.is_retryable());
        stop.stop(StopReason::Shutdown);
        running.await.unwrap().unwrap_err();
    }
}
