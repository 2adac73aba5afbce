//! How types are named on the command line.

use crate::{Registry, pb::Type};

/// A type by its full name, or by its kind if only one type has that.
pub(crate) fn named(text: &str, registry: &Registry) -> Result<Type, String> {
    if !text.contains('.') {
        return by_kind(text, registry);
    }
    full(text).ok_or_else(|| {
        incorrect(
            "Must provide resource type argument with either in group.version.kind format or its \
             shorthand name",
        )
    })
}

/// A type by its full name only.
pub(crate) fn full_name(text: &str) -> Result<Type, String> {
    full(text).ok_or_else(|| {
        incorrect("Must include resource type argument in group.version.kind format")
    })
}

fn full(text: &str) -> Option<Type> {
    text.parse().ok().filter(|_| text.split('.').all(|part| !part.is_empty()))
}

fn by_kind(kind: &str, registry: &Registry) -> Result<Type, String> {
    match registry.by_short_name(kind).as_slice() {
        [] => Err("The shorthand name does not map to any existing resource type, please check \
                   its spelling, or use the full name group.version.kind"
            .to_owned()),
        [ty] => Ok((*ty).clone()),
        several => {
            let names: Vec<_> = several.iter().map(ToString::to_string).collect();
            Err(format!(
                "The shorthand name has conflicts {}, please use the full name",
                names.join(", ")
            ))
        }
    }
}

pub(crate) fn incorrect(text: &str) -> String {
    format!("Incorrect argument format: {text}")
}
