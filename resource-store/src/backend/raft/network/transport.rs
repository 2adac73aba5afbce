//! Calls of the consensus library to other nodes.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use openraft::{
    OptionalSend, RaftNetwork, RaftNetworkFactory,
    error::{Fatal, NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable},
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
    },
};
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;

use super::{AppendAnswer, Failure, Network, channels, network, unreachable};
use crate::{
    backend::{
        raft::{
            state_machine::snapshot,
            types::{
                LogId, NodeId, Peer, Snapshot, Types, Vote,
                proto::{self, Malformed},
            },
        },
        store::sync::lock,
    },
    pb::generated::resource_store::peer::v1::{
        self as peer, peer_service_client::PeerServiceClient,
    },
};

/// Time limit for entries to get to the disk of a follower. The library gives up
/// much earlier and asks again; then it is given the same attempt.
const APPEND_TIMEOUT: Duration = Duration::from_mins(1);
/// Time that a snapshot may take without any progress of the receiver.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(10);
/// Delay before a node that cannot be reached is tried again.
const RETRY: Duration = Duration::from_millis(100);

type AppendRequest = AppendEntriesRequest<Types>;

impl RaftNetworkFactory<Types> for Network {
    type Network = Link;

    async fn new_client(&mut self, target: NodeId, node: &Peer) -> Link {
        Link {
            network: self.clone(),
            to: target,
            address: node.address.as_str().into(),
            told: None,
            spoke: None,
            under_way: None,
        }
    }
}

/// The way to one node.
pub(crate) struct Link {
    network: Network,
    to: NodeId,
    address: Arc<str>,
    /// Commit index that was last sent to the node.
    told: Option<LogId>,
    /// When it was last told anything.
    spoke: Option<Instant>,
    under_way: Option<Attempt>,
}

/// Entries on their way.
struct Attempt {
    vote: Vote,
    previous: Option<LogId>,
    last: LogId,
    /// Goes on when it is waited for again. The lock is never contended.
    answer: Mutex<BoxFuture<'static, Result<AppendAnswer, Failure>>>,
}

impl Link {
    fn check(&self) -> Result<(), Unreachable> {
        let checked = self.network.faults.check(self.network.node, self.to);
        checked.map_err(|e| Unreachable::new(&e))
    }

    fn client(&self) -> Result<PeerServiceClient<Channel>, Unreachable> {
        self.check()?;
        let channel = self.network.channels.to(&self.address);
        Ok(channels::peer_client(channel.map_err(|e| Unreachable::new(&e))?))
    }

    /// Returns the commit index that may be sent to the other node: only what is on
    /// the disk here. No message waits for the disk; another one follows once more
    /// may be sent.
    fn committed(&self, request: &AppendRequest) -> Option<LogId> {
        let committed = request.leader_commit?;
        let durable = &self.network.durable;
        if !durable.is_open(committed.index) {
            durable.hold_back();
        }
        // In this order: what got to the disk meanwhile is sent now.
        durable.visible(committed).max(self.told)
    }

    /// Returns `true` if the other node would hear nothing new, and heard that
    /// this one is there a moment ago.
    fn is_idle_talk(&self, request: &AppendRequest) -> bool {
        let held_back = request.leader_commit.is_some_and(|committed| Some(committed) > self.told);
        request.entries.is_empty()
            && held_back
            && self.committed(request) == self.told
            && self.spoke.is_some_and(|spoke| spoke.elapsed() < self.network.timing.heartbeat / 2)
    }

    async fn send(&mut self, request: AppendRequest) -> Result<AppendAnswer, Failure> {
        if self.is_idle_talk(&request) {
            // What it claims was acknowledged before; no lease counts it.
            return Ok(AppendEntriesResponse::Success);
        }
        let committed = self.committed(&request);
        // A read that comes after one of the other node has to count it.
        self.network.durable.announce(committed);
        (self.told, self.spoke) = (committed, Some(Instant::now()));
        let sign_of_life = peer::AppendRequest {
            route: Some(self.network.route(self.to)),
            vote: Some(proto::from_vote(&request.vote)),
            previous: request.prev_log_id.as_ref().map(proto::from_log_id),
            committed: committed.as_ref().map(proto::from_log_id),
            ..peer::AppendRequest::default()
        };
        self.check()?;
        let (network, address) = (self.network.clone(), Arc::clone(&self.address));
        let Some(last) = request.entries.last().map(|entry| entry.log_id) else {
            return network.append(&address, sign_of_life).await;
        };
        let entries = request.entries.iter().map(proto::from_entry).collect();
        let message = peer::AppendRequest { entries, ..sign_of_life.clone() };
        let answer = append_slowly(network, address, message, sign_of_life);
        let answer = Mutex::new(answer.boxed());
        let (vote, previous) = (request.vote, request.prev_log_id);
        self.under_way = Some(Attempt { vote, previous, last, answer });
        self.finish(last).await
    }

