//! Scripted blocking answers for `wiremock`, for those who pin the wire.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use consul_watch::{Client, ClientConfig, Watcher, query::CatalogServices, testing::script::Script};
//! use serde_json::json;
//!
//! let server = wiremock::MockServer::start().await;
//! Script::new("/v1/catalog/services")
//!     .answer(5, json!({ "consul": [] }))
//!     .answer(9, json!({ "consul": [], "web": ["v1"] }))
//!     .mount(&server)
//!     .await;
//!
//! let mut config = ClientConfig::default();
//! config.address = server.uri();
//! let mut services = Watcher::new(Client::new(config)?).watch(CatalogServices::new());
//! assert_eq!(services.changed().await?.data.len(), 1);
//! assert_eq!(services.changed().await?.data.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate, matchers};

/// Longer than any test waits.
const HELD: Duration = Duration::from_hours(1);

/// The answers of one path, in their order.
///
/// The first one answers a request without an index. Each further one is held
/// back until a request asks with the index of the one before. Past the last,
/// requests are held for ever.
#[derive(Debug)]
#[must_use]
pub struct Script {
    path: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Answer { index: u64, body: Value },
    Status { status: u16, text: String },
}

impl Script {
    /// A script for a path, such as `/v1/catalog/services`.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), steps: Vec::new() }
    }

    /// Then answers this body with this index.
    pub fn answer(mut self, index: u64, body: Value) -> Self {
        self.steps.push(Step::Answer { index, body });
        self
    }

    /// Then answers one request with this status.
    pub fn status(mut self, status: u16, text: impl Into<String>) -> Self {
        self.steps.push(Step::Status { status, text: text.into() });
        self
    }

    /// Lets a server play the script.
    pub async fn mount(self, server: &MockServer) {
        let path = self.path;
        let player = Player { steps: self.steps, at: Mutex::new(Played::default()) };
        Mock::given(matchers::method("GET"))
            .and(matchers::path(path))
            .respond_with(player)
            .mount(server)
            .await;
    }
}

#[derive(Debug)]
struct Player {
    steps: Vec<Step>,
    at: Mutex<Played>,
}

#[derive(Debug, Default)]
struct Played {
    /// Steps that were played.
    count: usize,
    /// The last answer.
    current: Option<(u64, Value)>,
    failed: bool,
}

impl Respond for Player {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let asked = request
            .url
            .query_pairs()
            .find(|(name, _)| name == "index")
            .and_then(|(_, value)| value.parse::<u64>().ok())
            .filter(|index| *index > 0);
        let mut played = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.steps.get(played.count).cloned();
        if let Some(Step::Status { status, text }) = next {
            played.count += 1;
            played.failed = true;
            return ResponseTemplate::new(status).set_body_string(text);
        }
        let current = played.current.clone();
        let goes_on = match (&current, asked) {
            (None, _) => true,
            (Some((index, _)), Some(asked)) => *index == asked,
            (Some(_), None) => played.failed,
        };
        if goes_on && let Some(Step::Answer { index, body }) = next {
            played.count += 1;
            played.failed = false;
            played.current = Some((index, body.clone()));
            return answer(index, &body);
        }
        match current {
            Some((index, body)) if asked == Some(index) => answer(index, &body).set_delay(HELD),
            Some((index, body)) => answer(index, &body),
            None => ResponseTemplate::new(404),
        }
    }
}

fn answer(index: u64, body: &Value) -> ResponseTemplate {
    ResponseTemplate::new(200)
        .insert_header("X-Consul-Index", index.to_string())
        .set_body_json(body)
}
