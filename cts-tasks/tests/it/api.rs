//! The HTTP API, served on a socket.

use std::{sync::Arc, time::Duration};

use consul_watch::testing::Fault;
use cts_tasks::{ApiServer, Cluster, Member, Role, Single, Stop, StopReason, config::TaskRules};
use serde_json::{Value, json};
use tokio::{sync::OnceCell, time::sleep};

use crate::{
    document::{Document, Exchange},
    scene::{Scene, on},
};

pub(crate) struct Api {
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
    /// The document that it serves, which all its answers are held against.
    document: OnceCell<Document>,
    stop: Stop,
}

impl Drop for Api {
    fn drop(&mut self) {
        self.stop.stop(StopReason::Shutdown);
    }
}

impl Api {
    pub(crate) async fn serve(scene: &Scene, cluster: Arc<dyn Cluster>) -> Self {
        Self::start(Self::bind(scene, cluster).await)
    }

    /// Serves with the rules of a configuration, so that tasks can be created.
    pub(crate) async fn serve_with(scene: &Scene, rules: TaskRules) -> Self {
        Self::start(Self::bind(scene, Arc::new(Single)).await.accept_tasks(rules))
    }

    pub(crate) async fn bind(scene: &Scene, cluster: Arc<dyn Cluster>) -> ApiServer {
        let address = "127.0.0.1:0".parse().unwrap();
        ApiServer::bind(address, scene.engine.clone(), cluster).await.unwrap()
    }

    pub(crate) fn start(server: ApiServer) -> Self {
        let url = format!("http://{}", server.local_addr().unwrap());
        let stop = Stop::new();
        tokio::spawn(server.serve(stop.clone()));
        Self { url, http: reqwest::Client::new(), document: OnceCell::new(), stop }
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.request(reqwest::Method::GET, path).await
    }

    pub(crate) async fn request(&self, method: reqwest::Method, path: &str) -> (u16, Value) {
        self.send(method, path, String::new()).await
    }

    pub(crate) async fn send(
        &self,
        method: reqwest::Method,
        path: &str,
        body: String,
    ) -> (u16, Value) {
        let headers: &[_] =
            if body.is_empty() { &[] } else { &[("content-type", "application/json")] };
        let exchange = self.exchange(method, path, headers, body.into_bytes()).await;
        let answer = match exchange.answer.as_str() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap(),
        };
        (exchange.status, answer)
    }

    /// Sends a request, and holds the exchange against the document.
    pub(crate) async fn exchange(
        &self,
        method: reqwest::Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Exchange {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = String::from_utf8_lossy(&body).into_owned();
        let answer = request.body(body).send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!(header("access-control-allow-origin"), None);
        let mut exchange = Exchange {
            method,
            target: path.to_owned(),
            sent,
            status: answer.status().as_u16(),
            content_type: header("content-type").unwrap().to_owned(),
            request_id: header("x-request-id").map(str::to_owned),
            answer: String::new(),
        };
        exchange.answer = answer.text().await.unwrap();
        self.document()
            .await
            .check(&exchange)
            .unwrap_or_else(|problem| panic!("{problem}\nsent {} with {headers:?}", exchange.sent));
        exchange
    }

    async fn document(&self) -> &Document {
        let url = format!("{}/v1/openapi.json", self.url);
        let fetch = || async {
            let served = self.http.get(url).send().await.unwrap().bytes().await.unwrap();
            Document::new(serde_json::from_slice(&served).unwrap())
        };
        self.document.get_or_init(fetch).await
    }
}

/// A scene in which `good` ran well, `bad` failed in its second run and `idle` is disabled.
async fn scene() -> Scene {
    let scene = Scene::new();
    for service in ["good", "bad"] {
        scene.put(service, 1);
    }
    scene.driver.fail_next("bad", "no", false);
    let mut idle = on("idle", &["other"]);
    idle.enabled = false;
    let tasks = vec![on("good", &["good"]), idle, on("bad", &["bad"])];
    scene.engine.load(tasks, &scene.stop).await.unwrap();
    assert!(scene.engine.once(&scene.stop).await.is_err());
    scene
}

/// Spec: CTS84
#[tokio::test]
async fn health_is_an_empty_object() {
    let scene = Scene::new();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    assert_eq!(api.get("/v1/health").await, (200, json!({})));
}

#[tokio::test(start_paused = true)]
async fn health_is_503_while_consul_does_not_answer() {
    let scene = Scene::new();
    scene.put("web", 1);
    let running = scene.start(vec![on("t", &["web"])]).await;
    scene.consul.inject_always(Some(Fault::status(500, "No cluster leader")));
    scene.consul.restart();
    sleep(Duration::from_hours(1)).await;
    // Sockets need real time.
    tokio::time::resume();
    let api = Api::serve(&scene, Arc::new(Single)).await;
    let (status, answer) = api.get("/v1/health").await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(status, 503);
    assert!(message.starts_with("CTS is not healthy: health.service(web|passing)"), "{message}");
    scene.end(running).await;
}

#[tokio::test]
async fn the_overall_status_counts_tasks() {
    let api = Api::serve(&scene().await, Arc::new(Single)).await;
    let expected = json!({"task_summary": {
        "status": {"successful": 1, "errored": 1, "critical": 0, "unknown": 1},
        "enabled": {"true": 2, "false": 1},
    }});
    assert_eq!(api.get("/v1/status").await, (200, expected));
}

