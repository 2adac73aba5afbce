//! The commit on a Palo Alto Networks firewall, against a server that answers
//! as one does.

use std::{collections::BTreeMap, time::Duration};

use consul_watch::Backoff;
use cts_driver_terraform::{Handler as _, PanosCommit};
use cts_tasks::{ProviderBlock, Stop, StopReason};
use serde_json::json;
use wiremock::{
    Mock, MockServer, Request, ResponseTemplate,
    matchers::{body_string_contains, method, path},
};

use crate::fixtures::provider;

const PASSWORD: &str = "pl4nted-5ecret-pass & word";
const KEY: &str = "pl4nted-5ecret-key==";

const QUEUED: &str = r#"<response status="success" code="19"><result><msg><line>Commit job enqueued with jobid 7</line></msg><job>7</job></result></response>"#;

fn job(status: &str, result: &str, line: &str) -> String {
    format!(
        r#"<response status="success"><result><job><id>7</id><status>{status}</status><result>{result}</result><details><line>{line}</line></details></job></result></response>"#
    )
}

/// Answers requests whose body has this, as often as given.
async fn answer(server: &MockServer, body: &str, text: &str, times: Option<u64>) {
    let mock = Mock::given(method("POST"))
        .and(path("/api/"))
        .and(body_string_contains(body))
        .respond_with(ResponseTemplate::new(200).set_body_string(text));
    match times {
        Some(times) => mock.up_to_n_times(times).mount(server).await,
        None => mock.mount(server).await,
    }
}

