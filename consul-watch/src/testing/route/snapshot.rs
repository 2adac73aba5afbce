//! Snapshots of the whole state. An archive names a state that this double keeps:
//! it can be restored only into the double that made it.

use super::{Ask, Path};
use crate::testing::{
    acl::{Access, Resource},
    answer::Reply,
    state::{Refused, State},
};

pub(super) const PATHS: &[Path] = &[Path::new("snapshot", "GET,PUT")];

/// The first bytes of what gzip packs.
const GZIP: [u8; 2] = [0x1f, 0x8b];

#[expect(clippy::unnecessary_wraps, reason = "the signature of every group of endpoints")]
pub(super) fn answer(state: &mut State, ask: Ask<'_>, _rest: &str) -> Option<Reply> {
    let may = ask.who.require(Resource::Acl, "", Access::Write);
    let answered = may.and_then(|()| {
        if ask.call.method == http::Method::GET { save(state) } else { restore(state, ask) }
    });
    Some(answered.unwrap_or_else(Reply::from))
}

fn save(state: &mut State) -> Result<Reply, Refused> {
    let archive = state.save_snapshot().map_err(|error| Refused::new(500, error.to_string()))?;
    let mut reply = Reply::empty(200).header("content-type", "application/x-gzip");
    reply.body = archive.into();
    Ok(reply.at(state.whole()))
}

fn restore(state: &mut State, ask: Ask<'_>) -> Result<Reply, Refused> {
    if !ask.call.body.starts_with(&GZIP) {
        let words =
            if ask.call.body.len() < 10 { "unexpected EOF" } else { "gzip: invalid header" };
        let words = if ask.call.body.is_empty() { "EOF" } else { words };
        return Err(Refused::new(500, format!("failed to decompress snapshot: {words}")));
    }
    if state.restore_snapshot(&ask.call.body) {
        return Ok(Reply::empty(200));
    }
    let text = "consul-watch's test double restores only the snapshots that it made itself";
    Err(Refused::new(501, text))
}
