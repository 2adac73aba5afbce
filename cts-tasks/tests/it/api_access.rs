//! Who may use the HTTP API from where: web pages, other names, other content.

use std::sync::Arc;

use cts_tasks::{ApiServer, Single, config::TaskRules};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    api::Api,
    authority::{Authority, tls},
    config::support::{errors, try_load},
    scene::Scene,
};

fn rules() -> TaskRules {
    try_load("port = 0").unwrap().rules
}

async fn serve(scene: &Scene, change: impl FnOnce(ApiServer) -> ApiServer) -> Api {
    let server = Api::bind(scene, Arc::new(Single)).await.accept_tasks(rules());
    Api::start(change(server))
}

fn task() -> String {
    let condition = json!({"services": {"names": ["web"]}});
    json!({"task": {"name": "t", "module": "m", "condition": condition}}).to_string()
}

async fn answered(request: RequestBuilder) -> (u16, String) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    let document: Value = serde_json::from_str(&text).unwrap_or_default();
    (status, document["error"]["message"].as_str().unwrap_or_default().to_owned())
}

/// Before, any page could do all of this.
#[tokio::test]
async fn a_page_of_another_origin_changes_nothing_and_reads_nothing() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let api = serve(&scene, |server| server).await;
    let url = |path: &str| format!("{}{path}", api.url);
    for (method, path) in [
        (Method::POST, "/v1/tasks"),
        (Method::POST, "/v1/tasks/t/run"),
        (Method::PATCH, "/v1/tasks/t"),
        (Method::DELETE, "/v1/tasks/t"),
        (Method::POST, "/v1/tasks/t/plan/1/approve"),
    ] {
        for (name, value) in [
            ("origin", "https://evil.example.com"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let request = api.http.request(method.clone(), url(path)).header(name, value);
            let request = request.header("content-type", "application/json").body(task());
            let (status, message) = answered(request).await;
            assert_eq!(status, 403, "{method} {path} {name}: {value}");
            assert!(message.contains("api_cors_origins"), "{message}");
        }
    }
    assert_eq!(api.get("/v1/tasks").await.1["tasks"], json!([]));
    // What a browser asks first is not granted, and answers are not shown to the page.
    for method in [Method::OPTIONS, Method::GET] {
        let request = api.http.request(method, url("/v1/tasks"));
        let answer = request.header("origin", "https://evil.example.com").send().await.unwrap();
        assert_eq!(answer.status(), 200);
        let named = answer.headers().keys().any(|name| name.as_str().starts_with("access-control"));
        assert!(!named, "{:?}", answer.headers());
    }
    scene.end(running).await;
}

#[tokio::test]
async fn an_origin_that_is_allowed_reads_and_changes() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let ui = "https://ui.example.com";
    for (allowed, granted) in [(ui, ui), ("*", "*")] {
        let api = serve(&scene, |server| server.with_cors_origins([allowed.to_owned()])).await;
        let post = |origin: &'static str| {
            let request = api.http.post(format!("{}/v1/tasks?run=inspect", api.url));
            let request = request.header("origin", origin);
            request.header("content-type", "application/json").body(task())
        };
        let answer = post(ui).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["access-control-allow-origin"], granted);
        assert_eq!(answer.headers()["vary"], "origin");
        let other = answered(post("https://evil.example.com")).await.0;
        assert_eq!(other, if allowed == "*" { 200 } else { 403 });

        let asked = api.http.request(Method::OPTIONS, format!("{}/v1/tasks", api.url));
        let asked = asked.header("origin", ui).send().await.unwrap();
        assert_eq!(asked.headers()["access-control-allow-origin"], granted);
        let headers = &asked.headers()["access-control-allow-headers"];
        assert_eq!(headers, "Authorization, Content-Type");
    }
    scene.end(running).await;
}

#[tokio::test]
async fn a_page_of_the_same_name_may_change() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(Vec::new()).await;
    let api = serve(&scene, |server| server).await;
    let request = api.http.post(format!("{}/v1/tasks?run=inspect", api.url));
    let request = request.header("origin", &api.url).header("sec-fetch-site", "same-origin");
    let request = request.header("content-type", "application/json").body(task());
    assert_eq!(answered(request).await.0, 200);
    scene.end(running).await;
}

