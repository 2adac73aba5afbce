//! Templated policies: rules that Consul brings along, filled with a name.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Ask, Path, call::bad_request};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    go_json,
    state::{Refused, State, TEMPLATES, Template},
};

pub(super) const PATHS: &[Path] = &[
    Path::new("acl/templated-policies", "GET").newer(),
    Path::new("acl/templated-policy/name/", "GET").newer(),
    Path::new("acl/templated-policy/preview/", "POST").newer(),
];

/// The variables in the body of a preview.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Variables {
    name: String,
}

#[expect(clippy::unnecessary_wraps, reason = "the signature of every group of endpoints")]
pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    if !state.acls_enabled() {
        return Some(Reply::text(401, "ACL support disabled"));
    }
    let answered = match rest.strip_prefix("templated-policy/") {
        None => read(ask).map(|()| {
            let all: Map<String, Value> = TEMPLATES
                .iter()
                .map(|template| (template.name.to_owned(), shown(template)))
                .collect();
            Reply::json(&Value::Object(all))
        }),
        Some(rest) => match rest.split_once('/').unwrap_or((rest, "")) {
            ("name", name) => read(ask).and_then(|()| {
                let unknown =
                    || Refused::new(400, format!("Invalid templated policy Name: {name}"));
                Template::find(name).map(|found| Reply::json(&shown(found))).ok_or_else(unknown)
            }),
            (_, name) => preview(state, ask, name),
        },
    };
    Some(answered.unwrap_or_else(Reply::from))
}

fn read(ask: Ask<'_>) -> Result<(), Refused> {
    ask.who.require(Resource::Acl, "", Access::Read)
}

fn shown(template: &Template) -> Value {
    json!({
        "TemplateName": template.name, "Schema": template.schema(), "Template": template.rules,
        "Description": template.description,
    })
}

fn preview(state: &State, ask: Ask<'_>, name: &str) -> Result<Reply, Refused> {
    read(ask)?;
    let variables: Variables = if ask.call.body.is_empty() {
        Variables::default()
    } else {
        go_json::from_slice(&ask.call.body).map_err(|error| {
            bad_request(state.is_1_8(), &format!("Failed to decode request body: {error}"))
        })?
    };
    let template = Template::find(name)
        .ok_or_else(|| Refused::new(400, format!("templated policy {name:?} does not exist")))?;
    template.check(&variables.name).map_err(|text| Refused::new(400, text))?;
    Ok(Reply::json(&template.synthetic(&variables.name)))
}
