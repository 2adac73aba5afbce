//! The HTTP API, from the document that describes it.

use serde_json::{Map, Value};

use super::{cell, compare, source};

fn page() -> String {
    let document: Value = serde_json::from_str(&source("cts-tasks/openapi.json")).unwrap();
    let mut text = "# HTTP API of consul-terraform-sync\n\nMade from `cts-tasks/openapi.json`, which a daemon serves at `/v1/openapi.json`, \
         with what its driver adds.\n\n".to_owned();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            if operation.get("responses").is_some() {
                text += &one(path, method, operation, &operations["parameters"], &document);
            }
        }
    }
    text += "## Documents\n\n";
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        let Some(properties) = schema["properties"].as_object() else { continue };
        text += &format!("### {name}\n\n");
        if let Some(about) = schema["description"].as_str() {
            text += &format!("{about}\n\n");
        }
        text += &table(properties, &schema["required"]);
    }
    text
}

fn one(path: &str, method: &str, operation: &Value, shared: &Value, document: &Value) -> String {
    let mut text = format!("## {} {path}\n\n", method.to_uppercase());
    for key in ["summary", "description"] {
        if let Some(said) = operation[key].as_str() {
            text += &format!("{}\n\n", said.trim_end_matches('.').to_owned() + ".");
        }
    }
    let own = operation["parameters"].as_array().into_iter().flatten();
    let all: Vec<&Value> = own.chain(shared.as_array().into_iter().flatten()).collect();
    if !all.is_empty() {
        text += "| parameter | in | meaning |\n|---|---|---|\n";
        for parameter in all {
            let parameter = resolved(parameter, document);
            let word = |key: &str| cell(parameter[key].as_str().unwrap_or_default());
            text += &format!("| `{}` | {} | {} |\n", word("name"), word("in"), word("description"));
        }
        text.push('\n');
    }
    text += "| status | meaning |\n|---|---|\n";
    for (status, response) in operation["responses"].as_object().unwrap() {
        let response = resolved(response, document);
        let about = response["description"].as_str().unwrap_or_default();
        text += &format!("| {status} | {} |\n", cell(about));
    }
    text + "\n"
}

fn resolved<'a>(value: &'a Value, document: &'a Value) -> &'a Value {
    let pointer = value["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}

fn table(properties: &Map<String, Value>, required: &Value) -> String {
    let mut text = "| field | type | always there | meaning |\n|---|---|---|---|\n".to_owned();
    let required = required.as_array().cloned().unwrap_or_default();
    for (name, schema) in properties {
        let always = if required.iter().any(|known| known == name) { "yes" } else { "" };
        let about = cell(schema["description"].as_str().unwrap_or_default());
        text += &format!("| `{name}` | {} | {always} | {about} |\n", cell(&shape(schema)));
    }
    text + "\n"
}

fn shape(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        return target.rsplit('/').next().unwrap_or_default().to_owned();
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", shape(&schema["items"])),
        Some(known) => known.to_owned(),
        None => String::new(),
    }
}

#[test]
fn routes_are_those_of_the_document() {
    compare("api.md", &page());
}
