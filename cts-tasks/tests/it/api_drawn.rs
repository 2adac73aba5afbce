//! Requests drawn from the API's own document, right ones and malformed ones: each answer is
//! one that the document lists for the request, and has the form that it says.
//!
//! [`Api::exchange`] holds every answer against the document.

use std::sync::Arc;

use cts_tasks::{Single, config::Registry};
use fastrand::Rng;
use proptest::prelude::*;
use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::{
    api::{Api, FollowerOf},
    config::support::{AnyDriver, loader_of, source},
    scene::{Scene, on},
};

/// Names of tasks: there, disabled, with a plan that waits, not there, and none.
const NAMES: [&str; 12] = [
    "on", "idle", "guarded", "new", "new", "gone", "1st", "a%20b", "%2E%2Ex", "on%2Frun", "%00",
    "\u{e9}",
];

/// A request that was drawn.
#[derive(Debug)]
struct Drawn {
    method: Method,
    target: String,
    headers: Vec<(&'static str, &'static str)>,
    body: Vec<u8>,
}

/// Draws requests from a document.
struct Draw<'a> {
    document: &'a Value,
    random: Rng,
    /// The plan that waits.
    plan: String,
}

impl Draw<'_> {
    fn one_of<'b, T: ?Sized>(&mut self, all: &[&'b T]) -> &'b T {
        all[self.random.usize(..all.len())]
    }

    fn rarely(&mut self) -> bool {
        self.random.u8(..8) == 0
    }

    fn request(&mut self) -> Drawn {
        let document = self.document;
        let paths = document["paths"].as_object().unwrap();
        let mut at = self.random.usize(..paths.len());
        if self.random.u8(..4) == 0 {
            // Where most can go wrong.
            at = paths.keys().position(|path| path == "/v1/tasks").unwrap();
        }
        let (template, item) = paths.iter().nth(at).unwrap();
        let operations: Vec<(&String, &Value)> = item.as_object().unwrap().iter().collect();
        let (method, operation) = operations[self.random.usize(..operations.len())];
        let mut method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
        if self.rarely() {
            let others =
                ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"].map(str::as_bytes);
            method = Method::from_bytes(self.one_of(&others)).unwrap();
        }
        let mut target = format!("{}{}", self.path(template), self.query(operation));
        if template == "/v1/events" {
            // Else the answer has no end.
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str("wait=false");
        }
        let (body, mut headers) = self.body(operation);
        if self.rarely() {
            headers.push(*self.one_of(&[
                &("origin", "http://evil.example"),
                &("accept", "text/html"),
                &("x-request-id", "mine"),
                &("authorization", "Bearer wrong"),
                &("expect", "something"),
            ]));
        }
        Drawn { method, target, headers, body }
    }

    fn path(&mut self, template: &str) -> String {
        let mut path = template.replace("{name}", self.one_of(&NAMES));
        let id = if self.random.bool() { self.plan.clone() } else { "other".to_owned() };
        path = path.replace("{id}", &id);
        match self.random.u8(..24) {
            0 => path + "/",
            1 => path + "/more",
            2 => path.replace("/v1", "/v2"),
            _ => path,
        }
    }

    fn query(&mut self, operation: &Value) -> String {
        const VALUES: [&str; 9] =
            ["now", "NOW", "inspect", "Inspect", "events", "errored", "Successful", "", "%zz"];
        let mut pairs = Vec::new();
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["$ref"].as_str().map_or(parameter, |reference| {
                self.document.pointer(reference.trim_start_matches('#')).unwrap()
            });
            let endless = name["name"] == "wait";
            if name["in"] != "query" || endless || self.random.bool() {
                continue;
            }
            let name = name["name"].as_str().unwrap();
            for _ in 0..if self.rarely() { 2 } else { 1 } {
                pairs.push(format!("{name}={}", self.one_of(&VALUES)));
            }
        }
        if self.rarely() {
            pairs
                .push(self.one_of(&["unknown=1", "run", "=", "&&", "include[]=events"]).to_owned());
        }
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    fn body(&mut self, operation: &Value) -> (Vec<u8>, Vec<(&'static str, &'static str)>) {
        let schema = operation.pointer("/requestBody/content/application~1json/schema");
        let Some(schema) = schema else {
            let body = if self.rarely() { b"{\"more\": 1}".to_vec() } else { Vec::new() };
            return (body, Vec::new());
        };
        let mut value = self.value("", schema);
        while self.rarely() {
            self.spoil(&mut value);
        }
        let mut body = serde_json::to_vec(&value).unwrap();
        if self.rarely() {
            let at = self.random.usize(..=body.len());
            match self.random.u8(..4) {
                0 => body.truncate(at),
                1 => body.insert(at, self.random.u8(0..=255)),
                2 => body.clear(),
                _ => body = b"[".repeat(10_000),
            }
        }
        let media = if self.rarely() {
            *self.one_of(&[
                &"text/plain",
                &"application/x-www-form-urlencoded",
                &"application/json; charset=latin1",
                &"APPLICATION/JSON",
                &"nonsense",
            ])
        } else {
            "application/json"
        };
        (body, vec![("content-type", media)])
    }

    /// Draws a value of a schema; `key` is where it stands.
    fn value(&mut self, key: &str, schema: &Value) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let document = self.document;
            return self.value(key, document.pointer(reference.trim_start_matches('#')).unwrap());
        }
        if let Some(all) = schema["enum"].as_array() {
            return all[self.random.usize(..all.len())].clone();
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(all) = schema[choice].as_array() {
                let chosen = &all[self.random.usize(..all.len())];
                return self.value(key, chosen);
            }
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds[self.random.usize(..kinds.len())].as_str(),
            kind => kind.as_str(),
        };
        match kind.unwrap_or("object") {
            "object" => self.object(key, schema),
            "array" => {
                let count = if key == "names" { 1 } else { self.random.usize(..3) };
                (0..count).map(|_| self.value(key, &schema["items"])).collect()
            }
            "string" => json!(self.text(key)),
            "boolean" => json!(self.random.bool()),
            "integer" => json!(self.random.i64(0..3)),
            "number" => json!(5_000_000_000_i64),
            "null" => Value::Null,
            kind => panic!("a kind of value that this does not know: {kind}"),
        }
    }

    fn object(&mut self, key: &str, schema: &Value) -> Value {
        let mut object = Map::new();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let single = schema["maxProperties"] == 1;
        let properties: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        let only = self.random.usize(..properties.len().max(1));
        for (position, (name, schema)) in properties.into_iter().enumerate() {
            let drawn = if single {
                position == only
            } else {
                required.contains(&name.as_str())
                    || (key == "services" && name == "names")
                    || self.random.u8(..5) == 0
            };
            if drawn {
                object.insert(name.clone(), self.value(name, schema));
            }
        }
        if schema["additionalProperties"].is_object() && self.random.bool() {
            object.insert("other".to_owned(), self.value(key, &schema["additionalProperties"]));
        }
        object.into()
    }

    /// Draws a text: mostly the first of those for its place, which is taken there.
    fn text(&mut self, key: &str) -> &'static str {
        let usual: &[&str] = match key {
            "name" => &["new", "newer", "on", "1st", ""],
            "module" => &["./m", "org/module/x"],
            "cron" | "drift_check" => &["0 3 * * *", "@daily", "99 * * * *"],
            "timeout" | "shutdown_timeout" | "backoff" | "max_backoff" => {
                &["1m", "100ms", "-5s", "5"]
            }
            "min" | "max" => &["5s", "1m", "-5s", "5"],
            "regexp" => &["", "^web", "("],
            "names" => &["web", "db", ""],
            "path" => &["key", "app/"],
            "variables" => &["\"text\"", "1", "[1, 2]", "a b"],
            "providers" => &["p", "p.a"],
            "datacenter" => &["", "dc1", "elsewhere"],
            "namespace" => &["", "team"],
            "filter" => &["", "\"a\" in Service.Tags", "x ==", "Checks.Status != \"\""],
            _ => &["", "text", "\u{e9}\n\""],
        };
        if self.random.u8(..4) > 0 { usual[0] } else { self.one_of(usual) }
    }

    /// Changes something in a value, so that it is perhaps no more what it should be.
    fn spoil(&mut self, value: &mut Value) {
        if let Value::Object(object) = value
            && !object.is_empty()
            && self.random.u8(..4) > 0
        {
            let name = object.keys().nth(self.random.usize(..object.len())).unwrap().clone();
            match self.random.u8(..6) {
                0 => drop(object.remove(&name)),
                1 => drop(object.insert("unknown".to_owned(), json!(1))),
                2 => {
                    let inner = object.remove(&name).unwrap();
                    object.insert(name.to_uppercase(), inner);
                }
                _ => self.spoil(object.get_mut(&name).unwrap()),
            }
            return;
        }
        *value = match self.random.u8(..9) {
            0 => Value::Null,
            1 => json!(true),
            2 => json!(-1),
            3 => json!(1.5),
            4 => json!("true"),
            5 => json!([value.clone()]),
            6 => json!({"x": {}}),
            7 => json!(1e300),
            _ => json!("x".repeat(3000)),
        };
    }
}

