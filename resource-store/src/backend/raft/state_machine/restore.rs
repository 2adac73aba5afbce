//! Restores: other resources in place of all, through the log.
//!
//! A restore is a begin, parts of bounded size, one sent once the one before is
//! applied, and an end. The state machine puts the parts aside and shows them
//! at the end. How far it is stands with them, and both are part of a snapshot,
//! so what a step does depends on the entries before it only, on each node.
//!
//! A new begin takes the place of a restore under way; later steps of that one
//! are refused, and change nothing. One that nobody ends any more stays aside,
//! and takes up the room of what was sent, until the next begin.

use std::sync::Arc;

use prost::Message as _;

use crate::{
    backend::{
        Error, Result,
        durable::{
            table::{Place, TableSnapshot},
            table_writer::TableWriter,
        },
        raft::types::Refused,
    },
    pb::{
        Resource,
        generated::resource_store::peer::v1::{self as peer, restore_step::Step},
    },
};

const UNDER_WAY: &[u8] = b"raft restore";
/// The highest version that a restore may bring, because later ones are larger.
const HIGHEST_VERSION: u64 = u64::MAX / 2;

/// What a step led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nothing that anybody sees.
    Aside,
    /// All is in place, and this is the highest number among versions.
    Shown(u64),
}

/// The restore under way, as of a view.
pub(crate) fn under_way(view: &TableSnapshot) -> Result<peer::RestoreUnderWay> {
    decode(view.meta(UNDER_WAY)?)
}

fn decode(under_way: Option<Vec<u8>>) -> Result<peer::RestoreUnderWay> {
    let decoded = peer::RestoreUnderWay::decode(under_way.unwrap_or_default().as_slice());
    decoded.map_err(|error| {
        Error::failed("read", format!("how far a restore is cannot be read: {error}"))
    })
}

/// Keeps which restore is under way.
pub(crate) fn keep(writer: &mut TableWriter<'_>, under_way: &peer::RestoreUnderWay) -> Result<()> {
    writer.set_meta(UNDER_WAY, &under_way.encode_to_vec())
}

/// Does a step, as the change `index`.
pub(crate) fn apply(
    writer: &mut TableWriter<'_>,
    peer::RestoreStep { restore, step }: peer::RestoreStep,
    index: u64,
) -> Result<Result<Done, Refused>> {
    let mut under_way = decode(writer.meta(UNDER_WAY)?)?;
    let belongs = restore != 0 && restore == under_way.restore;
    let none = peer::RestoreUnderWay::default();
    let refused = match step {
        None => Refused::Empty,
        Some(Step::Begin(_)) => {
            writer.clear(Place::Restoring)?;
            keep(writer, &peer::RestoreUnderWay { restore, ..none })?;
            return Ok(Ok(Done::Aside));
        }
        Some(_) if !belongs => Refused::Replaced,
        Some(Step::Part(part)) if part.number != under_way.parts => {
            Refused::Part { found: part.number, expected: under_way.parts }
        }
        Some(Step::Part(part)) if part.resources.iter().any(|resource| resource.id.is_none()) => {
            Refused::NoId
        }
        Some(Step::Part(part)) => {
            let highest = part.resources.iter().map(number_of).max().unwrap_or(0);
            if highest > HIGHEST_VERSION {
                return Ok(Err(Refused::Version(highest)));
            }
            under_way.highest_version = under_way.highest_version.max(highest);
            for resource in part.resources {
                writer.stage(Place::Restoring, &Arc::new(resource))?;
            }
            under_way.parts += 1;
            keep(writer, &under_way)?;
            return Ok(Ok(Done::Aside));
        }
        Some(Step::End(end)) if end.parts != under_way.parts => {
            Refused::End { found: end.parts, expected: under_way.parts }
        }
        Some(Step::End(_)) => {
            let highest = index.max(under_way.highest_version);
            writer.show(Place::Restoring, highest)?;
            keep(writer, &none)?;
            return Ok(Ok(Done::Shown(highest)));
        }
        Some(Step::Abandon(_)) => {
            writer.clear(Place::Restoring)?;
            keep(writer, &none)?;
            return Ok(Ok(Done::Aside));
        }
    };
    Ok(Err(refused))
}

/// The version as a number; what is none is smaller than all.
fn number_of(resource: &Resource) -> u64 {
    resource.version.parse().unwrap_or(0)
}
