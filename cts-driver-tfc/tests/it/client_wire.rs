//! Single documents on the wire.

use std::time::Duration;

use cts_driver_tfc::{
    Client, ClientOptions,
    types::{NewRun, RunFilter, RunStatus, RunVariable, VariableChange},
};
use http::StatusCode;
use serde_json::{Value, json};
use wiremock::{
    Mock, MockServer, Request, ResponseTemplate,
    matchers::{body_json, header, method, path, query_param},
};

const TOKEN: &str = "a-secret-token";

/// Sets something of a new run.
type Change = fn(&mut NewRun);

fn client(server: &MockServer) -> Client {
    let mut options = ClientOptions::default();
    options.host = server.uri().parse().unwrap();
    options.retry.limit = 0;
    Client::new(options, TOKEN.to_owned().into()).unwrap()
}

fn run(id: &str, status: &str) -> Value {
    json!({"id": id, "type": "runs", "attributes": {"status": status}})
}

fn page(runs: &[Value], next: Option<u32>) -> Value {
    json!({"data": runs, "meta": {"pagination": {"current-page": 1, "next-page": next}}})
}

fn page_with_totals(runs: &[Value], next: Option<u32>) -> Value {
    let mut page = page(runs, next);
    page["meta"]["pagination"]["total-pages"] = 3.into();
    page["meta"]["pagination"]["total-count"] = 6.into();
    page
}

/// Case TFC17: bodies of errors that are JSON:API, lists of texts, or no JSON have readable
/// messages.
#[tokio::test]
async fn errors_say_what_the_document_says() {
    for (status, body, expected) in [
        (422, json!({"errors": [{"status": "422", "title": "invalid attribute", "detail": "Name has already been taken"}]}).to_string(), "read run: invalid attribute: Name has already been taken"),
        (400, json!({"errors": ["x"]}).to_string(), "read run: x"),
        (400, String::new(), "read run: 400 Bad Request"),
        (400, "<p>no\n such</p>".to_owned(), "read run: 400 Bad Request (<p>no such</p>)"),
        (404, json!({"errors": [{"status": "404", "title": "not found"}]}).to_string(), "read run: 404: not found"),
    ] {
        let server = MockServer::start().await;
        let answer = ResponseTemplate::new(status).set_body_string(body);
        Mock::given(method("GET")).respond_with(answer).expect(1).mount(&server).await;
        let error = client(&server).run(&"run-1".parse().unwrap()).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.status(), StatusCode::from_u16(status).ok());
        assert!(!error.is_retryable());
    }
}

/// Case TFC18: several values of `include` are one parameter, joined by commas.
#[tokio::test]
async fn what_is_included_is_one_parameter() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .and(path("/api/v2/runs/run-1"))
        .and(query_param("include", "plan,apply,workspace"))
        .and(header("authorization", format!("Bearer {TOKEN}").as_str()))
        .and(header("accept", "application/vnd.api+json"))
        .respond_with(
            ResponseTemplate::new(200).set_body_json(json!({"data": run("run-1", "applied")})),
        )
        .expect(1)
        .mount(&server)
        .await;
    let report = client(&server).run(&"run-1".parse().unwrap()).await.unwrap();
    assert_eq!(report.run.attributes.status, RunStatus::Applied);
    let request: &Request = &server.received_requests().await.unwrap()[0];
    assert_eq!(request.url.query(), Some("include=plan%2Capply%2Cworkspace"));
    assert!(request.headers["user-agent"].to_str().unwrap().starts_with("cts-driver-tfc/"));
}

/// Case TFC19: lists over several pages are read whole, also without totals.
#[tokio::test]
async fn all_pages_are_read_with_and_without_totals() {
    let server = MockServer::start().await;
    for (number, next) in [("1", Some(2)), ("2", Some(3)), ("3", None)] {
        let runs =
            [run(&format!("run-{number}a"), "applied"), run(&format!("run-{number}b"), "errored")];
        for (list, page) in [
            ("/api/v2/workspaces/ws-1/runs", page_with_totals(&runs, next)),
            ("/api/v2/organizations/my-org/runs", page(&runs, next)),
        ] {
            Mock::given(method("GET"))
                .and(path(list))
                .and(query_param("page[number]", number))
                .and(query_param("page[size]", "100"))
                .respond_with(ResponseTemplate::new(200).set_body_json(page))
                .expect(1)
                .mount(&server)
                .await;
        }
    }
    let client = client(&server);
    let expected = ["run-1a", "run-1b", "run-2a", "run-2b", "run-3a", "run-3b"];
    let runs = client.runs(&"ws-1".parse().unwrap(), RunFilter::All).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), expected);
    let runs = client.organization_runs("my-org", RunFilter::All).await.unwrap();
    assert_eq!(runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_page_that_leads_back_ends_the_list() {
    let server = MockServer::start().await;
    Mock::given(method("GET"))
        .respond_with(ResponseTemplate::new(200).set_body_json(page(&[run("run-1", "x")], Some(1))))
        .expect(1)
        .mount(&server)
        .await;
    let filter = RunFilter::NonFinal;
    let runs = client(&server).runs(&"ws-1".parse().unwrap(), filter).await.unwrap();
    assert_eq!(runs.len(), 1);
    let query = server.received_requests().await.unwrap()[0].url.query().unwrap().to_owned();
    assert!(query.contains("filter%5Bstatus_group%5D=non_final"), "{query}");
}

/// Case TFC20: a POST without a body has the content type of JSON:API still.
#[tokio::test]
async fn a_request_without_a_body_still_says_what_it_would_be() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/api/v2/runs/run-1/actions/discard"))
        .and(header("content-type", "application/vnd.api+json"))
        .respond_with(ResponseTemplate::new(202))
        .expect(1)
        .mount(&server)
        .await;
    client(&server).discard_run(&"run-1".parse().unwrap(), "").await.unwrap();
    assert!(server.received_requests().await.unwrap()[0].body.is_empty());
}

