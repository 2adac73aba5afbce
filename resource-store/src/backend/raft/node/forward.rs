//! Calls of a node to the leader: changes, reads and the read index.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use tonic::{Status, transport::Channel};

use super::{Change, Failure, Node, outcome_unknown};
use crate::{
    backend::{
        Error, Query, Result,
        raft::{
            network::{channels, status::from_status},
            types::{NodeId, Peer, inconsistent, reason_of},
        },
    },
    error_chain::{error_chain, never_sent},
    pb::{
        Id, Resource, Type,
        generated::{
            hashicorp::consul::internal::storage::raft::{
                self as forwarded, forwarding_service_client::ForwardingServiceClient,
            },
            resource_store::peer::v1 as peer,
        },
    },
};

/// Time that a call to a leader goes on after another one was elected.
const GRACE: Duration = Duration::from_secs(1);

impl Node {
    /// Has the leader take a step of a restore. The answer is why it was
    /// refused, if it was.
    pub(crate) async fn forward_restore(
        &self,
        id: NodeId,
        peer: &Peer,
        step: Bytes,
    ) -> Result<String, Failure> {
        let mut client = channels::peer_client(self.channel(id, peer)?);
        let route = Some(self.network.route(id));
        let mut request = tonic::Request::new(peer::RestoreRequest { route, step });
        request.set_timeout(self.config.write_timeout);
        let Some(answer) = self.while_leading(id, client.restore(request)).await else {
            return Err(outcome_unknown("the leader changed and the old one is silent"));
        };
        let answer = answer.map_err(|status| self.not_changed(peer, &status))?;
        Ok(answer.into_inner().refused)
    }

    pub(super) async fn forward_change(
        &self,
        id: NodeId,
        peer: &Peer,
        change: &Change,
    ) -> Result<Option<Arc<Resource>>, Failure> {
        let mut client = self.forwarding_client(id, peer)?;
        let call = async {
            match change {
                Change::Write(resource) => {
                    let resource = Some(resource.as_ref().clone());
                    let request = self.request(id, forwarded::WriteRequest { resource });
                    Ok(client.write(request).await?.into_inner().resource)
                }
                Change::Delete(resource, version) => {
                    let request = forwarded::DeleteRequest {
                        id: Some(resource.clone()),
                        version: version.clone(),
                    };
                    client.delete(self.request(id, request)).await?;
                    Ok(None)
                }
            }
        };
        let Some(answer) = self.while_leading(id, call).await else {
            return Err(outcome_unknown("the leader changed and the old one is silent"));
        };
        let answer: Result<_, Status> = answer;
        answer.map(|resource| resource.map(Arc::new)).map_err(|s| self.not_changed(peer, &s))
    }

    /// Translates the failure of a change that was forwarded.
    fn not_changed(&self, peer: &Peer, status: &Status) -> Failure {
        match from_status(status) {
            Some(Error::Inconsistent { reason }) => Failure::NotDone(reason),
            Some(error) => error.into(),
            None if never_sent(status) => {
                // The next call makes a connection again, perhaps to another address behind the same name.
                self.forwarding.close(&peer.address);
                Failure::NotDone(format!(
                    "the leader cannot be reached: {}",
                    channels::reason(status)
                ))
            }
            // The leader itself answered, so there is no doubt whether it has begun.
            None if channels::is_final(status) => {
                Error::failed("forward", status.message().to_owned()).into()
            }
            None => {
                let reason =
                    format!("the connection to the leader failed: {}", channels::reason(status));
                outcome_unknown(&reason)
            }
        }
    }

    fn channel(&self, id: NodeId, peer: &Peer) -> Result<Channel, Failure> {
        let unreachable =
            |error: &(dyn std::error::Error + 'static)| Failure::NotDone(error_chain(error));
        self.network.faults.check(self.id(), id).map_err(|e| unreachable(&e))?;
        self.forwarding.to(&peer.address).map_err(|e| unreachable(&e))
    }

    fn forwarding_client(
        &self,
        id: NodeId,
        peer: &Peer,
    ) -> Result<ForwardingServiceClient<Channel>, Failure> {
        self.channel(id, peer).map(channels::forwarding_client)
    }

    /// A forwarded call with what it is for, so that another node, or one of another cluster,
    /// that got the address refuses it.
    pub(crate) fn request<T>(&self, to: NodeId, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.config.write_timeout);
        let peer::Route { cluster, to, from } = self.network.route(to);
        // Hexadecimal digits and hyphens are always allowed in metadata, so this never fails.
        if let Ok(value) = format!("{cluster:016x}-{to:016x}-{from:016x}").parse() {
            request.metadata_mut().insert(ROUTE_HEADER, value);
        }
        request
    }

