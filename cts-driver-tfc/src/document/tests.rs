//! Cases of JSON:API documents and error messages.

use http::StatusCode;
use serde_json::json;

use super::{Document, Page, error_message, read};
use crate::types::{PlanAttributes, RunAttributes, RunStatus, WorkspaceAttributes};

/// Case TFC17: bodies of errors that are JSON:API, lists of texts, or no JSON have readable
/// messages.
#[test]
fn every_form_of_error_document_is_reported_in_words() {
    let reported = |status: u16, body: &str| {
        error_message(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    };
    let document = json!({"errors": [
        {"status": "422", "title": "invalid attribute", "detail": "Name has already been taken",
         "source": {"pointer": "/data/attributes/name"}},
        {"status": "404", "title": "not found"},
        {"status": 429, "title": "Too many requests"},
    ]});
    assert_eq!(
        reported(422, &document.to_string()),
        "invalid attribute: Name has already been taken\n404: not found\n429: Too many requests"
    );
    assert_eq!(reported(400, r#"{"errors":["x"]}"#), "x");
    assert_eq!(reported(400, ""), "400 Bad Request");
    assert_eq!(reported(400, "{}"), "400 Bad Request ({})");
    assert_eq!(reported(400, r#"{"errors":[]}"#), "400 Bad Request");
    assert_eq!(reported(502, "<html>\n  Bad  gateway"), "502 Bad Gateway (<html> Bad gateway)");
    let long = reported(500, &"é".repeat(5000));
    assert!(long.chars().count() < 250, "{long}");
}

#[test]
fn what_is_not_known_is_ignored_and_what_is_needed_is_missed() {
    let run = json!({"data": {"id": "run-1", "type": "runs", "surprise": 1, "attributes": {
        "status": "levitating", "source": "tfe-api", "message": "m", "new-thing": {"a": []},
    }, "relationships": {
        "plan": {"data": {"id": "plan-1", "type": "plans"}, "links": {}},
        "workspace": {"data": {"id": "ws-1", "type": "workspaces"}},
        "cost-estimate": {"data": null}, "comments": {"links": {"related": "/x"}},
        "policy-checks": {"data": []},
    }}, "included": [
        {"id": "plan-1", "type": "plans", "attributes": {"status": "finished", "has-changes": true}},
        {"id": "odd", "type": "unheard-of"},
    ]});
    let run: Document<RunAttributes> = read("read run", run.to_string().as_bytes()).unwrap();
    assert_eq!(run.data.attributes.status, RunStatus::Other("levitating".into()));
    let plan = run.included::<PlanAttributes>("plan").unwrap();
    assert_eq!(plan.attributes.has_changes, Some(true));
    assert_eq!(run.data.relationships.one::<PlanAttributes>("workspace"), None, "of another type");
    assert!(run.data.relationships.one::<WorkspaceAttributes>("workspace").is_some());

    let nameless = json!({"data": {"id": "ws-1", "type": "workspaces", "attributes": {}}});
    let error =
        read::<Document<WorkspaceAttributes>>("read workspace", nameless.to_string().as_bytes());
    let error = consul_watch::error_chain(&error.unwrap_err());
    assert!(error.contains("missing field `name`"), "{error}");
}

#[test]
fn a_page_without_totals_has_a_next_page_too() {
    let page = json!({"data": [], "meta": {"pagination": {"current-page": 1, "next-page": 2}}});
    let page: Page<RunAttributes> = read("list runs", page.to_string().as_bytes()).unwrap();
    assert_eq!(page.next(), Some(2));
    let last: Page<RunAttributes> = read("list runs", br#"{"data": []}"#).unwrap();
    assert_eq!(last.next(), None);
}
