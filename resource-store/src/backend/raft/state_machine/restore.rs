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

use crate::{
    backend::{
        Result,
        raft::types::{Contents, Refused},
        store::state::State,
    },
    pb::{
        Resource,
        generated::resource_store::peer::v1::{self as peer, restore_step::Step},
    },
};

/// The highest version that a restore may bring, because later ones are larger.
const HIGHEST_VERSION: u64 = u64::MAX / 2;

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Done {
    /// Nothing that anybody sees.
    Aside,
    /// All is in place, and this is the highest number among versions.
    Shown(u64),
}

/// Does a step, as the change `index`. A refused one changes nothing.
///
/// # Errors
///
/// If what this node holds is damaged.
pub(crate) fn apply(
    contents: &mut Contents,
    peer::RestoreStep { restore, step }: peer::RestoreStep,
    index: u64,
) -> Result<Result<Done, Refused>> {
    let under_way = &mut contents.restore;
    let belongs = restore != 0 && restore == under_way.restore;
    let none = peer::RestoreUnderWay::default();
    Ok(match step {
        None => Err(Refused::Empty),
        Some(Step::Begin(_)) => {
            contents.restoring = State::default();
            contents.restore = peer::RestoreUnderWay { restore, ..none };
            Ok(Done::Aside)
        }
        Some(_) if !belongs => Err(Refused::Replaced),
        Some(Step::Part(part)) if part.number != under_way.parts => {
            Err(Refused::Part { found: part.number, expected: under_way.parts })
        }
        Some(Step::Part(part)) => {
            let highest = part.resources.iter().map(number_of).max().unwrap_or(0);
            if highest > HIGHEST_VERSION {
                return Ok(Err(Refused::Version(highest)));
            }
            if part.resources.iter().any(|resource| resource.id.is_none()) {
                return Ok(Err(Refused::NoId));
            }
            for resource in part.resources {
                contents.restoring.insert_restored(&Arc::new(resource))?;
            }
            under_way.highest_version = under_way.highest_version.max(highest);
            under_way.parts += 1;
            Ok(Done::Aside)
        }
        Some(Step::End(end)) if end.parts != under_way.parts => {
            Err(Refused::End { found: end.parts, expected: under_way.parts })
        }
        Some(Step::End(_)) => {
            let highest = index.max(under_way.highest_version);
            let before = contents.resources.index();
            contents.resources = std::mem::take(&mut contents.restoring);
            contents.resources.set_index(before.max(highest));
            contents.restore = none;
            Ok(Done::Shown(highest))
        }
        Some(Step::Abandon(_)) => {
            contents.restoring = State::default();
            contents.restore = none;
            Ok(Done::Aside)
        }
    })
}

/// The version as a number; what is none is smaller than all.
fn number_of(resource: &Resource) -> u64 {
    resource.version.parse().unwrap_or(0)
}