/// An engine with a task that runs, one that is disabled and one whose plan waits.
async fn scene() -> Scene {
    let scene = Scene::new();
    for service in ["web", "db"] {
        scene.put(service, 1);
    }
    let mut idle = on("idle", &["web"]);
    idle.enabled = false;
    let mut guarded = on("guarded", &["web"]);
    guarded.guard.require_approval = true;
    scene.engine.load(vec![on("on", &["web"]), idle, guarded], &scene.stop).await.unwrap();
    let (engine, stop) = (scene.engine.clone(), scene.stop.clone());
    drop(tokio::spawn(async move { engine.run(&stop).await }));
    scene.wait_for_events("guarded", 1).await;
    scene.wait_for_events("on", 1).await;
    scene
}

/// Serves an API of this form: one that grants everything, one of a follower, or one that
/// wants a token.
async fn serve(scene: &Scene, form: u8, token: &std::path::Path) -> Api {
    match form {
        0 => Api::serve(scene, Arc::new(FollowerOf(Some("cts-01")))).await,
        1 => {
            let server = Api::bind(scene, Arc::new(Single)).await;
            let mut api = Api::start(server.with_token_file(token.to_owned()).await.unwrap());
            let bearer = ("authorization".parse().unwrap(), "Bearer s3cret".parse().unwrap());
            let client = reqwest::Client::builder().default_headers([bearer].into_iter().collect());
            api.http = client.build().unwrap();
            api
        }
        _ => {
            let driver = AnyDriver::new("terraform", &[]);
            let loader = loader_of(Registry::new().driver(driver));
            let loaded = loader.load_sources(vec![source("test.hcl", "port = 1")]).unwrap();
            Api::serve_with(scene, loaded.rules).await
        }
    }
}

