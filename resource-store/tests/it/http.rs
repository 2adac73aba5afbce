//! The service behind HTTP and JSON.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use resource_store::{
    Parity, RequestContext, ResourceService,
    acl::{Access, StaticRules, StaticTokens},
    demo,
    http::HttpApi,
    pb,
};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::*;

const KORN: &str = "/api/demo/v2/artist/korn?partition=default&namespace=default";
const ARTISTS: &str = "/api/demo/v2/artist?partition=default&namespace=default";

/// An answer: status and body.
type Answer = (StatusCode, String);

#[derive(Clone)]
struct Api {
    router: Router,
    service: ResourceService,
    token: &'static str,
}

impl Api {
    fn new(service: &ResourceService) -> Self {
        let router = HttpApi::new(service.clone()).unwrap().into_router();
        Self { router, service: service.clone(), token: "" }
    }

    fn open() -> Self {
        Self::new(&service())
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        if !self.token.is_empty() {
            request = request.header("X-Consul-Token", self.token);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    async fn put_artist(&self, path: &str) -> Value {
        let (status, body) = self.send("PUT", path, &artist_body("Korn")).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

fn artist_body(name: &str) -> String {
    json!({"metadata": {"foo": "bar"}, "data": {"name": name, "genre": "GENRE_METAL"}}).to_string()
}

/// Asserts the status, and exactly this code and message.
#[track_caller]
fn assert_refused(answer: &Answer, status: StatusCode, code: &str, message: &str) {
    let text = format!("rpc error: code = {code} desc = {message}");
    assert_eq!((answer.0, answer.1.as_str()), (status, text.as_str()));
}

/// Spec: RS91
#[tokio::test]
async fn a_name_is_required() {
    let path = "/api/demo/v2/artist/?partition=default&namespace=default";
    let answer = Api::open().send("PUT", path, &artist_body("Korn")).await;
    let text = name_invalid("resource.id.name", "");
    assert_refused(&answer, StatusCode::BAD_REQUEST, "InvalidArgument", &text);
    let answer = Api::open().send("DELETE", path, "").await;
    let text = name_invalid("id.name", "");
    assert_refused(&answer, StatusCode::BAD_REQUEST, "InvalidArgument", &text);
}

/// Spec: RS92
#[tokio::test]
async fn bodies_follow_format_and_schema() {
    let api = Api::open();
    let schema = "Request body didn't follow the resource schema";
    for body in [
        r#"{"metadata": {"foo": "bar"}, "dada": {"name": "Korn"}}"#,
        r#"{"data": {"nome": "Korn"}}"#,
        r#"{"data": "Korn"}"#,
        r#"{"data": {"name": "Korn"}, "owner": {"nome": "x"}}"#,
    ] {
        let (status, text) = api.send("PUT", KORN, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(text.starts_with(schema), "{body}: {text}");
    }
    let format = "Request body format is invalid";
    for body in ["bad-input", "", "[]", r#"{"metadata": {"foo": 1}, "data": {}}"#] {
        let (status, text) = api.send("PUT", KORN, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}");
        assert!(text.starts_with(format), "{body}: {text}");
    }
}

/// What is wrong is named.
#[tokio::test]
async fn errors_in_bodies_name_the_field() {
    let api = Api::open();
    for (body, named) in [
        (r#"{"data": {"nome": "Korn"}}"#, "nome"),
        (r#"{"data": {"name": 1}}"#, "data"),
        (r#"{"data": {"name": "a", "name": "b"}}"#, "data.name"),
        (r#"{"data": {"groupMembers": {"a": "1", "a": "2"}}}"#, "data.groupMembers.a"),
        (r#"{"data": {"group_members": {}, "groupMembers": {}}}"#, "data"),
        (r#"{"owner": {"name": "a", "name": "b"}, "data": {}}"#, "owner.name"),
        (r#"{"owner": {"nome": "a"}, "data": {}}"#, "nome"),
        (r#"{"metadata": {"foo": 1}, "data": {}}"#, "metadata.foo"),
        (r#"{"metadata": []}"#, "metadata"),
        (r#"{"version": 1, "data": {}}"#, "version"),
        (r#"{"dada": {}}"#, "data"),
    ] {
        let (status, text) = api.send("PUT", KORN, body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {text}");
        let (_, detail) = text.split_once(": ").unwrap_or_else(|| panic!("{body}: {text}"));
        assert!(detail.contains(named), "{body}: {text}");
    }
    assert_eq!(api.get(KORN).await.0, StatusCode::NOT_FOUND, "nothing was stored");
}

/// Spec: what was measured beside Consul 1.21
#[tokio::test]
async fn bodies_are_read_as_upstream_reads_them() {
    let api = Api::open();
    let body = r#"{"Metadata": {"a": null, "b": "x"}, "DATA": {"name": "Korn"}, "Owner": null}
        {"what follows": "is ignored"} nonsense"#;
    let (status, text) = api.send("PUT", KORN, body).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["metadata"], json!({"a": "", "b": "x"}));
    assert_eq!(stored["data"]["name"], "Korn");
}

/// A number that no value of an enum has is kept; one that no enum can have is
/// refused.
#[tokio::test]
async fn enum_numbers_are_never_replaced() {
    let api = Api::open();
    for number in [99, -1, 2_147_483_647] {
        let body = json!({"data": {"name": "Korn", "genre": number}}).to_string();
        let (status, text) = api.send("PUT", KORN, &body).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let stored: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(stored["data"]["genre"], json!(number));
    }
    for number in [4_294_967_297_i64, 2_147_483_648] {
        let body = json!({"data": {"name": "Korn", "genre": number}}).to_string();
        assert_eq!(api.send("PUT", KORN, &body).await.0, StatusCode::BAD_REQUEST, "{number}");
    }
    let body = r#"{"data": {"name": "Korn", "genre": 1.5}}"#;
    assert_eq!(api.send("PUT", KORN, body).await.0, StatusCode::BAD_REQUEST);
}

/// Two who read the same and write it back, with the version that they read, do
/// not overwrite each other.
#[tokio::test]
async fn a_version_in_a_body_counts() {
    let api = Api::open();
    let mut read = api.put_artist(KORN).await;
    read["data"]["name"] = json!("first");
    assert_eq!(api.send("PUT", KORN, &read.to_string()).await.0, StatusCode::OK);
    read["data"]["name"] = json!("second");
    let answer = api.send("PUT", KORN, &read.to_string()).await;
    assert_refused(&answer, StatusCode::CONFLICT, "Aborted", CAS_FAILED);

    // The query says the same thing, or the request contradicts itself.
    let now: Value = serde_json::from_str(&api.get(KORN).await.1).unwrap();
    let path = format!("{KORN}&version={}", now["version"].as_str().unwrap());
    let (status, text) = api.send("PUT", &path, &read.to_string()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
    assert!(text.contains("version"), "{text}");
    assert_eq!(api.send("PUT", &path, &now.to_string()).await.0, StatusCode::OK);
    // None, or an empty one, is a write without condition, as upstream's.
    for version in [Value::Null, json!("")] {
        read["version"] = version;
        assert_eq!(api.send("PUT", KORN, &read.to_string()).await.0, StatusCode::OK);
    }
    let upstream = Api::new(&builder().parity(Parity::Upstream).build());
    let read = upstream.put_artist(KORN).await;
    for _ in 0..2 {
        assert_eq!(upstream.send("PUT", KORN, &read.to_string()).await.0, StatusCode::OK);
    }
}

/// Spec: RS93
#[tokio::test]
async fn rights_are_those_of_the_token() {
    let rules = |access| StaticRules::none("a").with_key_prefix("resource/", access);
    let none = pb::Tenancy::default;
    let tokens = StaticTokens::default()
        .with_token("reader".to_owned().into(), rules(Access::Read), none())
        .with_token("writer".to_owned().into(), rules(Access::Write), none());
    let api = Api::new(&builder().authorization(tokens).build());
    let reader = Api { token: "reader", ..api.clone() };
    let writer = Api { token: "writer", ..api.clone() };
    let all = "resource/demo.v2.Artist";
    let lacks = |permission, key| {
        format!(
            "Permission denied: token with AccessorID 'a' lacks permission '{permission}' on {key:?}"
        )
    };
    let write = lacks("key:write", "resource/demo.v2.Artist/korn");
    writer.put_artist(KORN).await;
    for (answer, text) in [
        (reader.send("PUT", KORN, &artist_body("Korn")).await, &write),
        (api.get(KORN).await, &denied("key:read", "resource/demo.v2.Artist/korn")),
        (reader.get(ARTISTS).await, &lacks("key:list", all)),
        (reader.send("DELETE", KORN, "").await, &write),
    ] {
        assert_refused(&answer, StatusCode::FORBIDDEN, "PermissionDenied", text);
    }
    assert_eq!(reader.get(KORN).await.0, StatusCode::OK);
    assert_eq!(api.get(&format!("{KORN}&token=reader")).await.0, StatusCode::OK);
}

/// Spec: RS94
#[tokio::test]
async fn a_put_gives_the_stored_resource() {
    let stored = Api::open().put_artist(KORN).await;
    assert_eq!(stored["data"]["name"], "Korn");
    assert_eq!(stored["id"]["name"], "korn");
    assert_eq!(stored["metadata"], json!({"foo": "bar"}));
    assert_eq!(stored["data"].get("@type"), None);
}

/// Spec: RS95
#[tokio::test]
async fn a_put_may_be_conditional() {
    let api = Api::open();
    api.put_artist(KORN).await;
    let stored = api.put_artist(KORN).await;
    let version = stored["version"].as_str().unwrap();
    let (status, _) =
        api.send("PUT", &format!("{KORN}&version={version}"), &artist_body("Korn")).await;
    assert_eq!(status, StatusCode::OK);
    let answer = api.send("PUT", &format!("{KORN}&version=1"), &artist_body("Korn")).await;
    assert_refused(&answer, StatusCode::CONFLICT, "Aborted", CAS_FAILED);
}

/// Spec: RS96
#[tokio::test]
async fn owners_may_be_in_snake_case() {
    let api = Api::open();
    api.put_artist(KORN).await;
    let body = json!({
        "data": {"title": "Issues"},
        "owner": {
            "name": "korn",
            "type": {"group": "demo", "group_version": "v2", "kind": "Artist"},
            "tenancy": {"partition": "default", "namespace": "default"}
        }
    });
    let path = "/api/demo/v2/album/issues?partition=default&namespace=default";
    let (status, text) = api.send("PUT", path, &body.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let stored: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(stored["owner"]["name"], "korn");
    assert!(stored["owner"]["uid"].is_string());
}

/// Spec: RS97
#[tokio::test]
async fn a_get_gives_what_a_put_gave() {
    let api = Api::open();
    let stored = api.put_artist(KORN).await;
    let (status, body) = api.get(&format!("{KORN}&peer_name=local&consistent")).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), stored);
    let lines: Vec<_> = body.lines().collect();
    assert_eq!((lines[0], lines[1]), ("{", "  \"data\": {"), "two spaces, keys sorted");
}

/// Spec: RS98
#[tokio::test]
async fn unknown_resources_and_types_are_not_found() {
    let answer = Api::open().get(KORN).await;
    assert_refused(&answer, StatusCode::NOT_FOUND, "NotFound", "resource not found");
    for path in ["/api/demo/v9/artist/korn", "/api/demo/v2/Artist/korn", "/api/demo", "/other"] {
        let (status, text) = Api::open().get(path).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}");
        assert!(!text.is_empty(), "{path}");
    }
}

/// With Consul's behaviour switched on, a version without uid does not count.
///
/// Spec: RS99
#[tokio::test]
async fn deletes_with_and_without_version() {
    for (query, parity, expected) in [
        ("", Parity::Corrected, StatusCode::NO_CONTENT),
        ("", Parity::Upstream, StatusCode::NO_CONTENT),
        ("&version=1", Parity::Upstream, StatusCode::NO_CONTENT),
        ("&version=1", Parity::Corrected, StatusCode::CONFLICT),
    ] {
        let api = Api::new(&builder().parity(parity).build());
        api.put_artist(KORN).await;
        api.put_artist(KORN).await;
        let answer = api.send("DELETE", &format!("{KORN}{query}"), "").await;
        assert_eq!(answer.0, expected, "{query} {parity:?}");
        if expected == StatusCode::NO_CONTENT {
            assert_eq!(answer.1, "");
            let gone = api.get(KORN).await;
            assert_refused(&gone, StatusCode::NOT_FOUND, "NotFound", "resource not found");
        }
    }
}

/// Spec: RS100
#[tokio::test]
async fn other_methods_are_not_allowed() {
    for (method, path) in [("PUT", ARTISTS), ("DELETE", ARTISTS), ("POST", KORN), ("PATCH", KORN)] {
        let answer = Api::open().send(method, path, &artist_body("Korn")).await;
        assert_eq!(answer, (StatusCode::METHOD_NOT_ALLOWED, String::new()), "{method}");
    }
}

/// Spec: RS101
#[tokio::test]
async fn lists_are_objects_with_resources() {
    let api = Api::open();
    let empty = json!({"resources": []});
    let list = async |query: &str| -> Value {
        let (status, body) = api.get(&format!("{ARTISTS}{query}")).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(list("").await, empty);
    let korn = api.put_artist(KORN).await;
    let steve =
        api.put_artist("/api/demo/v2/artist/steve?partition=default&namespace=default").await;
    assert_eq!(list("").await, json!({"resources": [korn, steve]}));
    assert_eq!(list("&name_prefix=noname").await, empty);
    assert_eq!(list("&name_prefix=steve").await, json!({"resources": [steve]}));
}

/// A resource without data is shown without data.
#[tokio::test]
async fn resources_without_data_are_shown() {
    let api = Api::open();
    let stored = api.service.put(pb::Resource { data: None, ..label("roadrunner") }).await.unwrap();
    let (status, body) = api.get("/api/demo/v1/recordlabel/roadrunner?partition=default").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let shown: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((shown.get("data"), shown["id"]["uid"].as_str()), (None, Some(stored.uid())));
}

#[tokio::test]
async fn oversized_bodies_are_refused() {
    let router = HttpApi::new(service()).unwrap().with_max_body_bytes(10).into_router();
    let api = Api { router, ..Api::open() };
    let (status, _) = api.send("PUT", KORN, &artist_body("Korn")).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn a_watch_is_lines_of_json() {
    let stop = tokio_util::sync::CancellationToken::new();
    let service = service();
    let router = HttpApi::new(service.clone()).unwrap().with_stop(stop.clone()).into_router();
    service.put(artist("korn")).await.unwrap();
    let request = Request::get(format!("{ARTISTS}&watch")).body(Body::empty()).unwrap();
    let mut body = router.oneshot(request).await.unwrap().into_body();
    let mut next = async || -> Value {
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert!(frame.ends_with(b"\n"));
        serde_json::from_slice(&frame).unwrap()
    };
    assert_eq!(next().await["upsert"]["resource"]["id"]["name"], "korn");
    assert_eq!(next().await, json!({"endOfSnapshot": {}}));
    service.remove(&id(&artist("korn")), "").await.unwrap();
    assert_eq!(next().await["delete"]["resource"]["data"]["name"], "korn");
    stop.cancel();
    assert_eq!(
        next().await,
        json!({"error": {"code": "Unavailable", "message": "server is shutting down"}})
    );
    assert!(body.frame().await.is_none());
}

/// A list and a watch of many resources are written in pieces, and others get their
/// turn between them.
#[tokio::test]
async fn a_large_answer_leaves_room_for_others() {
    let api = Api::open();
    for number in 0..1_000 {
        api.service
            .write(
                &RequestContext::anonymous(),
                pb::WriteRequest {
                    resource: Some(demo::artist(&format!("artist-{number:04}")).encode()),
                },
            )
            .await
            .unwrap();
    }
    let turns = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&turns);
    let other = tokio::spawn(async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    let before = turns.load(Ordering::Relaxed);
    let (status, text) = api.get(ARTISTS).await;
    let of_list = turns.load(Ordering::Relaxed) - before;
    assert_eq!(status, StatusCode::OK);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["resources"].as_array().unwrap().len(), 1_000);
    assert_eq!(text, serde_json::to_string_pretty(&value).unwrap());

    let request = Request::builder().uri(format!("{ARTISTS}&watch")).body(Body::empty()).unwrap();
    let answer = api.router.clone().oneshot(request).await.unwrap();
    let mut lines = answer.into_body().into_data_stream();
    let before = turns.load(Ordering::Relaxed);
    let mut shown = 0;
    while !lines.next().await.unwrap().unwrap().starts_with(br#"{"endOfSnapshot""#) {
        shown += 1;
    }
    let of_watch = turns.load(Ordering::Relaxed) - before;
    other.abort();
    assert_eq!(shown, 1_000);
    assert!(of_list >= 7 && of_watch >= 7, "{of_list} and {of_watch} turns");
}
