//! Holds requests and answers against the `OpenAPI` document that an API serves.

use reqwest::Method;
use serde_json::{Value, json};

/// The document.
#[derive(Debug, Clone)]
pub(crate) struct Document(Value);

/// One request and what became of it.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) target: String,
    pub(crate) sent: String,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) request_id: Option<String>,
    pub(crate) answer: String,
}

impl Document {
    pub(crate) fn new(document: Value) -> Self {
        Self(document)
    }

    /// # Errors
    ///
    /// Where the exchange differs from the document.
    pub(crate) fn check(&self, exchange: &Exchange) -> Result<(), String> {
        let said = |problem: String| {
            format!("{} {}: {problem}\n{}", exchange.method, exchange.target, exchange.answer)
        };
        self.check_exchange(exchange).map_err(said)
    }

    fn check_exchange(&self, exchange: &Exchange) -> Result<(), String> {
        let id = exchange.request_id.as_deref().ok_or("no X-Request-Id")?;
        uuid::Uuid::parse_str(id).map_err(|error| format!("X-Request-Id: {error}"))?;
        let answer: Value = serde_json::from_str(&exchange.answer).unwrap_or_default();
        if answer.get("request_id").is_some_and(|named| named != id) {
            return Err("the header and the body name different requests".to_owned());
        }
        if exchange.method == Method::OPTIONS {
            return expect("status", &exchange.status, &200);
        }
        let (path, query) = exchange.target.split_once('?').unwrap_or((&exchange.target, ""));
        let method = exchange.method.as_str().to_lowercase();
        // Who may ask at all is looked at before what is asked.
        let Some(item) = self.path(path) else {
            return self.check_error(exchange, &[400, 401, 403, 404]);
        };
        let Some(operation) = item.get(&method) else {
            // Where metrics are not served there is nothing.
            let nothing = if path == "/metrics" { 404 } else { 405 };
            return self.check_error(exchange, &[400, 401, 403, 405, nothing]);
        };
        if exchange.status < 400 {
            self.check_request(operation, query, &exchange.sent)?;
        }
        self.check_answer(operation, exchange, &answer)
    }

    /// What stands at the path: first literally, then by its template.
    fn path(&self, path: &str) -> Option<&Value> {
        let paths = self.0["paths"].as_object()?;
        let path = match path {
            "/v1/tasks/" | "/v1/status/" | "/v1/status/tasks/" => path.trim_end_matches('/'),
            path => path,
        };
        let fits = |template: &str| {
            let (template, path) = (template.split('/'), path.split('/'));
            template.clone().count() == path.clone().count()
                && template.zip(path).all(|(part, given)| {
                    part.starts_with('{') && !given.is_empty() || part == given
                })
        };
        let template = || paths.iter().find(|(template, _)| fits(template)).map(|(_, item)| item);
        paths.get(path).or_else(template)
    }

    fn check_error(&self, exchange: &Exchange, statuses: &[u16]) -> Result<(), String> {
        if !statuses.contains(&exchange.status) {
            return Err(format!("status {} and not of {statuses:?}", exchange.status));
        }
        let answer = serde_json::from_str(&exchange.answer).map_err(|error| error.to_string())?;
        self.validate(&json!({"$ref": "#/components/schemas/Error"}), &answer)
    }

    /// A request that was granted must be one that the document allows.
    fn check_request(&self, operation: &Value, query: &str, sent: &str) -> Result<(), String> {
        if let Some(content) = operation.pointer("/requestBody/content/application~1json/schema") {
            let sent = serde_json::from_str(sent).map_err(|error| error.to_string())?;
            self.validate(content, &sent)?;
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = self.resolve(parameter);
            if parameter["in"] != "query" {
                continue;
            }
            let name = parameter["name"].as_str().unwrap();
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let values: Vec<_> = pairs.filter(|(key, _)| *key == name).collect();
            if values.len() > 1 {
                return Err(format!("{name} was given several times, and granted"));
            }
            for (_, value) in values {
                self.validate(&parameter["schema"], &json!(value))?;
            }
        }
        Ok(())
    }

