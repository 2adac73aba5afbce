//! Nothing that a platform may answer makes the client or the driver panic.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use cts_driver_tfc::{
    Client, ClientOptions, ExchangeError, Hostname, Platform, Result,
    testing::TestTfc,
    types::{ConfigurationVersionId, NewRun, PlanId, RunFilter, RunId, WorkspaceId},
};
use http::{Request, Response, StatusCode};
use proptest::prelude::*;
use serde_json::{Value, json};

/// Answers what it was given, then nothing but 404.
#[derive(Debug, Default)]
struct Parrot(Mutex<VecDeque<(u16, Vec<u8>)>>);

#[async_trait]
impl Platform for Parrot {
    async fn exchange(
        &self,
        _request: Request<Bytes>,
    ) -> std::result::Result<Response<Bytes>, ExchangeError> {
        let (status, body) = self.0.lock().unwrap().pop_front().unwrap_or((404, Vec::new()));
        let mut answer = Response::new(Bytes::from(body));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok(answer)
    }
}

/// All typed calls that decode something, each on the same answer; how many
/// could read it.
fn read_everywhere(status: u16, body: &[u8]) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut options = ClientOptions::default();
        options.retry.limit = 0;
        options.requests_per_second = Some(1000);
        let parrot = Arc::new(Parrot::default());
        let client =
            Client::with_platform(Arc::clone(&parrot) as _, options, "t".to_owned().into());
        let workspace: WorkspaceId = "ws-1".parse().unwrap();
        let run: RunId = "run-1".parse().unwrap();
        let plan: PlanId = "plan-1".parse().unwrap();
        let version: ConfigurationVersionId = "cv-1".parse().unwrap();
        let repeat = || {
            let mut answers = parrot.0.lock().unwrap();
            answers.clear();
            answers.push_back((status, body.to_vec()));
        };
        let mut read = 0;
        macro_rules! call {
            ($call:expr) => {{
                repeat();
                let answer: Result<_> = $call.await;
                if let Err(error) = &answer {
                    assert!(!error.to_string().is_empty());
                }
                read += usize::from(answer.is_ok());
            }};
        }
        call!(client.workspace(&workspace));
        call!(client.workspace_named("o", "n"));
        call!(client.run(&run));
        call!(client.newest_runs(&workspace));
        call!(client.create_run(&NewRun::new(workspace.clone())));
        call!(client.variables(&workspace));
        call!(client.tags(&workspace));
        call!(client.tag_bindings(&workspace, false));
        call!(client.agent_pools("o", "p"));
        call!(client.project_named("o", "p"));
        call!(client.configuration_version(&version));
        call!(client.plan(&plan));
        call!(client.plan_json(&plan));
        call!(client.current_state(&workspace));
        call!(client.outputs(&workspace));
        call!(client.runs(&workspace, RunFilter::All));
        read
    })
}

/// Valid documents of every kind.
fn documents() -> Vec<Value> {
    let one = |kind: &str, attributes: Value| {
        json!({"data": {"id": "x-1", "type": kind, "attributes": attributes, "relationships": {
        "plan": {"data": {"id": "plan-1", "type": "plans"}}, "apply": {"data": null},
        "agent-pool": {"data": [{"id": "apool-1", "type": "agent-pools"}]},
    }}, "included": [{"id": "plan-1", "type": "plans", "attributes": {"status": "finished"}}]})
    };
    let many = |kind: &str, attributes: Value| {
        json!({"data": [{"id": "x-1", "type": kind, "attributes": attributes}],
        "meta": {"pagination": {"current-page": 1, "next-page": 2, "total-count": 21}}})
    };
    vec![
        one(
            "workspaces",
            json!({"name": "web", "auto-apply": true, "execution-mode": "remote", "vcs-repo": null, "tag-names": ["a"], "locked": false, "permissions": {"can-queue-run": true}, "setting-overwrites": {"execution-mode": true}}),
        ),
        one(
            "runs",
            json!({"status": "planned", "message": "m", "auto-apply": false, "actions": {"is-confirmable": true}, "permissions": {"can-apply": true}, "variables": [{"key": "k", "value": "v"}]}),
        ),
        one(
            "configuration-versions",
            json!({"status": "pending", "upload-url": "https://x/y", "error-message": null}),
        ),
        one(
            "plans",
            json!({"status": "finished", "has-changes": true, "resource-additions": 1, "log-read-url": "https://x"}),
        ),
        one("state-versions", json!({"serial": 9, "resources-processed": true})),
        many(
            "vars",
            json!({"key": "k", "value": null, "category": "terraform", "hcl": true, "sensitive": true}),
        ),
        many("tags", json!({"name": "a"})),
        many("runs", json!({"status": "applied"})),
        many("state-version-outputs", json!({"name": "o", "sensitive": true, "value": null})),
        json!({"errors": [{"status": 429, "title": "t", "detail": "d"}, "x"]}),
    ]
}