/// Sends the requests of these seeds one after another; returns the statuses of the answers.
async fn send(form: u8, seeds: Vec<u64>) -> Vec<u16> {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "s3cret").unwrap();
    let scene = scene().await;
    let api = serve(&scene, form, &token).await;
    let document: Value = serde_json::from_str(include_str!("../../openapi.json")).unwrap();
    let mut statuses = Vec::new();
    for seed in seeds {
        let plan = scene.engine.waiting_plans().into_values().next();
        let mut draw = Draw {
            document: &document,
            random: Rng::with_seed(seed),
            plan: plan.map_or_else(|| "none".to_owned(), |plan| plan.id.to_string()),
        };
        let Drawn { method, target, mut headers, body } = draw.request();
        if form == 1 && seed % 2 == 0 {
            headers.push(("authorization", "Bearer an0ther"));
        }
        statuses.push(api.exchange(method, &target, &headers, body).await.status);
    }
    scene.stop.stop(cts_tasks::StopReason::Shutdown);
    statuses
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn every_answer_is_one_that_the_document_lists(
        form in 0_u8..8,
        seeds in proptest::collection::vec(any::<u64>(), 1..40),
    ) {
        runtime().block_on(send(form, seeds));
    }
}

/// What is drawn comes to most of what the API can answer, so the test above is about something.
#[test]
fn what_is_drawn_is_granted_and_refused_in_many_ways() {
    let statuses = runtime().block_on(send(2, (0..400).collect()));
    for status in [200, 201, 202, 400, 404, 405, 409] {
        assert!(statuses.contains(&status), "{status} is not among {statuses:?}");
    }
}
