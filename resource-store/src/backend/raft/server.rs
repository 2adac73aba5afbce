//! What a node answers to other nodes.

use std::sync::{Arc, atomic::Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use openraft::{RaftLogReader as _, raft::AppendEntriesResponse};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::{
    appending::MOST_UNANSWERED,
    convert::{self, Malformed},
    machine::Machine,
    members,
    node::{CLUSTER_HEADER, Change, Node, inconsistent},
    snapshot::{Frames, SnapshotData, State},
    types::{Snapshot, SnapshotMeta, Types, Vote},
    wire,
};
use crate::{
    backend::{Error, Query, Result as BackendResult, durable::table::Place},
    gvk::GroupKind,
    pb::generated::{
        hashicorp::consul::internal::storage::raft::{
            DeleteRequest, ListRequest, ListResponse, ReadRequest, ReadResponse, WriteRequest,
            WriteResponse, forwarding_service_server::ForwardingService,
        },
        resource_store::peer::v1::{
            self as peer, append_response, peer_service_server::PeerService, snapshot_part::Part,
        },
    },
};

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// A leader; a node that belongs to no cluster yet takes its word.
    Leader,
    /// A node of the cluster.
    Node,
    /// Also who does not say which cluster is meant.
    Anyone,
}

/// Answers other nodes.
#[derive(Debug, Clone)]
pub(crate) struct PeerServer {
    pub(crate) node: Arc<Node>,
    /// Ends streams of other nodes.
    pub(crate) stop: CancellationToken,
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn malformed(error: Malformed) -> Status {
    Status::invalid_argument(error.to_string())
}

fn stopped(error: &dyn std::error::Error) -> Status {
    Status::unavailable(format!("the node has stopped: {error}"))
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn status(error: Error) -> Status {
    wire::to_status(&error)
}

/// Resources of a snapshot that go to one place.
struct Receiving<'a> {
    machine: &'a Machine,
    place: Place,
    frames: Frames,
    count: u64,
}

impl<'a> Receiving<'a> {
    fn of(machine: &'a Machine, place: Place) -> Self {
        Self { machine, place, frames: Frames::default(), count: 0 }
    }

    async fn take(&mut self, chunk: &Bytes) -> Result<(), Status> {
        let resources = self.frames.push(chunk);
        let resources =
            resources.map_err(|e| Status::data_loss(format!("the snapshot has {e}")))?;
        self.count += resources.len() as u64;
        self.machine.stage(self.place, resources).await.map_err(status)
    }

    fn is_complete(&self, count: u64) -> bool {
        self.count == count && !self.frames.is_cut()
    }
}

impl PeerServer {
    /// Refuses what is for another node or cluster.
    async fn check(&self, route: Option<&peer::Route>, from: From) -> Result<(), Status> {
        let route = route.ok_or_else(|| malformed(Malformed("no route")))?;
        let node = &self.node;
        if route.to != 0 && route.to != node.id {
            let text = format!("this is node {:x}, not {:x}", node.id, route.to);
            return Err(Status::invalid_argument(text));
        }
        node.network
            .faults
            .check(route.from, node.id)
            .map_err(|cut| Status::unavailable(cut.to_string()))?;
        let mine = node.cluster.load(Ordering::Acquire);
        match (mine, route.cluster) {
            (_, 0) if from == From::Anyone => Ok(()),
            (0, cluster) if from == From::Leader && cluster != 0 => {
                node.adopt_cluster(cluster).await.map_err(status)
            }
            (0, _) => Err(Status::invalid_argument("this node belongs to no cluster yet")),
            (mine, theirs) if mine == theirs => Ok(()),
            (mine, theirs) => {
                let text = format!("this node belongs to cluster {mine:016x}, not {theirs:016x}");
                Err(Status::invalid_argument(text))
            }
        }
    }

