//! What stands before moto: it counts calls, throttles, and loses answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// What becomes of calls.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Weather {
    Fair,
    /// This share of all calls is refused.
    Throttled(f64),
    /// This share takes effect, and is answered with an error.
    Lossy(f64),
}

/// An endpoint of AWS that passes calls on.
pub(super) struct Proxy {
    endpoint: String,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    target: String,
    client: reqwest::Client,
    weather: Mutex<(Weather, fastrand::Rng)>,
    calls: watch::Sender<BTreeMap<String, usize>>,
}

impl Proxy {
    pub(super) async fn start(target: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            weather: Mutex::new((Weather::Fair, fastrand::Rng::with_seed(seed))),
            calls: watch::Sender::new(BTreeMap::new()),
        });
        let router = Router::new().fallback(pass).with_state(Arc::clone(&shared));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { endpoint, shared, serving }
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn set(&self, weather: Weather) {
        self.shared.weather.lock().unwrap().0 = weather;
    }

    /// How often each action was asked for so far.
    pub(super) fn calls(&self) -> BTreeMap<String, usize> {
        self.shared.calls.borrow().clone()
    }

    /// Waits until an action is asked for once more.
    pub(super) async fn next_call(&self, action: &str) {
        let mut calls = self.shared.calls.subscribe();
        let count = |calls: &BTreeMap<String, usize>| calls.get(action).copied().unwrap_or(0);
        let before = count(&calls.borrow_and_update());
        calls.wait_for(|now| count(now) > before).await.unwrap();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn pass(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: Bytes) -> Response {
    let target = headers.get("x-amz-target").map(|it| it.to_str().unwrap()).unwrap_or_default();
    let action = target.rsplit('.').next().unwrap_or_default().to_owned();
    shared.calls.send_modify(|calls| *calls.entry(action).or_default() += 1);
    let (throttled, lost) = {
        let mut weather = shared.weather.lock().unwrap();
        let dice = weather.1.f64();
        match weather.0 {
            Weather::Fair => (false, false),
            Weather::Throttled(share) => (dice < share, false),
            Weather::Lossy(share) => (false, dice < share),
        }
    };
    if throttled {
        return answer(400, r#"{"__type":"ThrottlingException","message":"Rate exceeded"}"#.into());
    }
    let mut request = shared.client.post(&shared.target).body(body);
    for name in ["authorization", "content-type", "x-amz-target", "x-amz-date"] {
        if let Some(value) = headers.get(name) {
            request = request.header(name, value);
        }
    }
    let passed = request.send().await.unwrap();
    let status = passed.status().as_u16();
    let body = passed.bytes().await.unwrap();
    if lost {
        return answer(500, r#"{"__type":"InternalServiceError","message":"lost"}"#.into());
    }
    answer(status, body)
}

fn answer(status: u16, body: Bytes) -> Response {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("content-type", "application/x-amz-json-1.1")
        .body(Body::from(body))
        .unwrap()
}
