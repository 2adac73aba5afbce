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

use bytes::Bytes;
use futures::TryStreamExt as _;
use prost::Message as _;

use super::node::Node;
use crate::{
    backend::{
        Error, ResourceStream, Result,
        durable::{
            table::{Place, TableSnapshot},
            table_writer::TableWriter,
        },
    },
    pb::{
        Resource,
        generated::resource_store::peer::v1::{self as peer, restore_step::Step},
    },
};

const UNDER_WAY: &[u8] = b"raft restore";
/// The highest version that a restore may bring, because later ones are larger.
const HIGHEST_VERSION: u64 = u64::MAX / 2;

/// Why a step changed nothing, on all nodes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    #[error("another restore took its place")]
    Replaced,
    #[error("part {found} came where part {expected} was to come")]
    Part { found: u64, expected: u64 },
    #[error("it ends after {found} parts, but {expected} came")]
    End { found: u64, expected: u64 },
    #[error("resource has no id")]
    NoId,
    #[error("version {0} leaves no numbers for later ones")]
    Version(u64),
    #[error("the step is empty")]
    Empty,
}

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

/// Has the leader put other resources in the place of all. No more than one
/// part is in memory, and one resource.
pub(crate) async fn restore(node: &Node, resources: ResourceStream) -> Result<()> {
    let mut sender = Sender { node, restore: fastrand::u64(1..), parts: 0 };
    sender.send(Step::Begin(peer::RestoreBegin {})).await?;
    let mut sent = sender.send_parts(resources).await;
    if sent.is_ok() {
        sent = sender.send(Step::End(peer::RestoreEnd { parts: sender.parts })).await;
    }
    if sent.is_err() {
        let abandoned = sender.send(Step::Abandon(peer::RestoreAbandon {})).await;
        if let Err(error) = abandoned {
            tracing::debug!(%error, "what a restore has sent may stay until the next one");
        }
    }
    sent
}

/// Sends the steps of one restore.
struct Sender<'a> {
    node: &'a Node,
    restore: u64,
    parts: u64,
}

impl Sender<'_> {
    async fn send_parts(&mut self, mut resources: ResourceStream) -> Result<()> {
        let config = &self.node.config;
        let (mut part, mut bytes) = (Vec::new(), 0);
        while let Some(resource) = resources.try_next().await? {
            let length = resource.encoded_len();
            config.check_size(length)?;
            // As it stands in the part, with its tag and length.
            let within = 1 + prost::length_delimiter_len(length) + length;
            if !part.is_empty() && bytes + within > config.restore_part_bytes {
                self.send_part(std::mem::take(&mut part)).await?;
                bytes = 0;
            }
            bytes += within;
            part.push(Resource::clone(&resource));
        }
        if part.is_empty() { Ok(()) } else { self.send_part(part).await }
    }

    async fn send_part(&mut self, resources: Vec<Resource>) -> Result<()> {
        let part = peer::RestorePart { number: self.parts, resources };
        self.send(Step::Part(part)).await?;
        self.parts += 1;
        Ok(())
    }

    /// Has a step taken. Whatever goes wrong before the end, nothing is
    /// restored, also if nobody knows what became of a step.
    async fn send(&self, step: Step) -> Result<()> {
        let ends = matches!(step, Step::End(_));
        let step = peer::RestoreStep { restore: self.restore, step: Some(step) };
        let nothing = |retryable, why: &dyn std::fmt::Display| Error::Other {
            operation: "restore",
            retryable,
            source: format!("nothing was restored: {why}").into(),
        };
        match self.node.restore(step.encode_to_vec().into()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(refused)) => Err(nothing(false, &refused)),
            Err(error @ Error::Inconsistent { .. }) => Err(error),
            Err(error) if ends => Err(error),
            Err(error) => Err(nothing(error.is_retryable(), &error)),
        }
    }
}

impl Node {
    /// Has the leader take a step of a restore. Says why it was refused.
    async fn restore(&self, step: Bytes) -> Result<Result<(), String>> {
        let step = &step;
        self.with_leader(|id, peer| async move {
            if id == self.id {
                let done = self.restore_here(step.clone()).await?;
                return Ok(done.map_err(|refused| refused.to_string()));
            }
            let refused = self.forward_restore(id, &peer, step.clone()).await?;
            Ok(if refused.is_empty() { Ok(()) } else { Err(refused) })
        })
        .await
    }
}
