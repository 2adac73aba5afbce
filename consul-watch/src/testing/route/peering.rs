//! Peerings and exported services: there are none, and none can be made.

use serde_json::json;

use super::{Ask, Path};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{Refused, State},
};

pub(super) const PATHS: &[Path] = &[
    Path::new("peering/token", "POST").newer(),
    Path::new("peering/establish", "POST").newer(),
    Path::new("peering/", "GET,DELETE").newer(),
    Path::new("peerings", "GET").newer(),
    Path::new("exported-services", "GET").newer(),
];

pub(super) fn answer(_state: &mut State, ask: Ask<'_>, rest: &str) -> Option<Reply> {
    let answered = match (ask.call.method.as_str(), rest) {
        // Nothing that the double does can make one, so there are none.
        ("GET", "peerings") => ask
            .who
            .require(Resource::Peering, "", Access::Read)
            .map(|()| Reply::json(&json!([])).at(State::never_written())),
        ("GET", "peering/") => Err(Refused::new(400, "Must specify a name to fetch.")),
        ("GET", name) if name.starts_with("peering/") => {
            let name = name.strip_prefix("peering/").unwrap_or_default();
            ask.who
                .require(Resource::Peering, "", Access::Read)
                .and_then(|()| Err(Refused::new(404, format!("Peering not found for {name:?}"))))
        }
        ("DELETE", "peering/") => Err(Refused::new(400, "Must specify a name to delete.")),
        ("DELETE", _) => {
            ask.who.require(Resource::Peering, "", Access::Write).map(|()| Reply::empty(200))
        }
        _ => return None,
    };
    Some(answered.unwrap_or_else(Reply::from))
}
