//! What a node answers to other nodes: the calls of `peer.proto` and those that
//! are forwarded to the leader.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Response, Status, Streaming, metadata::MetadataMap};

use super::{
    Change, Node,
    forward::{ROUTE_HEADER, parse_route},
};
use crate::{
    backend::{
        Query, Result as BackendResult,
        raft::{
            network::{
                certificates::Shown,
                server::{Caller, malformed, status},
            },
            state_machine::snapshot,
            types::{
                inconsistent,
                proto::{self, Malformed},
                reason_of,
            },
        },
    },
    gvk::GroupKind,
    pb::generated::{
        hashicorp::consul::internal::storage::raft::{
            DeleteRequest, ListRequest, ListResponse, ReadRequest, ReadResponse, WriteRequest,
            WriteResponse, forwarding_service_server::ForwardingService,
        },
        resource_store::peer::v1::{
            self as peer, peer_service_server::PeerService, snapshot_part::Part,
        },
    },
};

/// Answers other nodes.
#[derive(Debug, Clone)]
pub(crate) struct PeerServer {
    pub(crate) node: Arc<Node>,
    /// Ends streams of other nodes.
    pub(crate) stop: CancellationToken,
}

impl PeerServer {
    /// Refuses a forwarded call of another cluster, to another node, or that does not say which.
    async fn check_forwarded(&self, call: &MetadataMap, shown: Shown) -> Result<(), Status> {
        let route = call.get(ROUTE_HEADER).and_then(|route| route.to_str().ok());
        let Some(route) = route.and_then(parse_route) else {
            return Err(status(inconsistent("the call does not say for which cluster it is")));
        };
        let checked = self.node.server.check(Some(&route), Caller::Node, &shown).await;
        checked.map_err(|refused| match refused.code() {
            Code::PermissionDenied => refused,
            // It was not begun, so another node may be asked.
            _ => status(inconsistent(refused.message())),
        })
    }

    /// Waits until this node, as the leader, can answer linearizably.
    async fn leader_read(&self) -> BackendResult<()> {
        let index = self.node.reads.read_index().await?;
        let mut applied = self.node.state_machine.applied();
        let reached = applied.wait_for(|applied| *applied >= index);
        match tokio::time::timeout(self.node.config.patience, reached).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(inconsistent("the leader is behind its log")),
        }
    }
}