#[tokio::test]
async fn a_comment_goes_as_plain_json() {
    let server = MockServer::start().await;
    Mock::given(method("POST"))
        .and(path("/api/v2/runs/run-1/actions/apply"))
        .and(body_json(json!({"comment": "yes"})))
        .respond_with(ResponseTemplate::new(202))
        .expect(1)
        .mount(&server)
        .await;
    client(&server).confirm_run(&"run-1".parse().unwrap(), "yes").await.unwrap();
}

/// Case TFC21: options of a new run are sent if they are set; a run without a workspace is not
/// sent.
#[tokio::test]
async fn a_request_for_a_run_says_what_was_asked_for_and_nothing_else() {
    let cases: [(Change, Value); 10] = [
        (|_| (), json!({})),
        (|run| run.configuration_version = Some("cv-1".parse().unwrap()), json!({})),
        (|run| run.save_plan = Some(true), json!({"save-plan": true})),
        (
            |run| {
                run.plan_only = Some(true);
                run.terraform_version = Some("1.9.4".to_owned());
            },
            json!({"plan-only": true, "terraform-version": "1.9.4"}),
        ),
        (|run| run.refresh = Some(false), json!({"refresh": false})),
        (|run| run.refresh_only = Some(true), json!({"refresh-only": true})),
        (|run| run.auto_apply = Some(true), json!({"auto-apply": true})),
        (|run| run.auto_apply = Some(false), json!({"auto-apply": false})),
        (|run| run.is_destroy = Some(true), json!({"is-destroy": true})),
        (
            |run| run.variables = vec![RunVariable::new("services", "{}")],
            json!({"variables": [{"key": "services", "value": "{}"}]}),
        ),
    ];
    for (change, more) in cases {
        let mut new = NewRun::new("ws-1".parse().unwrap());
        new.message = "why".to_owned();
        change(&mut new);
        // What is not set is left to the platform, such as `refresh`, which is true there.
        let mut attributes = json!({"message": "why"});
        for (name, value) in more.as_object().unwrap() {
            attributes[name] = value.clone();
        }
        let mut relationships =
            json!({"workspace": {"data": {"type": "workspaces", "id": "ws-1"}}});
        if new.configuration_version.is_some() {
            relationships["configuration-version"] =
                json!({"data": {"type": "configuration-versions", "id": "cv-1"}});
        }
        let body = json!({"data": {
            "type": "runs", "attributes": attributes, "relationships": relationships,
        }});
        let server = MockServer::start().await;
        Mock::given(method("POST"))
            .and(path("/api/v2/runs"))
            .and(body_json(&body))
            .respond_with(
                ResponseTemplate::new(201).set_body_json(json!({"data": run("run-1", "pending")})),
            )
            .expect(1)
            .mount(&server)
            .await;
        let made = client(&server).create_run(&new).await;
        assert_eq!(made.map(|run| run.id.to_string()).unwrap(), "run-1", "{body}");
    }
}

/// Case TFC26: a variable needs a key and a category, not a value, and takes changes of single
/// attributes.
#[tokio::test]
async fn a_change_of_a_variable_says_what_changes_and_nothing_else() {
    let change = |value: Option<&str>, sensitive| {
        let value = value.map(|value| value.to_owned().into());
        VariableChange { value, sensitive, ..VariableChange::default() }
    };
    for (change, attributes) in [
        (change(None, None), json!({})),
        (change(Some(""), None), json!({"value": ""})),
        (change(Some("new"), Some(true)), json!({"value": "new", "sensitive": true})),
    ] {
        let server = MockServer::start().await;
        let answer = json!({"data": {"id": "var-1", "type": "vars", "attributes": {
            "key": "k", "value": "new", "category": "terraform", "hcl": false, "sensitive": false,
        }}});
        let body = json!({"data": {"type": "vars", "id": "var-1", "attributes": attributes}});
        Mock::given(method("PATCH"))
            .and(path("/api/v2/workspaces/ws-1/vars/var-1"))
            .and(body_json(&body))
            .respond_with(ResponseTemplate::new(200).set_body_json(answer))
            .expect(1)
            .mount(&server)
            .await;
        let (workspace, id) = ("ws-1".parse().unwrap(), "var-1".parse().unwrap());
        client(&server).update_variable(&workspace, &id, "k", &change).await.unwrap();
    }
}

