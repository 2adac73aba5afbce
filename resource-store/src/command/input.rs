//! What a command is about: named on the command line, or in a file.

use std::io::Read as _;

use crate::{
    Registry,
    file::read_resource,
    pb::{Id, Resource, Tenancy, Type},
};

use super::{
    flags::Arguments,
    types::{self, incorrect},
};

const FILE_NOT_NEEDED: &str =
    "File argument is not needed when resource information is provided with the command";

/// The resource that `read` and `delete` are about.
pub(crate) fn identity(arguments: &Arguments, registry: &Registry) -> Result<Id, String> {
    let file = arguments.get("f");
    match (arguments.positional.as_slice(), file) {
        ([], Some(file)) => {
            let id = load(file, registry)?.id.unwrap_or_default();
            let ty = id.r#type.clone();
            Ok(Id::new(ty.unwrap_or_default(), id.tenancy.unwrap_or_default(), &id.name))
        }
        ([_], _) if arguments.flags_follow => {
            Err(incorrect("Must provide resource name right after type"))
        }
        ([ty, name], None) => Ok(Id::new(types::named(ty, registry)?, tenancy(arguments), name)),
        ([_, _], Some(_)) => Err(incorrect(FILE_NOT_NEEDED)),
        _ => Err(incorrect("Must specify two arguments: resource type and resource name")),
    }
}

/// The resources that `list` is about.
pub(crate) fn listed(
    arguments: &Arguments,
    registry: &Registry,
    shorthand: bool,
) -> Result<(Type, Tenancy), String> {
    match (arguments.positional.as_slice(), arguments.get("f")) {
        ([], Some(file)) => {
            let id = load(file, registry)?.id.unwrap_or_default();
            Ok((id.r#type.unwrap_or_default(), id.tenancy.unwrap_or_default()))
        }
        ([], None) => Err(incorrect("Must include resource type argument")),
        ([_], Some(_)) => Err(incorrect(FILE_NOT_NEEDED)),
        ([ty], None) => {
            let ty = if shorthand { types::named(ty, registry)? } else { types::full_name(ty)? };
            Ok((ty, tenancy(arguments)))
        }
        _ => Err(incorrect("Must include flag arguments after resource type")),
    }
}

fn tenancy(arguments: &Arguments) -> Tenancy {
    let unit = |name| arguments.get(name).unwrap_or_default();
    Tenancy::new(unit("partition"), unit("namespace"))
}

/// The resource of a file, or of the standard input if that is `-`.
pub(crate) fn load(file: &str, registry: &Registry) -> Result<Resource, String> {
    let decode = |problem: String| format!("Failed to decode resource from input file: {problem}");
    let (name, text) = match file {
        "-" => {
            let mut text = Vec::new();
            let read = std::io::stdin().lock().read_to_end(&mut text);
            ("<stdin>", read.map(|_length| text))
        }
        _ => (file, std::fs::read(file)),
    };
    let text = text.map_err(|error| {
        let reason = match error.kind() {
            std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
            std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        };
        decode(format!("Failed to load data: Failed to read file: open {file}: {reason}"))
    })?;
    read_resource(name, &text, registry)
        .map_err(|error| decode(format!("Failed to decode resource from input: {error}")))
}

/// Names a resource as messages of the command do.
pub(crate) fn shown(id: &Id) -> String {
    let ty = id.r#type.clone().unwrap_or_default();
    format!("{ty}/{}", id.name)
}

/// The line that follows a write.
pub(crate) fn created(id: &Id) -> String {
    let ty = id.r#type.clone().unwrap_or_default();
    format!("{ty} '{}' created.", id.name)
}

/// Pretty JSON with so many spaces a level.
pub(crate) fn pretty(value: &serde_json::Value, indent: usize) -> Result<String, String> {
    use serde::Serialize as _;
    let mut text = Vec::new();
    let spaces = " ".repeat(indent);
    let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).map_err(|error| error.to_string())?;
    String::from_utf8(text).map_err(|error| error.to_string())
}