async fn firewall() -> MockServer {
    let server = MockServer::start().await;
    let key = format!(r#"<response status="success"><result><key>{KEY}</key></result></response>"#);
    answer(&server, "type=keygen", &key, None).await;
    server
}

fn block(server: &MockServer) -> ProviderBlock {
    let uri = server.uri();
    let (protocol, hostname) = uri.split_once("://").unwrap();
    let mut block = provider(
        "panos",
        None,
        &json!({
            "hostname": hostname, "protocol": protocol, "username": "c&s", "password": PASSWORD,
        }),
    );
    block.auto_commit = true;
    block
}

fn handler() -> PanosCommit {
    let at_once = Backoff::default().with_initial(Duration::ZERO);
    PanosCommit::new([]).with_waits(at_once, Duration::from_millis(1))
}

async fn commit(server: &MockServer) -> Result<(), String> {
    let ended = handler().applied(&block(server), &Stop::new()).await;
    ended.map_err(|error| format!("{error} {error:?}"))
}

/// The fields of a request's body.
fn form(request: &Request) -> BTreeMap<String, String> {
    let mut url = request.url.clone();
    url.set_query(Some(std::str::from_utf8(&request.body).unwrap()));
    url.query_pairs().into_owned().collect()
}

fn count(requests: &[Request], kind: &str) -> usize {
    requests
        .iter()
        .filter(|request| form(request).get("type").is_some_and(|own| own == kind))
        .count()
}

#[tokio::test]
async fn the_changes_of_the_user_are_committed_and_waited_for() {
    let server = firewall().await;
    answer(&server, "type=commit", QUEUED, None).await;
    answer(&server, "type=op", &job("ACT", "PEND", ""), Some(2)).await;
    answer(&server, "type=op", &job("FIN", "OK", "done"), None).await;
    commit(&server).await.unwrap();

    let requests = server.received_requests().await.unwrap();
    let kinds: Vec<_> = requests.iter().map(|request| form(request)["type"].clone()).collect();
    assert_eq!(kinds, ["keygen", "commit", "op", "op", "op"]);
    let keygen = form(&requests[0]);
    assert_eq!((keygen["user"].as_str(), keygen["password"].as_str()), ("c&s", PASSWORD));
    let commit = form(&requests[1]);
    assert_eq!((commit["action"].as_str(), commit["key"].as_str()), ("partial", KEY));
    assert_eq!(
        commit["cmd"],
        "<commit><description>Consul-Terraform-Sync Commit</description><partial><admin>\
         <member>c&amp;s</member></admin></partial></commit>"
    );
    assert_eq!(form(&requests[2])["cmd"], "<show><jobs><id>7</id></jobs></show>");
    for request in &requests {
        assert!(request.url.query().is_none(), "secrets stand in no address: {}", request.url);
    }
}

#[tokio::test]
async fn an_empty_commit_is_a_success() {
    for empty in [
        r#"<response status="success" code="13"><msg>The result would be the same</msg></response>"#,
        r#"<response status="success" code="19"><msg>There are no changes to commit.</msg></response>"#,
        r#"<response status="success" code="19"><result><job>0</job></result></response>"#,
    ] {
        let server = firewall().await;
        answer(&server, "type=commit", empty, None).await;
        commit(&server).await.unwrap();
        let requests = server.received_requests().await.unwrap();
        assert_eq!(count(&requests, "commit"), 1);
        assert_eq!(count(&requests, "op"), 0);
    }
}

#[tokio::test]
async fn a_commit_is_tried_five_times() {
    let server = firewall().await;
    answer(&server, "type=commit", QUEUED, None).await;
    let failed = job("FIN", "FAIL", "the rule is not valid");
    answer(&server, "type=op", &failed, Some(4)).await;
    answer(&server, "type=op", &job("FIN", "OK", ""), None).await;
    commit(&server).await.unwrap();
    assert_eq!(count(&server.received_requests().await.unwrap(), "commit"), 5);

    let server = firewall().await;
    answer(&server, "type=commit", QUEUED, None).await;
    answer(&server, "type=op", &failed, None).await;
    let error = commit(&server).await.unwrap_err();
    assert!(error.contains("commit job 7 failed: "), "{error}");
    assert!(error.contains("the rule is not valid"), "{error}");
    assert_eq!(count(&server.received_requests().await.unwrap(), "commit"), 5);
}

/// Trying again would lock the user out.
#[tokio::test]
async fn refused_credentials_are_not_tried_again_and_not_repeated() {
    let server = MockServer::start().await;
    let refusal = format!(
        r#"<response status="error" code="403"><result><msg>Invalid credentials {}</msg></result></response>"#,
        PASSWORD.replace('&', "&amp;")
    );
    answer(&server, "type=keygen", &refusal, None).await;
    let error = commit(&server).await.unwrap_err();
    assert!(error.contains("the credentials are refused: Invalid credentials (secret)"), "{error}");
    assert!(!error.contains("pl4nted"), "{error}");
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}

/// A server that sends secrets elsewhere, repeats them, or answers anything.
#[tokio::test]
async fn no_answer_makes_it_tell_or_send_a_secret() {
    let other = MockServer::start().await;
    let elsewhere = format!("{}/api/", other.uri());
    for (status, text) in [
        (307, String::new()),
        (500, format!("<response status='error'><msg>{KEY}</msg></response>")),
        (200, format!("<response status='error' code='1'><msg>{KEY}</msg></response>")),
        (200, "no XML at all".to_owned()),
        (200, "<response/>".to_owned()),
        (200, "<response status='success'><result><job>x</job></result></response>".to_owned()),
    ] {
        let server = firewall().await;
        let answer = ResponseTemplate::new(status)
            .insert_header("location", elsewhere.as_str())
            .set_body_string(text);
        let asked = Mock::given(method("POST")).and(body_string_contains("type=commit"));
        asked.respond_with(answer).mount(&server).await;
        let error = commit(&server).await.unwrap_err();
        assert!(!error.contains("pl4nted"), "{error}");
        assert!(error.contains("cannot commit on http://"), "{error}");
    }
    assert!(other.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_a_commit() {
    let server = firewall().await;
    answer(&server, "type=commit", QUEUED, None).await;
    answer(&server, "type=op", &job("ACT", "PEND", ""), None).await;
    let stop = Stop::new();
    let (block, ended) = (block(&server), stop.clone());
    let work = tokio::spawn(async move { handler().applied(&block, &ended).await });
    while count(&server.received_requests().await.unwrap(), "op") == 0 {
        tokio::task::yield_now().await;
    }
    stop.stop(StopReason::Shutdown);
    assert_eq!(work.await.unwrap().unwrap_err().to_string(), "interrupted: shutting down");
}

#[test]
fn what_the_block_lacks_comes_from_task_env_or_the_environment() {
    let environment = [("PANOS_HOSTNAME", "fw.example.com"), ("PANOS_API_KEY", KEY)]
        .map(|(name, value)| (name.into(), value.into()));
    let handler = PanosCommit::new(environment);
    let mut block = provider("panos", Some("fw"), &json!({}));
    assert_eq!(
        handler.check(&block).unwrap_err().to_string(),
        "auto_commit of provider panos.fw needs username: set it in the provider's block, or \
         PANOS_USERNAME in the environment"
    );
    block.task_env.insert("PANOS_USERNAME".to_owned(), "cts".into());
    handler.check(&block).unwrap();
    assert!(!format!("{handler:?}").contains("pl4nted"));
}
