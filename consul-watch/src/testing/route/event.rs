//! Routes of user events.

use super::{Ask, Path};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{EventTarget, Refused, State},
};

pub(super) const PATHS: &[Path] =
    &[Path::new("event/fire/", "PUT"), Path::new("event/list", "GET")];

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, .. } = ask;
    let param = |name: &str| call.param(name).unwrap_or_default().to_owned();
    match (call.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
        ("PUT", ("fire", "")) => Some(Reply::text(400, "Missing name")),
        ("PUT", ("fire", name)) => {
            let target =
                EventTarget { node: param("node"), service: param("service"), tag: param("tag") };
            let fired = who
                .require(Resource::Event, name, Access::Write)
                // The right is missing in plain words, on servers of every age.
                .map_err(|_detailed| Refused::new(403, "Permission denied"))
                .and_then(|()| state.event_fire(name, call.body.clone(), target));
            Some(fired.into())
        }
        ("GET", ("list", "")) => {
            let (list, index) = state.event_list(|event| {
                who.allows(Resource::Event, &event.name, Access::Read)
                    && call.param("name").is_none_or(|name| name.is_empty() || event.name == name)
            });
            Some(Reply::json(&list).numbered(index))
        }
        _ => None,
    }
}