/// Spec: CTS75
#[tokio::test]
async fn the_status_of_tasks_can_be_filtered_and_include_events() {
    let api = Api::serve(&scene().await, Arc::new(Single)).await;
    let (status, all) = api.get("/v1/status/tasks").await;
    assert_eq!(status, 200);
    assert_eq!(all.as_object().unwrap().keys().collect::<Vec<_>>(), ["bad", "good", "idle"]);
    let expected = json!({
        "task_name": "good", "status": "successful", "enabled": true,
        "events_url": "/v1/status/tasks/good?include=events",
        "providers": [], "services": [],
    });
    assert_eq!(all["good"], expected);
    assert_eq!(all["idle"]["events_url"], "");

    let (_, errored) = api.get("/v1/status/tasks?status=Errored&include=events").await;
    assert_eq!(errored.as_object().unwrap().len(), 1);
    let event = &errored["bad"]["events"][0];
    let source = std::env::current_dir().unwrap().join("module");
    assert_eq!(event["success"], false);
    assert_eq!(event["task_name"], "bad");
    assert_eq!(event["error"], json!({"message": "no"}));
    assert_eq!(event["config"], json!({"providers": [], "services": [], "source": source}));
    assert!(chrono::DateTime::parse_from_rfc3339(event["start_time"].as_str().unwrap()).is_ok());
}

#[tokio::test]
async fn one_task_is_shown_by_name() {
    let api = Api::serve(&scene().await, Arc::new(Single)).await;
    let (status, one) = api.get("/v1/status/tasks/good?include=events").await;
    assert_eq!((status, one.as_object().unwrap().len()), (200, 1));
    assert_eq!(one["good"]["events"][0]["error"], Value::Null);
    // Only a task without events ignores the filter.
    assert_eq!(api.get("/v1/status/tasks/good?status=errored").await, (200, json!({})));
    assert_eq!(
        api.get("/v1/status/tasks/idle?status=errored").await.1["idle"]["status"],
        "unknown"
    );
    let (status, error) = api.get("/v1/status/tasks/gone").await;
    assert_eq!(status, 404);
    assert_eq!(
        error["error"]["message"],
        "a task with name 'gone' does not exist or has not been initialized yet"
    );
    assert!(uuid::Uuid::parse_str(error["request_id"].as_str().unwrap()).is_ok());
}

#[tokio::test]
async fn bad_parameters_and_paths_are_refused_with_their_texts() {
    let api = Api::serve(&scene().await, Arc::new(Single)).await;
    for (path, text) in [
        (
            "?include=all",
            "unsupported ?include parameter value. only supporting 'include=events' but got 'include=all'",
        ),
        (
            "?include=events&include=events",
            "cannot support more than one include parameter, got include values: ",
        ),
        (
            "?status=fine",
            "unsupported status parameter value. only supporting status values successful, errored, critical, and unknown but got fine",
        ),
        (
            "?status=errored&status=critical",
            "cannot support more than one status query parameter, got status values: ",
        ),
        (
            "/good/more",
            "unsupported path '/v1/status/tasks/good/more'. request must be format 'path/{task-name}'. task name cannot have '/ ' and api does not support further resources",
        ),
    ] {
        let (status, error) = api.get(&format!("/v1/status/tasks{path}")).await;
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(status, 400, "{path}");
        assert!(message.starts_with(text), "{path}: {message}");
    }
}

/// Spec: CTS80
#[tokio::test]
async fn other_methods_are_refused_and_options_always_answered() {
    let api = Api::serve(&scene().await, Arc::new(Single)).await;
    let (status, error) = api.request(reqwest::Method::POST, "/v1/status").await;
    assert_eq!(status, 405);
    assert_eq!(
        error["error"]["message"],
        "'POST' in an unsupported method. The overallStatus API currently supports the method(s): 'GET'"
    );
    let (status, error) = api.request(reqwest::Method::DELETE, "/v1/status/tasks").await;
    assert_eq!(status, 405);
    assert_eq!(
        error["error"]["message"],
        "'DELETE' in an unsupported method. The task status API currently supports the method(s): 'GET'"
    );
    for path in ["/v1/status", "/v1/nowhere"] {
        assert_eq!(api.request(reqwest::Method::OPTIONS, path).await.0, 200);
    }
    assert_eq!(api.get("/v1/nowhere").await.0, 404);
}

#[derive(Debug)]
pub(crate) struct FollowerOf(pub(crate) Option<&'static str>);

#[async_trait::async_trait]
impl Cluster for FollowerOf {
    fn role(&self) -> Role {
        let leader = self.0.map(str::to_owned);
        Role::Follower {
            address: leader.as_ref().map(|name| format!("{name}.example.com:8558")),
            leader,
        }
    }

    fn name(&self) -> Option<String> {
        Some("cluster-a".into())
    }

    fn tags(&self) -> Vec<String> {
        Vec::new()
    }

    async fn members(&self) -> cts_tasks::Result<Vec<Member>> {
        let leader = json!({
            "id": "cts-01", "service_name": "cts", "healthy": true, "leader": true,
            "address": "cts-01.example.com",
        });
        Ok(vec![serde_json::from_value::<Member>(leader).unwrap()])
    }
}

#[tokio::test]
async fn a_follower_answers_health_and_sends_the_rest_to_the_leader() {
    let scene = Scene::new();
    for (leader, text) in [
        (Some("cts-01"), "redirect requests to leader 'cts-01' at cts-01.example.com:8558"),
        (None, "redirect requests to leader"),
    ] {
        let api = Api::serve(&scene, Arc::new(FollowerOf(leader))).await;
        let (status, error) = api.get("/v1/status/tasks").await;
        assert_eq!((status, error["error"]["message"].as_str().unwrap()), (400, text));
        assert_eq!(api.get("/v1/health").await.0, 200);
    }
}