    /// The answer of a leader, unless another one is elected and the call takes
    /// long.
    async fn while_leading<T>(&self, leader: NodeId, call: impl Future<Output = T>) -> Option<T> {
        let mut metrics = self.raft.server_metrics();
        let replaced = async {
            let another = |now: Option<NodeId>| now.is_some_and(|now| now != leader);
            if metrics.wait_for(|metrics| another(metrics.current_leader)).await.is_err() {
                std::future::pending::<()>().await;
            }
            // An old leader may still answer what it has committed; that spares an unknown outcome.
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            answer = call => Some(answer),
            () = replaced => None,
        }
    }

    pub(super) async fn read_index_of(&self, id: NodeId, peer: &Peer) -> Result<u64, Failure> {
        let mut client = channels::peer_client(self.channel(id, peer)?);
        let request = peer::ReadIndexRequest { route: Some(self.network.route(id)) };
        let limit = self.config.patience;
        let round = || async move {
            let mut request = tonic::Request::new(request);
            request.set_timeout(limit);
            let answer = client.read_index(request).await;
            answer.map(|a| a.into_inner().index).map_err(|e| inconsistent(channels::reason(&e)))
        };
        let passed = self.while_leading(id, self.follower_reads.pass(round)).await;
        let passed = passed.unwrap_or_else(|| Err(inconsistent("the leader changed")));
        passed.map_err(|error| Failure::NotDone(reason_of(error)))
    }

    /// Reads at the leader, because this node is far behind.
    pub(crate) async fn forward_read(&self, resource: &Id) -> Result<Arc<Resource>> {
        self.with_leader(|id, peer| async move {
            if id == self.id() {
                return Err(Failure::NotDone("the leader is far behind its log".to_owned()));
            }
            let mut client = self.forwarding_client(id, &peer)?;
            let request = forwarded::ReadRequest { id: Some(resource.clone()) };
            let answer = client.read(self.request(id, request)).await.map_err(read_failure)?;
            let found = answer.into_inner().resource;
            found.map(Arc::new).ok_or_else(|| Failure::NotDone("an empty answer".to_owned()))
        })
        .await
    }

    /// Lists at the leader, because this node is far behind.
    pub(crate) async fn forward_list(&self, query: &Query) -> Result<Vec<Arc<Resource>>> {
        self.with_leader(|id, peer| async move {
            if id == self.id() {
                return Err(Failure::NotDone("the leader is far behind its log".to_owned()));
            }
            let mut client = self.forwarding_client(id, &peer)?;
            let request = forwarded::ListRequest {
                r#type: Some(Type::new(&query.kind.group, "", &query.kind.kind)),
                tenancy: Some(query.tenancy.clone()),
                name_prefix: query.name_prefix.clone(),
            };
            let answer = client.list(self.request(id, request)).await.map_err(read_failure)?;
            Ok(answer.into_inner().resources.into_iter().map(Arc::new).collect())
        })
        .await
    }
}

/// The metadata that says for which cluster a forwarded call is, for which node, and from which:
/// three hexadecimal numbers. The messages are Consul's and have no place for it. It is the same
/// for all calls to a leader, so that HTTP/2 sends it once.
pub(crate) const ROUTE_HEADER: &str = "x-resource-store-route";

pub(super) fn parse_route(text: &str) -> Option<peer::Route> {
    let mut numbers = text.split('-').map(|number| u64::from_str_radix(number, 16).ok());
    let route =
        peer::Route { cluster: numbers.next()??, to: numbers.next()??, from: numbers.next()?? };
    // More than three is another version's; to take a part of it would check less than it says.
    numbers.next().is_none().then_some(route)
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn read_failure(status: Status) -> Failure {
    match from_status(&status) {
        Some(Error::Inconsistent { reason }) => Failure::NotDone(reason),
        Some(error) => Failure::Failed(error),
        None => Failure::NotDone(channels::reason(&status)),
    }
}
