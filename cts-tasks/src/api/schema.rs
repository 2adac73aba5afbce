//! The shape of a request that creates a task.
//!
//! Source: Consul-Terraform-Sync 0.9, `api/openapi.yaml` (`TaskRequest`).

use serde_json::{Map, Value};

/// The shapes that a value may have in the schema.
#[derive(Clone, Copy)]
enum Shape {
    Text,
    Flag,
    /// A whole number that is not negative.
    Count,
    Texts,
    /// Values are texts, or nothing.
    TextMap,
    /// Nothing else than these fields.
    Object(&'static [Field]),
}

#[derive(Clone, Copy)]
struct Field {
    name: &'static str,
    shape: Shape,
    required: bool,
}

const fn required(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: true }
}

const fn optional(name: &'static str, shape: Shape) -> Field {
    Field { name, shape, required: false }
}

const TASK: &[Field] = &[
    required("name", Shape::Text),
    optional("description", Shape::Text),
    optional("enabled", Shape::Flag),
    // Where the driver requires one: see `task`.
    optional("module", Shape::Text),
    optional("version", Shape::Text),
    optional("providers", Shape::Texts),
    optional("variables", Shape::TextMap),
    optional("buffer_period", Shape::Object(BUFFER_PERIOD)),
    required("condition", Shape::Object(CONDITION)),
    optional("module_input", Shape::Object(MODULE_INPUT)),
    optional("max_destroy", Shape::Count),
    optional("require_approval", Shape::Flag),
    optional("destroy_on_delete", Shape::Flag),
    optional("drift_check", Shape::Text),
    optional("env", Shape::TextMap),
    optional("timeout", Shape::Text),
    optional("retry", Shape::Object(RETRY)),
    optional("shutdown_timeout", Shape::Text),
];

const RETRY: &[Field] = &[
    optional("attempts", Shape::Count),
    optional("backoff", Shape::Text),
    optional("max_backoff", Shape::Text),
];

const BUFFER_PERIOD: &[Field] =
    &[optional("enabled", Shape::Flag), optional("min", Shape::Text), optional("max", Shape::Text)];

const CONDITION: &[Field] = &[
    optional("services", Shape::Object(SERVICES_CONDITION)),
    optional("consul_kv", Shape::Object(KV_CONDITION)),
    optional("catalog_services", Shape::Object(CATALOG_CONDITION)),
    optional("schedule", Shape::Object(&[required("cron", Shape::Text)])),
];

const MODULE_INPUT: &[Field] = &[
    optional("services", Shape::Object(SERVICES_INPUT)),
    optional("consul_kv", Shape::Object(KV_INPUT)),
];

const SERVICES_CONDITION: &[Field] = &[
    optional("regexp", Shape::Text),
    optional("names", Shape::Texts),
    optional("datacenter", Shape::Text),
    optional("namespace", Shape::Text),
    optional("filter", Shape::Text),
    optional("cts_user_defined_meta", Shape::TextMap),
    optional("use_as_module_input", Shape::Flag),
];

const SERVICES_INPUT: &[Field] = &[
    optional("regexp", Shape::Text),
    optional("names", Shape::Texts),
    optional("datacenter", Shape::Text),
    optional("namespace", Shape::Text),
    optional("filter", Shape::Text),
    optional("cts_user_defined_meta", Shape::TextMap),
];

const CATALOG_CONDITION: &[Field] = &[
    required("regexp", Shape::Text),
    optional("datacenter", Shape::Text),
    optional("namespace", Shape::Text),
    optional("node_meta", Shape::TextMap),
    optional("use_as_module_input", Shape::Flag),
];

const KV_CONDITION: &[Field] = &[
    required("path", Shape::Text),
    optional("recurse", Shape::Flag),
    optional("datacenter", Shape::Text),
    optional("namespace", Shape::Text),
    optional("use_as_module_input", Shape::Flag),
];

const KV_INPUT: &[Field] = &[
    required("path", Shape::Text),
    optional("recurse", Shape::Flag),
    optional("datacenter", Shape::Text),
    optional("namespace", Shape::Text),
];

/// Takes the task out of a request, if its shape is right. Of `driver_keys`
/// any value is taken: whoever reads it checks it. What the driver requires of a task is
/// `required` here, too.
///
/// # Errors
///
/// The first mistake, and where it stands.
pub(crate) fn task(
    request: Value,
    driver_keys: &[&str],
    required: &[&str],
) -> Result<Map<String, Value>, String> {
    let wrong = |(at, problem): Mistake| {
        format!("request body has an error: doesn't match schema: Error at \"{at}\": {problem}")
    };
    let mut request = object("", request).map_err(wrong)?;
    let task = request.remove("task");
    if let Some(key) = request.keys().next() {
        return Err(wrong((String::new(), format!("property \"{key}\" is unsupported"))));
    }
    let task =
        task.ok_or_else(|| wrong(("/task".into(), "property \"task\" is missing".into())))?;
    let task = object("/task", task).map_err(wrong)?;
    check_fields("/task", &task, TASK, driver_keys, required).map_err(wrong)?;
    Ok(task)
}

/// The place of a mistake, and its description.
type Mistake = (String, String);

fn object(at: &str, value: Value) -> Result<Map<String, Value>, Mistake> {
    match value {
        Value::Object(members) => Ok(members),
        _ => Err((at.to_owned(), "value must be an object".to_owned())),
    }
}

fn check_fields(
    at: &str,
    members: &Map<String, Value>,
    fields: &[Field],
    others: &[&str],
    also_required: &[&str],
) -> Result<(), Mistake> {
    for key in members.keys() {
        if !fields.iter().any(|field| field.name == key) && !others.contains(&key.as_str()) {
            return Err((at.to_owned(), format!("property \"{key}\" is unsupported")));
        }
    }
    for field in fields {
        let at = format!("{at}/{}", field.name);
        match members.get(field.name) {
            Some(value) => check(&at, value, field.shape)?,
            None if field.required || also_required.contains(&field.name) => {
                return Err((at, format!("property \"{}\" is missing", field.name)));
            }
            None => {}
        }
    }
    Ok(())
}

fn check(at: &str, value: &Value, shape: Shape) -> Result<(), Mistake> {
    let wrong = |expected: &str| Err((at.to_owned(), format!("value must be {expected}")));
    match (shape, value) {
        (Shape::Text, Value::String(_)) | (Shape::Flag, Value::Bool(_)) => Ok(()),
        (Shape::Text, _) => wrong("a string"),
        (Shape::Flag, _) => wrong("a boolean"),
        (Shape::Count, Value::Number(number)) if number.is_u64() => Ok(()),
        (Shape::Count, _) => wrong("an integer of at least 0"),
        (Shape::Texts, Value::Array(items)) => {
            let mut items = items.iter().enumerate();
            items.try_for_each(|(index, item)| check(&format!("{at}/{index}"), item, Shape::Text))
        }
        (Shape::Texts, _) => wrong("an array"),
        (Shape::TextMap, Value::Object(members)) => {
            let mut given = members.iter().filter(|(_, value)| !value.is_null());
            given.try_for_each(|(key, value)| check(&format!("{at}/{key}"), value, Shape::Text))
        }
        (Shape::Object(fields), Value::Object(members)) => {
            check_fields(at, members, fields, &[], &[])
        }
        (Shape::TextMap | Shape::Object(_), _) => wrong("an object"),
    }
}