    async fn exchange(&mut self, request: AppendRequest) -> Result<AppendAnswer, Failure> {
        let last = request.entries.last().map(|entry| entry.log_id);
        let same = self.under_way.as_ref().is_some_and(|attempt| {
            attempt.vote == request.vote
                && attempt.previous == request.prev_log_id
                && last.is_some_and(|last| attempt.last <= last)
        });
        match last {
            Some(last) if same => self.finish(last).await,
            Some(_) => {
                self.under_way = None;
                self.send(request).await
            }
            // News of what is committed; entries under way stay so.
            None => self.send(request).await,
        }
    }

    /// Logs that the node cannot be reached, or can again, once for each.
    fn tell_if_lost(&mut self, answer: &Result<AppendAnswer, Failure>) {
        let (node, address) = (format!("{:016x}", self.to), &*self.address);
        match answer {
            Err(RPCError::Unreachable(error)) if lock(&self.network.lost).insert(self.to) => {
                tracing::warn!(node, address, %error, "a node cannot be reached");
            }
            Ok(_) if lock(&self.network.lost).remove(&self.to) => {
                tracing::info!(node, address, "a node can be reached again");
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Waits for the entries under way. What was asked for, up to `last`, may
    /// be more by now.
    async fn finish(&mut self, last: LogId) -> Result<AppendAnswer, Failure> {
        let Some(attempt) = &mut self.under_way else {
            return Err(network(&Malformed("nothing is under way")));
        };
        let answer = attempt.answer.get_mut().unwrap_or_else(PoisonError::into_inner).await;
        let sent = attempt.last;
        self.under_way = None;
        match answer? {
            AppendEntriesResponse::Success if sent < last => {
                Ok(AppendEntriesResponse::PartialSuccess(Some(sent)))
            }
            other => Ok(other),
        }
    }
}

impl RaftNetwork<Types> for Link {
    /// The library drops this future after one heartbeat. Large entries and
    /// slow disks take longer: then the next call, with the same entries and
    /// perhaps more, goes on with the attempt that is under way.
    async fn append_entries(
        &mut self,
        request: AppendRequest,
        _: RPCOption,
    ) -> Result<AppendAnswer, Failure> {
        self.network.check_leads()?;
        let answer = self.exchange(request).await;
        self.tell_if_lost(&answer);
        answer
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<NodeId>, Failure> {
        let message = peer::VoteRequest {
            route: Some(self.network.route(self.to)),
            vote: Some(proto::from_vote(&request.vote)),
            last: request.last_log_id.as_ref().map(proto::from_log_id),
        };
        let answer = self.client()?.request_vote(message).await;
        let answer = answer.map_err(|e| unreachable(channels::reason(&e)))?.into_inner();
        let vote = proto::vote(answer.vote).map_err(|e| network(&e))?;
        let last = proto::optional_log_id(answer.last).map_err(|e| network(&e))?;
        Ok(VoteResponse::new(vote, last, answer.granted))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<Types, Fatal<NodeId>>> {
        let contents = *snapshot.snapshot;
        let head = peer::SnapshotHead {
            route: Some(self.network.route(self.to)),
            vote: Some(proto::from_vote(&vote)),
            ..snapshot::head(&contents)
        };
        let last = snapshot.meta.last_log_id.map_or(0, |last| last.index);
        let _hold = self.network.holds.after(self.to, last);
        let mut client = self.client()?;
        let (faults, from, to) = (self.network.faults.clone(), self.network.node, self.to);
        let (progress, mut progressed) = tokio::sync::watch::channel(());
        let parts = stream::iter(snapshot::parts(head, &contents))
            .take_while(move |_| std::future::ready(faults.check(from, to).is_ok()))
            .inspect(move |_| progress.send_modify(|()| ()));
        let sending = client.install_snapshot(parts);
        let stands_still = async {
            // The last part is followed by what the receiver does with all of them.
            while let Ok(Ok(())) = timeout(INSTALL_TIMEOUT, progressed.changed()).await {}
            tokio::time::sleep(INSTALL_TIMEOUT).await;
        };
        tokio::select! {
            closed = cancel => Err(closed.into()),
            () = stands_still => {
                Err(NetworkError::new(&Malformed("a snapshot took too long")).into())
            }
            answer = sending => {
                let answer = answer.map_err(|e| Unreachable::new(&e))?.into_inner();
                let vote = proto::vote(answer.vote).map_err(|e| NetworkError::new(&e))?;
                Ok(SnapshotResponse::new(vote))
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(RETRY))
    }
}

/// Sends entries, and a sign of life now and then as long as that takes.
async fn append_slowly(
    this: Network,
    address: Arc<str>,
    message: peer::AppendRequest,
    sign_of_life: peer::AppendRequest,
) -> Result<AppendAnswer, Failure> {
    let signs = async {
        loop {
            tokio::time::sleep(RETRY).await;
            if let Err(error) = this.append(&address, sign_of_life.clone()).await {
                tracing::debug!(%error, "a sign of life did not get through");
            }
        }
    };
    tokio::select! {
        answer = this.append(&address, message) => answer,
        () = signs => Err(network(&Malformed("no end of signs of life"))),
        () = tokio::time::sleep(APPEND_TIMEOUT) => {
            Err(network(&Malformed("entries took too long")))
        }
    }
}