#[test]
fn valid_documents_are_read() {
    let read: Vec<usize> = documents()
        .iter()
        .map(|document| read_everywhere(200, document.to_string().as_bytes()))
        .collect();
    assert!(read[..9].iter().all(|read| *read > 0), "{read:?}");
}

/// Changes one place of a document: what stands there becomes something else, or goes.
fn mutated(document: &Value, place: usize, with: &Value) -> Value {
    fn walk(value: &mut Value, left: &mut usize, with: &Value) -> bool {
        if *left == 0 {
            *value = with.clone();
            return true;
        }
        *left -= 1;
        match value {
            Value::Array(items) => items.iter_mut().any(|item| walk(item, left, with)),
            Value::Object(members) => members.values_mut().any(|member| walk(member, left, with)),
            _ => false,
        }
    }
    let mut document = document.clone();
    let mut left = place;
    walk(&mut document, &mut left, with);
    document
}

fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{"id": "../x", "type": "runs"}])),
        Just(json!({"data": {"id": "", "type": "plans"}})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_bytes_are_an_answer_or_an_error(
        status in prop_oneof![Just(200u16), Just(201), Just(204), Just(307), Just(404), Just(422), Just(500)],
        body in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        read_everywhere(status, &body);
    }

    #[test]
    fn a_document_with_one_thing_wrong_is_an_answer_or_an_error(
        which in 0usize..10,
        place in 0usize..40,
        with in odd(),
        status in prop_oneof![Just(200u16), Just(422)],
    ) {
        let document = mutated(&documents()[which], place, &with);
        read_everywhere(status, document.to_string().as_bytes());
    }

    #[test]
    fn hosts_are_read_or_refused(text in ".{0,40}") {
        if let Ok(host) = text.parse::<Hostname>() {
            // What was accepted is an address, and reads back as itself.
            prop_assert_eq!(host.to_string().parse::<Hostname>().unwrap(), host);
        }
    }

    #[test]
    fn the_double_takes_any_request(
        method in prop_oneof![Just("GET"), Just("POST"), Just("PATCH"), Just("DELETE"), Just("PUT")],
        path in prop_oneof![
            Just("/api/v2/organizations/my-org/workspaces"), Just("/api/v2/workspaces/x/vars"),
            Just("/api/v2/runs"), Just("/api/v2/runs/run-1/actions/apply"), Just("/_archivist/cv/x"),
            Just("/api/v2/configuration-versions/x"), Just("/"), Just("/api/v2/ping"),
        ],
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://tfc{path}"))
            .header("authorization", format!("Bearer {}", TestTfc::TOKEN))
            .header("content-type", "application/vnd.api+json")
            .body(Bytes::from(body))
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let answer = runtime.block_on(TestTfc::new().exchange(request)).unwrap();
        let status = answer.status().as_u16();
        prop_assert!(status < 500, "{status}");
    }
}
