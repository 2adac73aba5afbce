//! The `OpenAPI` document that the API serves about itself.

use axum::{Json, extract::State};
use serde_json::Value;

use super::{ApiState, answer::Failure};

/// The `OpenAPI` document of this API, without what drivers add.
const DOCUMENT: &str = include_str!("../../openapi.json");

/// `GET /v1/openapi.json`
pub(crate) async fn document(State(state): State<ApiState>) -> Result<Json<Value>, Failure> {
    let mut document: Value = serde_json::from_str(DOCUMENT).map_err(|error| {
        let status = http::StatusCode::INTERNAL_SERVER_ERROR;
        Failure::new(status, format!("the document is broken: {error}"))
    })?;
    if let Some(rules) = &state.rules {
        add_driver_blocks(&mut document, &rules.block_schemas());
        add_required_keys(&mut document, rules.required_keys());
    }
    Ok(Json(document))
}

/// A request also must have what the driver requires of a task.
fn add_required_keys(document: &mut Value, keys: &[&str]) {
    let required = document.pointer_mut("/components/schemas/TaskRequest/required");
    if let Some(Value::Array(required)) = required {
        required.extend(keys.iter().map(|key| Value::from(*key)));
    }
}

/// A task also has the blocks that its driver claims.
fn add_driver_blocks(document: &mut Value, blocks: &[(String, Value)]) {
    for task in ["Task", "TaskRequest"] {
        let properties = document.pointer_mut(&format!("/components/schemas/{task}/properties"));
        if let Some(Value::Object(properties)) = properties {
            properties.extend(blocks.iter().cloned());
        }
    }
}