/// Case TFC37: the token is not sent to the host that the plan as JSON redirects to.
#[tokio::test]
async fn the_token_is_not_shown_to_the_host_of_a_redirect() {
    let (server, other) = (MockServer::start().await, MockServer::start().await);
    // The same address, so that only our own care keeps the hosts apart.
    let target = format!("{}/object/secret?sig=1", other.uri());
    Mock::given(method("GET"))
        .and(path("/api/v2/plans/plan-1/json-output"))
        .and(header("authorization", format!("Bearer {TOKEN}").as_str()))
        .respond_with(ResponseTemplate::new(307).insert_header("location", target.as_str()))
        .expect(1)
        .mount(&server)
        .await;
    Mock::given(method("GET"))
        .and(path("/object/secret"))
        .and(query_param("sig", "1"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"format_version": "1.2"})))
        .expect(1)
        .mount(&other)
        .await;
    let json = client(&server).plan_json(&"plan-1".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(json["format_version"], "1.2");
    let requests = other.received_requests().await.unwrap();
    assert!(!requests[0].headers.contains_key("authorization"), "{:?}", requests[0].headers);
}

#[tokio::test]
async fn a_plan_that_is_not_ready_or_not_for_us_is_none() {
    for status in [204, 404] {
        let server = MockServer::start().await;
        Mock::given(method("GET")).respond_with(ResponseTemplate::new(status)).mount(&server).await;
        let plan = client(&server).plan_json(&"plan-1".parse().unwrap()).await.unwrap();
        assert!(plan.is_none(), "{status}");
    }
}

#[tokio::test]
async fn an_upload_has_no_token_and_bad_addresses_are_refused() {
    let server = MockServer::start().await;
    Mock::given(method("PUT"))
        .and(path("/upload"))
        .and(header("content-type", "application/octet-stream"))
        .respond_with(ResponseTemplate::new(200))
        .expect(1)
        .mount(&server)
        .await;
    let client = client(&server);
    let address = format!("{}/upload", server.uri()).into();
    client.upload(&address, bytes::Bytes::from_static(b"tar")).await.unwrap();
    let request = &server.received_requests().await.unwrap()[0];
    assert!(!request.headers.contains_key("authorization"));
    assert_eq!(request.body, b"tar");
}

/// Case TFC24: an upload to a bad address, of a path that is no folder, or of none is an error
/// without a run.
#[tokio::test]
async fn an_upload_to_a_bad_address_is_an_error_without_the_address() {
    let server = MockServer::start().await;
    let client = client(&server);
    for address in ["", "ftp://s3cr3t/x", "https://s3cr3t:99999/", "http://s3cr3t.invalid\n/"] {
        let error = client.upload(&address.to_owned().into(), bytes::Bytes::new()).await;
        let error = consul_watch::error_chain(&error.unwrap_err());
        assert!(!error.contains("s3cr3t"), "{error}");
    }
}

#[tokio::test]
async fn a_lost_connection_is_reported_without_secrets() {
    let server = MockServer::start().await;
    let mut options = ClientOptions::default();
    options.host = "http://127.0.0.1:9".parse().unwrap();
    options.retry.limit = 0;
    let client = Client::new(options, TOKEN.to_owned().into()).unwrap();
    let error = client.create_run(&NewRun::new("ws-1".parse().unwrap())).await.unwrap_err();
    let reported = consul_watch::error_chain(&error);
    assert!(
        reported.starts_with("create run: request to http://127.0.0.1:9 did not complete: "),
        "{reported}"
    );
    assert!(error.is_uncertain() && !format!("{error:?}{reported}").contains(TOKEN));
    drop(server);
}

#[tokio::test]
async fn a_slow_platform_turns_requests_away_and_is_obeyed() {
    let server = MockServer::start().await;
    let away = ResponseTemplate::new(429)
        .insert_header("x-ratelimit-reset", "0.4")
        .set_body_json(json!({"errors": [{"status": 429, "title": "Too many requests"}]}));
    Mock::given(method("GET")).respond_with(away).up_to_n_times(2).mount(&server).await;
    Mock::given(method("GET"))
        .respond_with(
            ResponseTemplate::new(200).set_body_json(json!({"data": run("run-1", "applied")})),
        )
        .mount(&server)
        .await;
    let started = tokio::time::Instant::now();
    client(&server).run(&"run-1".parse().unwrap()).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(800), "{:?}", started.elapsed());
    assert_eq!(server.received_requests().await.unwrap().len(), 3);
}