/// Before, a page whose name resolves to this server was answered as if it were its own.
#[tokio::test]
async fn a_name_that_is_not_the_servers_is_refused_without_token_and_tls() {
    let scene = Scene::new();
    let api = serve(&scene, |server| server.with_hosts(["cts.example.com".to_owned()])).await;
    let ask = |api: &Api, path: &str, host: &str| {
        let request = api.http.get(format!("{}{path}", api.url)).header("host", host);
        async { answered(request).await }
    };
    for known in ["localhost:8558", "10.0.0.1", "[::1]:8558", "CTS.example.com:8558"] {
        assert_eq!(ask(&api, "/v1/status", known).await.0, 200, "{known}");
    }
    for unknown in ["evil.example.com", "127.0.0.1.evil.example.com:8558", "localhost.evil"] {
        let (status, message) = ask(&api, "/v1/status", unknown).await;
        assert_eq!(status, 403, "{unknown}");
        assert!(message.contains("api_hosts"), "{message}");
        // Balancers ask for the health by whatever name they have.
        assert_eq!(ask(&api, "/v1/health", unknown).await.0, 200);
    }

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "s3cret").unwrap();
    let server = Api::bind(&scene, Arc::new(Single)).await;
    let guarded = Api::start(server.with_token_file(file).await.unwrap());
    assert_eq!(ask(&guarded, "/v1/status", "any.example.com").await.0, 401);

    let authority = Authority::new();
    let pair = authority.sign("server", &["localhost"]);
    let server = Api::bind(&scene, Arc::new(Single)).await;
    let server = server.with_tls(&tls(&pair, "")).unwrap();
    let url = format!("https://localhost:{}/v1/status", server.local_addr().unwrap().port());
    let _serving = Api::start(server);
    let root = reqwest::Certificate::from_pem(&std::fs::read(authority.ca_file()).unwrap());
    let client = reqwest::Client::builder().tls_certs_only([root.unwrap()]).build().unwrap();
    assert_eq!(answered(client.get(url).header("host", "any.example.com")).await.0, 200);
}

/// Before, a form or plain text, which pages send without asking, created a task.
#[tokio::test]
async fn a_body_has_to_be_declared_as_json() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![crate::scene::on("on", &["web"])]).await;
    let api = serve(&scene, |server| server).await;
    let request = |method: Method, path: &str, content: Option<&str>, body: String| {
        let request = api.http.request(method, format!("{}{path}", api.url)).body(body);
        match content {
            Some(content) => request.header("content-type", content),
            None => request,
        }
    };
    let form = "application/x-www-form-urlencoded";
    for content in [None, Some("text/plain"), Some(form), Some("multipart/form-data"), Some("")] {
        let (status, message) = answered(request(Method::POST, "/v1/tasks", content, task())).await;
        assert_eq!(status, 400, "{content:?}");
        assert!(message.contains("'Content-Type' has unexpected value"), "{message}");
    }
    for content in [Some("text/plain"), Some(form)] {
        let run = request(Method::POST, "/v1/tasks/on/run", content, String::new());
        assert_eq!(answered(run).await.0, 400, "{content:?}");
    }
    for content in ["application/json", "Application/JSON; charset=utf-8"] {
        let inspect = request(Method::POST, "/v1/tasks?run=inspect", Some(content), task());
        assert_eq!(answered(inspect).await.0, 200, "{content}");
    }
    let run = request(Method::POST, "/v1/tasks/on/run", None, String::new());
    assert_eq!(answered(run).await.0, 200);
    // Upstream's command line leaves it out, and curl says that it sends a form.
    let update = || "{\"enabled\": true}".to_owned();
    for content in [None, Some(form), Some("application/json")] {
        let patch = request(Method::PATCH, "/v1/tasks/on", content, update());
        assert_eq!(answered(patch).await.0, 200, "{content:?}");
    }
    let patch = request(Method::PATCH, "/v1/tasks/on", Some("text/plain"), update());
    assert_eq!(answered(patch).await.0, 400);
    scene.end(running).await;
}

#[test]
fn hosts_and_origins_are_checked_with_their_places() {
    let config = try_load(
        "api_hosts = [\"cts.example.com\", \"cts:8558\"]\n\
         api_cors_origins = [\"https://ui.example.com:8443\", \"http://localhost\", \"*\"]\n",
    )
    .unwrap()
    .config;
    assert_eq!(config.api_hosts, ["cts.example.com", "cts:8558"]);
    assert_eq!(config.api_cors_origins.len(), 3);
    for wrong in ["api_hosts = [\"http://cts/\"]", "api_hosts = [\"\"]", "api_hosts = [\"a b\"]"] {
        let found = errors(wrong);
        assert!(found.len() == 1 && found[0].message.starts_with("api_hosts: "), "{found:?}");
        assert!(found[0].place.is_some());
    }
    for wrong in ["ui.example.com", "https://", "https://ui/path", "https://*.example.com", ""] {
        let found = errors(&format!("api_cors_origins = [{wrong:?}]"));
        assert!(found.len() == 1 && found[0].message.contains("is not an origin"), "{found:?}");
    }
}
