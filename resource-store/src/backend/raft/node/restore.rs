//! Sends a restore through the log, in parts of bounded size.
//!
//! What its steps do is in [`state_machine::restore`](super::super::state_machine::restore).

use bytes::Bytes;
use futures::TryStreamExt as _;
use prost::Message as _;

use super::Node;
use crate::{
    backend::{Error, ResourceStream, Result},
    pb::{
        Resource,
        generated::resource_store::peer::v1::{self as peer, restore_step::Step},
    },
};

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
            if id == self.id() {
                let done = self.restore_here(step.clone()).await?;
                return Ok(done.map_err(|refused| refused.to_string()));
            }
            let refused = self.forward_restore(id, &peer, step.clone()).await?;
            Ok(if refused.is_empty() { Ok(()) } else { Err(refused) })
        })
        .await
    }
}