    fn check_answer(
        &self,
        operation: &Value,
        exchange: &Exchange,
        answer: &Value,
    ) -> Result<(), String> {
        let status = exchange.status.to_string();
        let response = operation["responses"].get(&status);
        let response = response.ok_or_else(|| format!("status {status} is not documented"))?;
        let content = self.resolve(response)["content"].as_object().unwrap();
        let media = exchange.content_type.split(';').next().unwrap_or_default();
        let media = content.get(media).ok_or_else(|| format!("{media} is not documented"))?;
        if exchange.content_type.starts_with("text/") {
            return Ok(());
        }
        self.validate(&media["schema"], answer)
    }

    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        let reference = value.get("$ref").and_then(Value::as_str);
        reference.map_or(value, |text| self.0.pointer(text.trim_start_matches('#')).unwrap())
    }

    fn validate(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let root = json!({"allOf": [schema], "components": self.0["components"]});
        let validator = jsonschema::options()
            .should_validate_formats(true)
            .build(&root)
            .map_err(|error| format!("the document: {error}"))?;
        let problems: Vec<String> = validator
            .iter_errors(value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, due: &T) -> Result<(), String> {
    if is == due { Ok(()) } else { Err(format!("{what} is {is:?} and not {due:?}")) }
}

/// The checked-in document.
fn document() -> Document {
    Document::new(serde_json::from_str(include_str!("../../openapi.json")).unwrap())
}

fn granted() -> Exchange {
    let id = uuid::Uuid::nil().to_string();
    let task = json!({"name": "t", "module": "m", "condition": {"schedule": {"cron": "x"}}});
    let mut shown = task.clone();
    for (key, value) in [
        ("description", json!("")),
        ("enabled", json!(true)),
        ("version", json!("")),
        ("providers", json!([])),
        ("variables", json!({})),
        ("module_input", json!({})),
    ] {
        shown[key] = value;
    }
    Exchange {
        method: Method::POST,
        target: "/v1/tasks?run=NOW".into(),
        sent: json!({"task": task}).to_string(),
        status: 201,
        content_type: "application/json".into(),
        request_id: Some(id.clone()),
        answer: json!({"request_id": id, "task": shown}).to_string(),
    }
}

#[test]
fn what_differs_from_the_document_is_found() {
    let document = document();
    document.check(&granted()).unwrap();
    let planted = |plant: &dyn Fn(&mut Exchange), problem: &str| {
        let mut exchange = granted();
        plant(&mut exchange);
        let found = document.check(&exchange).unwrap_err();
        assert!(found.contains(problem), "{found}");
    };
    planted(&|exchange| exchange.status = 418, "418 is not documented");
    planted(&|exchange| exchange.status = 200, "\"run\" is a required property");
    planted(&|exchange| exchange.request_id = None, "no X-Request-Id");
    planted(&|exchange| exchange.request_id = Some("1".into()), "X-Request-Id");
    planted(
        &|exchange| exchange.request_id = Some(uuid::Uuid::max().to_string()),
        "different requests",
    );
    planted(&|exchange| exchange.content_type = "text/html".into(), "text/html is not documented");
    planted(&|exchange| exchange.target = "/v1/tasks?run=later".into(), "does not match");
    planted(&|exchange| exchange.target = "/v1/tasks?run=now&run=now".into(), "several times");
    planted(&|exchange| exchange.target = "/v1/nowhere".into(), "status 201 and not of");
    planted(&|exchange| exchange.method = Method::PUT, "status 201 and not of");
    planted(&|exchange| exchange.sent = "{}".into(), "\"task\" is a required property");
    planted(&|exchange| exchange.sent = exchange.sent.replace("\"m\"", "true"), "is not of type");
    planted(
        &|exchange| exchange.answer = exchange.answer.replace("\"t\"", "\"t\",\"more\":1"),
        "Additional properties",
    );
    planted(
        &|exchange| {
            exchange.status = 400;
            exchange.answer = "{}".into();
        },
        "\"error\" is a required property",
    );
}
