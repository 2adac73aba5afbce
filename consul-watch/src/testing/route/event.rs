use super::Ask;
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{EventTarget, State},
};

pub(super) fn answer(state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let Ask { call, who, .. } = ask;
    let param = |name: &str| call.param(name).unwrap_or_default().to_owned();
    match (call.method.as_str(), rest.split_once('/').unwrap_or((rest, ""))) {
        ("PUT", ("fire", name)) => {
            let target =
                EventTarget { node: param("node"), service: param("service"), tag: param("tag") };
            let fired = who
                .require(Resource::Event, name, Access::Write)
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