#[async_trait]
impl PeerService for PeerServer {
    type AppendStream = BoxStream<'static, Result<peer::AppendResponse, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<peer::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let shown = request.peer_certs();
        let answers = self.node.server.append(request.into_inner(), shown);
        let stopped = self.stop.clone().cancelled_owned();
        Ok(Response::new(answers.take_until(stopped).boxed()))
    }

    async fn request_vote(
        &self,
        request: Request<peer::VoteRequest>,
    ) -> Result<Response<peer::VoteResponse>, Status> {
        let shown = request.peer_certs();
        Ok(Response::new(self.node.server.vote(request.into_inner(), &shown).await?))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<peer::SnapshotPart>>,
    ) -> Result<Response<peer::SnapshotResponse>, Status> {
        let shown = request.peer_certs();
        let mut parts = request.into_inner();
        let Some(Part::Head(head)) = parts.message().await?.and_then(|part| part.part) else {
            return Err(malformed(Malformed("a snapshot without head")));
        };
        let vote = self.node.server.install_snapshot(head, parts, &shown).await?;
        Ok(Response::new(peer::SnapshotResponse { vote: Some(proto::from_vote(&vote)) }))
    }

    async fn read_index(
        &self,
        request: Request<peer::ReadIndexRequest>,
    ) -> Result<Response<peer::ReadIndexResponse>, Status> {
        let shown = request.peer_certs();
        self.node.server.check(request.into_inner().route.as_ref(), Caller::Node, &shown).await?;
        let index = self.node.reads.read_index().await.map_err(status)?;
        Ok(Response::new(peer::ReadIndexResponse { index }))
    }

    async fn join(
        &self,
        request: Request<peer::JoinRequest>,
    ) -> Result<Response<peer::JoinResponse>, Status> {
        let shown = request.peer_certs();
        let request = request.into_inner();
        self.node.server.check(request.route.as_ref(), Caller::Joiner, &shown).await?;
        let joiner = request.node.ok_or_else(|| malformed(Malformed("no node")))?;
        self.node.server.check_joiner(&joiner.address, &shown)?;
        Ok(Response::new(
            self.node
                .members
                .add(joiner, request.member, request.replaces)
                .await
                .map_err(status)?,
        ))
    }

    async fn remove(
        &self,
        request: Request<peer::RemoveRequest>,
    ) -> Result<Response<peer::RemoveResponse>, Status> {
        let shown = request.peer_certs();
        let request = request.into_inner();
        self.node.server.check(request.route.as_ref(), Caller::Anyone, &shown).await?;
        Ok(Response::new(self.node.members.remove(request.node).await.map_err(status)?))
    }

    async fn restore(
        &self,
        request: Request<peer::RestoreRequest>,
    ) -> Result<Response<peer::RestoreResponse>, Status> {
        let shown = request.peer_certs();
        let request = request.into_inner();
        self.node.server.check(request.route.as_ref(), Caller::Node, &shown).await?;
        let done = self.node.restore_here(request.step).await;
        let done = done.map_err(|failure| status(failure.into_error()))?;
        let refused = done.map_or_else(|refused| refused.to_string(), |()| String::new());
        Ok(Response::new(peer::RestoreResponse { refused }))
    }

    async fn members(
        &self,
        request: Request<peer::MembersRequest>,
    ) -> Result<Response<peer::MembersResponse>, Status> {
        let shown = request.peer_certs();
        self.node.server.check(request.into_inner().route.as_ref(), Caller::Anyone, &shown).await?;
        Ok(Response::new(self.node.members.committed().await.map_err(status)?))
    }

    async fn status(
        &self,
        request: Request<peer::StatusRequest>,
    ) -> Result<Response<peer::StatusResponse>, Status> {
        let shown = request.peer_certs();
        self.node.server.check(request.into_inner().route.as_ref(), Caller::Anyone, &shown).await?;
        Ok(Response::new(self.node.status().await))
    }

    async fn move_leader(
        &self,
        request: Request<peer::MoveLeaderRequest>,
    ) -> Result<Response<peer::MoveLeaderResponse>, Status> {
        let shown = request.peer_certs();
        let request = request.into_inner();
        self.node.server.check(request.route.as_ref(), Caller::Anyone, &shown).await?;
        Ok(Response::new(self.node.move_leader(request.to).await.map_err(status)?))
    }

    type BackupStream = BoxStream<'static, Result<peer::SnapshotPart, Status>>;

    async fn backup(
        &self,
        request: Request<peer::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let shown = request.peer_certs();
        let request = request.into_inner();
        self.node.server.check(request.route.as_ref(), Caller::Anyone, &shown).await?;
        // A cluster without a majority has to have a backup, too, but whoever asks has to say so.
        if !request.stale {
            let caught_up = self.node.catch_up().await.map_err(|error| {
                let reason = reason_of(error);
                status(inconsistent(format!(
                    "{reason}; with --stale the backup is what this node holds, without what only \
                     others have"
                )))
            })?;
            if !caught_up {
                return Err(status(inconsistent("the node is far behind; ask another one")));
            }
        }
        let contents = self.node.state_machine.view().map_err(status)?;
        // One part is made when the one before was sent.
        let parts = stream::iter(snapshot::parts(snapshot::head(&contents), &contents).map(Ok));
        let stopped = self.stop.clone().cancelled_owned();
        Ok(Response::new(parts.take_until(stopped).boxed()))
    }

    async fn campaign(
        &self,
        request: Request<peer::CampaignRequest>,
    ) -> Result<Response<peer::CampaignResponse>, Status> {
        let shown = request.peer_certs();
        self.node.server.check(request.into_inner().route.as_ref(), Caller::Node, &shown).await?;
        self.node.campaign().await.map_err(status)?;
        Ok(Response::new(peer::CampaignResponse {}))
    }
}

/// Calls that were forwarded already: they are answered here or not at all.
#[async_trait]
impl ForwardingService for PeerServer {
    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        self.check_forwarded(request.metadata(), request.peer_certs()).await?;
        let resource = request.into_inner().resource;
        let resource = resource.ok_or_else(|| malformed(Malformed("no resource")))?;
        let written = self.node.change_here(&Change::Write(Box::new(resource))).await;
        let resource = written.map_err(status)?.map(Arc::unwrap_or_clone);
        Ok(Response::new(WriteResponse { resource }))
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Result<Response<()>, Status> {
        self.check_forwarded(request.metadata(), request.peer_certs()).await?;
        let DeleteRequest { id, version } = request.into_inner();
        let id = id.ok_or_else(|| malformed(Malformed("no id")))?;
        self.node.change_here(&Change::Delete(id, version)).await.map_err(status)?;
        Ok(Response::new(()))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        self.check_forwarded(request.metadata(), request.peer_certs()).await?;
        let id = request.into_inner().id.ok_or_else(|| malformed(Malformed("no id")))?;
        self.leader_read().await.map_err(status)?;
        let resource = self
            .node
            .state_machine
            .view()
            .and_then(|view| view.resources.read(&id))
            .map_err(status)?;
        Ok(Response::new(ReadResponse { resource: Some(Arc::unwrap_or_clone(resource)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        self.check_forwarded(request.metadata(), request.peer_certs()).await?;
        let request = request.into_inner();
        let ty = request.r#type.ok_or_else(|| malformed(Malformed("no type")))?;
        let kind = GroupKind { group: ty.group, kind: ty.kind };
        let query = Query::new(kind, request.tenancy.unwrap_or_default())
            .with_name_prefix(&request.name_prefix);
        self.leader_read().await.map_err(status)?;
        let view = self.node.state_machine.view();
        let found = view.and_then(|view| view.resources.list(&query)).map_err(status)?;
        let resources = found.into_iter().map(Arc::unwrap_or_clone).collect();
        Ok(Response::new(ListResponse { resources }))
    }
}
