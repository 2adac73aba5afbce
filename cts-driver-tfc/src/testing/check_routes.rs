//! Costs, policies and run tasks of runs.

use serde_json::{Value, json};

use super::{
    TestTfc,
    answer::{self, Answer},
    route::Asked,
    state::{PolicyResult, Run, State},
};

/// Returns the id of an object, which is its run's with another beginning.
fn as_id(run: &str, kind: &str) -> String {
    run.replacen("run", kind, 1)
}

/// Returns the relationships of a run.
pub(super) fn relationships(run: &Run, id: &str) -> [(&'static str, Value); 3] {
    let link = |kind: &str, name: &str| json!({"id": as_id(id, kind), "type": name});
    let many = |there: bool, kind: &str, name: &str| json!({"data": if there { vec![link(kind, name)] } else { Vec::new() }});
    let staged = run.findings.opa.is_some() || run.findings.run_task.is_some();
    let costs = run.findings.costs.as_ref().map(|_| link("ce", "cost-estimates"));
    [
        ("cost-estimate", json!({"data": costs})),
        ("policy-checks", many(run.sentinel.is_some(), "polchk", "policy-checks")),
        ("task-stages", many(staged, "ts", "task-stages")),
    ]
}

/// Returns the documents of the stages of a run.
pub(super) fn stages(run: &Run, id: &str) -> Option<Value> {
    let staged = run.findings.opa.is_some() || run.findings.run_task.is_some();
    staged.then(|| stage(run, id))
}

/// Overrides the policy that holds a run up, by the id of its check or stage.
pub(super) fn overridden(tfc: &TestTfc, id: &str) -> Answer {
    let run = id.split_once('-').map(|(_, number)| format!("run-{number}")).unwrap_or_default();
    if !tfc.state().runs.contains_key(&run) {
        return answer::not_found();
    }
    if !tfc.override_policy(&run) {
        return answer::conflict("no policy waits for an override");
    }
    let kind = if id.starts_with("ts-") { "task-stages" } else { "policy-checks" };
    answer::document(200, &json!({"data": {"id": id, "type": kind, "attributes": {}}}))
}

fn task_result(run: &str, (name, status, message): &(String, String, String)) -> Value {
    json!({"id": as_id(run, "taskrs"), "type": "task-results", "attributes": {
        "task-name": name, "status": status, "message": message, "stage": "post_plan",
        "url": "https://tasks.example.com/1", "is-speculative": false,
        "workspace-task-enforcement-level": "mandatory",
    }})
}

/// Answers about one run, or one of the findings about it.
pub(super) fn found(state: &State, asked: &Asked<'_>, rest: &[&str], id: &str) -> Answer {
    let run_id = match id.split_once('-') {
        Some((_, number)) => format!("run-{number}"),
        None => return answer::not_found(),
    };
    let Some(run) = state.runs.get(&run_id) else { return answer::not_found() };
    match rest {
        ["runs", _, "policy-checks"] => {
            let checks: Vec<Value> =
                run.sentinel.iter().map(|status| check(&run_id, status)).collect();
            answer::page(&checks, asked.query)
        }
        ["runs", _, "task-stages"] => {
            let stages: Vec<Value> = stages(run, &run_id).into_iter().collect();
            answer::page(&stages, asked.query)
        }
        ["task-stages", _] => match stages(run, &run_id) {
            Some(stage) => {
                let tasks = run.findings.run_task.iter().map(|task| task_result(&run_id, task));
                let policies = run.findings.opa.iter().map(|found| evaluation(&run_id, *found));
                let included: Vec<Value> = tasks.chain(policies).collect();
                answer::document(200, &json!({"data": stage, "included": included}))
            }
            None => answer::not_found(),
        },
        ["policy-checks", _] => match run.sentinel {
            Some(status) => answer::document(200, &json!({"data": check(&run_id, status)})),
            None => answer::not_found(),
        },
        ["policy-checks", _, "output"] => match run.sentinel {
            Some(status) => answer::bytes(format!("Sentinel Result: {status}\n").into_bytes()),
            None => answer::not_found(),
        },
        ["task-stages", _, "policy-evaluations"] => {
            let found: Vec<Value> =
                run.findings.opa.iter().map(|result| evaluation(&run_id, *result)).collect();
            answer::page(&found, asked.query)
        }
        ["cost-estimates", _] => match &run.findings.costs {
            Some((proposed, delta)) => answer::document(
                200,
                &json!({"data": {"id": as_id(&run_id, "ce"), "type": "cost-estimates", "attributes": {
                    "status": "finished", "error-message": null, "resources-count": 4,
                    "matched-resources-count": 3, "unmatched-resources-count": 1,
                    "prior-monthly-cost": "0.0", "proposed-monthly-cost": proposed,
                    "delta-monthly-cost": delta,
                }}}),
            ),
            None => answer::not_found(),
        },
        ["task-results", _] => match &run.findings.run_task {
            Some(task) => answer::document(200, &json!({"data": task_result(&run_id, task)})),
            None => answer::not_found(),
        },
        _ => answer::not_found(),
    }
}

fn check(run: &str, status: &str) -> Value {
    let failed = |this: &str| u64::from(status == this);
    json!({"id": as_id(run, "polchk"), "type": "policy-checks", "attributes": {
        "status": status, "scope": "organization",
        "actions": {"is-overridable": status == "soft_failed"},
        "permissions": {"can-override": false},
        "result": {
            "result": false, "passed": 2, "total-failed": 1, "advisory-failed": 0,
            "hard-failed": failed("hard_failed"),
            "soft-failed": failed("soft_failed") + failed("overridden"),
        },
    }})
}

fn stage(run: &Run, id: &str) -> Value {
    let failed = run.findings.run_task.as_ref().is_some_and(|(_, status, _)| status == "failed");
    let status = match run.findings.opa {
        Some(PolicyResult::SoftFailed) => "awaiting_override",
        Some(PolicyResult::HardFailed) => "failed",
        _ if failed => "failed",
        _ => "passed",
    };
    let link = |there: bool, kind: &str, name: &str| {
        let one = json!({"id": as_id(id, kind), "type": name});
        json!({"data": if there { vec![one] } else { Vec::new() }})
    };
    json!({"id": as_id(id, "ts"), "type": "task-stages",
        "attributes": {"stage": "post_plan", "status": status},
        "relationships": {
            "policy-evaluations": link(run.findings.opa.is_some(), "poleval", "policy-evaluations"),
            "task-results": link(run.findings.run_task.is_some(), "taskrs", "task-results"),
        },
    })
}

fn evaluation(run: &str, result: PolicyResult) -> Value {
    let status = match result {
        PolicyResult::Passed => "passed",
        PolicyResult::SoftFailed | PolicyResult::HardFailed => "failed",
        PolicyResult::Overridden => "overridden",
    };
    json!({"id": as_id(run, "poleval"), "type": "policy-evaluations", "attributes": {
        "status": status, "policy-kind": "opa",
        "result-count": {
            "passed": 1, "advisory-failed": 0, "errored": 0,
            "mandatory-failed": u64::from(result != PolicyResult::Passed),
        },
    }})
}