    fn check_forwarded<T>(&self, request: &Request<T>) -> Result<(), Status> {
        let mine = format!("{:016x}", self.node.cluster.load(Ordering::Acquire));
        match request.metadata().get(CLUSTER_HEADER) {
            Some(theirs) if theirs.as_bytes() != mine.as_bytes() => {
                Err(status(inconsistent("the call is for another cluster")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until this node, as the leader, can answer linearizably.
    async fn leader_read(&self) -> BackendResult<()> {
        let index = self.node.read_index_here().await?;
        let mut applied = self.node.machine.applied();
        let reached = applied.wait_for(|applied| *applied >= index);
        match tokio::time::timeout(self.node.config.patience, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(inconsistent("the leader is behind its log")),
        }
    }

    /// Refuses entries in the place of others that were applied. No leader
    /// sends such; the library would stop the node.
    async fn check_history(
        &self,
        request: &openraft::raft::AppendEntriesRequest<Types>,
    ) -> Result<(), Status> {
        let applied = *self.node.machine.applied().borrow();
        let (Some(first), Some(last)) = (request.entries.first(), request.entries.last()) else {
            return Ok(());
        };
        let (start, end) = (first.log_id.index, applied.min(last.log_id.index + 1));
        if start >= end {
            return Ok(());
        }
        let known = self.node.log.clone().try_get_log_entries(start..end).await;
        let known = known.map_err(|e| stopped(&e))?;
        // Both are without gaps, but the oldest may be gone here.
        let skip = known.first().map_or(0, |known| known.log_id.index - start);
        let sent = request.entries.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX));
        let differs = sent.zip(&known).any(|(sent, known)| sent.log_id != known.log_id);
        if differs {
            return Err(malformed(Malformed("other entries in the place of applied ones")));
        }
        Ok(())
    }

    /// Takes entries, or a sign of life, from the leader.
    async fn take_entries(
        &self,
        request: peer::AppendRequest,
    ) -> Result<append_response::Result, Status> {
        self.check(request.route.as_ref(), From::Leader).await?;
        let request = convert::append(request).map_err(malformed)?;
        self.check_history(&request).await?;
        match self.node.raft.append_entries(request).await {
            Ok(AppendEntriesResponse::Success | AppendEntriesResponse::PartialSuccess(_)) => {
                Ok(append_response::Result::Accepted(append_response::Accepted {}))
            }
            Ok(AppendEntriesResponse::Conflict) => {
                Ok(append_response::Result::Conflict(append_response::Conflict {}))
            }
            Ok(AppendEntriesResponse::HigherVote(vote)) => {
                Ok(append_response::Result::Newer(convert::from_vote(&vote)))
            }
            Err(error) => Err(stopped(&error)),
        }
    }

    /// Takes a snapshot from the leader.
    ///
    /// In a task of its own: when the call ends early, what it began with the
    /// table goes on, and nobody else may begin before that is over.
    async fn receive(
        &self,
        head: peer::SnapshotHead,
        parts: Streaming<peer::SnapshotPart>,
    ) -> Result<Vote, Status> {
        self.check(head.route.as_ref(), From::Leader).await?;
        let vote = convert::vote(head.vote).map_err(malformed)?;
        let last_log_id = convert::optional_log_id(head.last).map_err(malformed)?;
        let last_membership = convert::stored_membership(head.membership).map_err(malformed)?;
        let own = self.node.raft.metrics().borrow().vote;
        if vote < own || !vote.committed {
            return Ok(own);
        }
        let snapshot_id = last_log_id.map(|id| id.to_string()).unwrap_or_default();
        let meta = SnapshotMeta { last_log_id, last_membership, snapshot_id };

        let Ok(receiving) = Arc::clone(&self.node.receiving).try_lock_owned() else {
            return Err(Status::unavailable("another snapshot is coming in"));
        };
        let server = self.clone();
        let from = head.route.map_or(0, |route| route.from);
        let state = State {
            version_offset: head.version_offset,
            restore: head.restore.unwrap_or_default(),
        };
        let snapshot = Snapshot { meta, snapshot: Box::new(SnapshotData::Staged(state)) };
        let taking = tokio::spawn(async move {
            let taken = server.take(vote, snapshot, from, parts).await;
            drop(receiving);
            taken
        });
        taking.await.unwrap_or_else(|error| Err(stopped(&error)))
    }

    /// Puts what comes in aside, and has it installed.
    async fn take(
        &self,
        vote: Vote,
        snapshot: Snapshot,
        from: u64,
        mut parts: Streaming<peer::SnapshotPart>,
    ) -> Result<Vote, Status> {
        let machine = &self.node.machine;
        machine.begin_staging().await.map_err(status)?;
        let mut shown = Receiving::of(machine, Place::Incoming);
        let mut restoring = Receiving::of(machine, Place::IncomingRestoring);
        loop {
            let part = parts.message().await?.and_then(|part| part.part);
            let cut = self.node.network.faults.check(from, self.node.id);
            cut.map_err(|cut| Status::unavailable(cut.to_string()))?;
            match part {
                Some(Part::Chunk(chunk)) => shown.take(&chunk).await?,
                Some(Part::Restoring(chunk)) => restoring.take(&chunk).await?,
                Some(Part::End(end))
                    if shown.is_complete(end.resources) && restoring.is_complete(end.restoring) =>
                {
                    break;
                }
                Some(Part::End(_)) => return Err(Status::data_loss("resources are missing")),
                Some(Part::Head(_)) => return Err(malformed(Malformed("a second head"))),
                None => return Err(malformed(Malformed("a snapshot without end"))),
            }
        }
        let installed = self.node.raft.install_full_snapshot(vote, snapshot).await;
        Ok(installed.map_err(|e| stopped(&e))?.vote)
    }
}

#[async_trait]
impl PeerService for PeerServer {
    type AppendStream = BoxStream<'static, Result<peer::AppendResponse, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<peer::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let server = self.clone();
        let requests = request.into_inner();
        let answers = requests.map(move |request| {
            let server = server.clone();
            async move {
                let request = request?;
                let number = request.number;
                server.node.network.faults.latency().await;
                let result = server.take_entries(request).await.unwrap_or_else(|status| {
                    append_response::Result::Refused(status.message().to_owned())
                });
                Ok(peer::AppendResponse { number, result: Some(result) })
            }
        });
        let stopped = self.stop.clone().cancelled_owned();
        let answers = answers.buffer_unordered(MOST_UNANSWERED).take_until(stopped);
        Ok(Response::new(answers.boxed()))
    }

    async fn request_vote(
        &self,
        request: Request<peer::VoteRequest>,
    ) -> Result<Response<peer::VoteResponse>, Status> {
        let request = request.into_inner();
        self.check(request.route.as_ref(), From::Node).await?;
        let vote = convert::vote(request.vote).map_err(malformed)?;
        let last = convert::optional_log_id(request.last).map_err(malformed)?;
        if vote.committed {
            return Err(malformed(Malformed("a candidate that says it was elected")));
        }
        let answer = self.node.raft.vote(openraft::raft::VoteRequest::new(vote, last)).await;
        let answer = answer.map_err(|e| stopped(&e))?;
        Ok(Response::new(peer::VoteResponse {
            vote: Some(convert::from_vote(&answer.vote)),
            granted: answer.vote_granted,
            last: answer.last_log_id.as_ref().map(convert::from_log_id),
        }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<peer::SnapshotPart>>,
    ) -> Result<Response<peer::SnapshotResponse>, Status> {
        let mut parts = request.into_inner();
        let Some(Part::Head(head)) = parts.message().await?.and_then(|part| part.part) else {
            return Err(malformed(Malformed("a snapshot without head")));
        };
        let vote = self.receive(head, parts).await?;
        Ok(Response::new(peer::SnapshotResponse { vote: Some(convert::from_vote(&vote)) }))
    }

    async fn read_index(
        &self,
        request: Request<peer::ReadIndexRequest>,
    ) -> Result<Response<peer::ReadIndexResponse>, Status> {
        self.check(request.into_inner().route.as_ref(), From::Node).await?;
        let index = self.node.read_index_here().await.map_err(status)?;
        Ok(Response::new(peer::ReadIndexResponse { index }))
    }

    async fn join(
        &self,
        request: Request<peer::JoinRequest>,
    ) -> Result<Response<peer::JoinResponse>, Status> {
        let request = request.into_inner();
        self.check(request.route.as_ref(), From::Anyone).await?;
        let joiner = request.node.ok_or_else(|| malformed(Malformed("no node")))?;
        Ok(Response::new(
            members::take_in(&self.node, joiner, request.member).await.map_err(status)?,
        ))
    }

    async fn remove(
        &self,
        request: Request<peer::RemoveRequest>,
    ) -> Result<Response<peer::RemoveResponse>, Status> {
        let request = request.into_inner();
        self.check(request.route.as_ref(), From::Anyone).await?;
        Ok(Response::new(members::remove(&self.node, request.node).await.map_err(status)?))
    }

    async fn restore(
        &self,
        request: Request<peer::RestoreRequest>,
    ) -> Result<Response<peer::RestoreResponse>, Status> {
        let request = request.into_inner();
        self.check(request.route.as_ref(), From::Node).await?;
        let done = self.node.restore_here(request.step).await;
        let done = done.map_err(|failure| status(failure.into_error()))?;
        let refused = done.map_or_else(|refused| refused.to_string(), |()| String::new());
        Ok(Response::new(peer::RestoreResponse { refused }))
    }

    async fn members(
        &self,
        request: Request<peer::MembersRequest>,
    ) -> Result<Response<peer::MembersResponse>, Status> {
        self.check(request.into_inner().route.as_ref(), From::Anyone).await?;
        Ok(Response::new(members::list(&self.node).await.map_err(status)?))
    }
}

/// Calls that were forwarded already: they are answered here or not at all.
#[async_trait]
impl ForwardingService for PeerServer {
    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        self.check_forwarded(&request)?;
        let resource = request.into_inner().resource;
        let resource = resource.ok_or_else(|| malformed(Malformed("no resource")))?;
        let written = self.node.change_here(&Change::Write(Box::new(resource))).await;
        let resource = written.map_err(status)?.map(Arc::unwrap_or_clone);
        Ok(Response::new(WriteResponse { resource }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<()>, Status> {
        self.check_forwarded(&request)?;
        let DeleteRequest { id, version } = request.into_inner();
        let id = id.ok_or_else(|| malformed(Malformed("no id")))?;
        self.node.change_here(&Change::Delete(id, version)).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        self.check_forwarded(&request)?;
        let id = request.into_inner().id.ok_or_else(|| malformed(Malformed("no id")))?;
        self.leader_read().await.map_err(status)?;
        let resource = self.node.machine.current().read(&id).map_err(status)?;
        Ok(Response::new(ReadResponse { resource: Some(Arc::unwrap_or_clone(resource)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        self.check_forwarded(&request)?;
        let request = request.into_inner();
        let ty = request.r#type.ok_or_else(|| malformed(Malformed("no type")))?;
        let kind = GroupKind { group: ty.group, kind: ty.kind };
        let query = Query::new(kind, request.tenancy.unwrap_or_default())
            .with_name_prefix(&request.name_prefix);
        self.leader_read().await.map_err(status)?;
        let found = self.node.list_here(query).await.map_err(status)?;
        let resources = found.into_iter().map(Arc::unwrap_or_clone).collect();
        Ok(Response::new(ListResponse { resources }))
    }
}
