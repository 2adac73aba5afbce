//! What a node answers to calls that no node of ours makes.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use tempfile::TempDir;
use tonic::{Code, transport::Channel};

use crate::{
    backend::{
        Backend as _, Consistency,
        raft::{
            RaftBackend, RaftConfig, Start,
            network::channels::{self, Channels},
            node::forward::ROUTE_HEADER,
        },
    },
    demo,
    pb::{
        Resource, Tenancy,
        generated::{
            hashicorp::consul::internal::storage::raft::{
                self as forwarded, forwarding_service_client::ForwardingServiceClient,
            },
            resource_store::peer::v1::{
                self as peer, append_response, peer_service_client::PeerServiceClient,
                snapshot_part::Part,
            },
        },
    },
};

struct Nodes {
    leader: RaftBackend,
    follower: RaftBackend,
    _folders: [TempDir; 2],
}

/// Two nodes that take long to elect another leader.
async fn nodes() -> Nodes {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let config = |folder: &TempDir| {
        let mut config = RaftConfig::new(folder.path(), "127.0.0.1:0");
        config.election = (Duration::from_secs(2), Duration::from_secs(3));
        config
    };
    let leader = RaftBackend::start(config(&folders[0]), Start::Bootstrap).await.unwrap();
    let join = Start::Join(leader.local_addr().to_string());
    let follower = RaftBackend::start(config(&folders[1]), join).await.unwrap();
    Nodes { leader, follower, _folders: folders }
}

fn channel(node: &RaftBackend) -> Channel {
    Channels::new(None).to(&node.local_addr().to_string()).unwrap()
}

fn forwarding(node: &RaftBackend) -> ForwardingServiceClient<Channel> {
    channels::forwarding_client(channel(node))
}

fn peers(node: &RaftBackend) -> PeerServiceClient<Channel> {
    channels::peer_client(channel(node))
}

/// A message as a node forwards it to another one.
fn from<T>(sender: &RaftBackend, to: &RaftBackend, message: T) -> tonic::Request<T> {
    sender.node.request(to.node_id(), message)
}

fn artist() -> Resource {
    let mut artist = demo::artist("korn").encode();
    artist.id.as_mut().unwrap().uid = "u".to_owned();
    artist
}

/// The four calls of the leader; a follower that is asked does not ask on.
///
/// Spec: RS66
#[tokio::test]
async fn forwarded_calls_are_answered_by_the_leader_and_never_forwarded_again() {
    let nodes = nodes().await;
    let mut leader = forwarding(&nodes.leader);
    let write = forwarded::WriteRequest { resource: Some(artist()) };
    let stored = leader
        .write(from(&nodes.follower, &nodes.leader, write.clone()))
        .await
        .unwrap()
        .into_inner()
        .resource
        .unwrap();
    let again =
        leader.write(from(&nodes.follower, &nodes.leader, write.clone())).await.unwrap_err();
    assert_eq!(again.code(), Code::Aborted);
    let mut other = artist();
    other.id.as_mut().unwrap().uid = "v".to_owned();
    let other = forwarded::WriteRequest { resource: Some(other) };
    assert_eq!(
        leader.write(from(&nodes.follower, &nodes.leader, other)).await.unwrap_err().code(),
        Code::AlreadyExists
    );

    let read = forwarded::ReadRequest { id: artist().id };
    let found = leader
        .read(from(&nodes.follower, &nodes.leader, read.clone()))
        .await
        .unwrap()
        .into_inner()
        .resource
        .unwrap();
    assert_eq!(found, stored);
    let mut v1 = artist().id.unwrap();
    v1.r#type.as_mut().unwrap().group_version = "v1".to_owned();
    let mismatch = leader
        .read(from(&nodes.follower, &nodes.leader, forwarded::ReadRequest { id: Some(v1) }))
        .await
        .unwrap_err();
    assert_eq!(mismatch.code(), Code::OutOfRange);
    assert!(!mismatch.details().is_empty());

    let mut ty = artist().resource_type().unwrap().clone();
    ty.group_version.clear();
    let list = forwarded::ListRequest {
        r#type: Some(ty),
        tenancy: Some(Tenancy::new("*", "*")),
        name_prefix: "k".to_owned(),
    };
    let listed = leader
        .list(from(&nodes.follower, &nodes.leader, list.clone()))
        .await
        .unwrap()
        .into_inner()
        .resources;
    assert_eq!(listed, std::slice::from_ref(&stored));

    let delete = forwarded::DeleteRequest { id: stored.id.clone(), version: stored.version };
    let mut follower = forwarding(&nodes.follower);
    let refused = [
        follower.write(from(&nodes.leader, &nodes.follower, write)).await.map(drop).unwrap_err(),
        follower
            .read(from(&nodes.leader, &nodes.follower, read.clone()))
            .await
            .map(drop)
            .unwrap_err(),
        follower.list(from(&nodes.leader, &nodes.follower, list)).await.map(drop).unwrap_err(),
        follower
            .delete(from(&nodes.leader, &nodes.follower, delete.clone()))
            .await
            .map(drop)
            .unwrap_err(),
    ];
    for status in refused {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().starts_with("cannot satisfy consistency requirements"));
    }
    leader.delete(from(&nodes.follower, &nodes.leader, delete)).await.unwrap();
    assert_eq!(
        leader.read(from(&nodes.follower, &nodes.leader, read)).await.unwrap_err().code(),
        Code::NotFound
    );
}

/// Only a node of the cluster may have the leader do something for it.
#[tokio::test]
async fn a_forwarded_call_that_names_no_cluster_or_another_one_has_no_effect() {
    let nodes = nodes().await;
    let mut leader = forwarding(&nodes.leader);
    let write = || forwarded::WriteRequest { resource: Some(artist()) };
    let cluster = nodes.leader.node.network.cluster.load(Ordering::Acquire);
    let (to, me) = (nodes.leader.node_id(), nodes.follower.node_id());
    let routes = [
        None,
        Some("nonsense".to_owned()),
        Some(format!("{:016x}-{to:016x}-{me:016x}", cluster ^ 1)),
        Some(format!("{:016x}-{to:016x}-{me:016x}", 0)),
        Some(format!("{cluster:016x}-{:016x}-{me:016x}", to ^ 1)),
    ];
    for route in routes {
        let mut request = tonic::Request::new(write());
        if let Some(route) = &route {
            request.metadata_mut().insert(ROUTE_HEADER, route.parse().unwrap());
        }
        let refused = leader.write(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{route:?}");
    }
    let right = from(&nodes.follower, &nodes.leader, write());
    leader.write(right).await.unwrap();
}

/// A node that is far behind has the leader answer strong reads.
#[tokio::test]
async fn a_node_far_behind_has_the_leader_answer() {
    let nodes = nodes().await;
    let stored = nodes.leader.write_cas(artist()).await.unwrap();
    let id = stored.id.clone().unwrap();
    let read = nodes.follower.node.forward_read(&id).await.unwrap();
    assert_eq!(read, stored);
    let query = crate::backend::Query::new(
        stored.resource_type().unwrap().group_kind(),
        Tenancy::new("*", "*"),
    );
    assert_eq!(nodes.follower.node.forward_list(&query).await.unwrap(), [stored]);
    let gone = id.with_uid("other");
    let missing = nodes.follower.node.forward_read(&gone).await;
    assert!(matches!(missing, Err(crate::backend::Error::NotFound)), "{missing:?}");
}

#[tokio::test]
async fn calls_for_another_node_or_cluster_are_refused() {
    let nodes = nodes().await;
    let node = &nodes.follower.node;
    let cluster = node.network.cluster.load(Ordering::Acquire);
    let mut client = peers(&nodes.follower);
    let mut ask = async |cluster: u64, to: u64| {
        let route = Some(peer::Route { cluster, to, from: 7 });
        let vote = Some(peer::Vote { term: 0, node: 7, committed: false });
        client.request_vote(peer::VoteRequest { route, vote, last: None }).await
    };
    assert!(!ask(cluster, node.id()).await.unwrap().into_inner().granted);
    for (cluster, to) in [(cluster, node.id() ^ 1), (cluster ^ 1, node.id()), (0, node.id())] {
        let refused = ask(cluster, to).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let mut leader = forwarding(&nodes.leader);
    let mut request = tonic::Request::new(forwarded::WriteRequest { resource: Some(artist()) });
    request.metadata_mut().insert("x-resource-store-cluster", "0".parse().unwrap());
    assert_eq!(leader.write(request).await.unwrap_err().code(), Code::FailedPrecondition);
}

/// One stream, which goes on after each.
async fn entries_are_refused(
    client: &mut PeerServiceClient<Channel>,
    calls: &[peer::AppendRequest],
) {
    let mut requests = calls.to_vec();
    for (number, request) in (7..).zip(&mut requests) {
        request.number = number;
    }
    let mut answers = client.append(futures::stream::iter(requests)).await.unwrap().into_inner();
    let mut unanswered: BTreeSet<_> = (0..calls.len()).collect();
    while let Some(answer) = answers.message().await.unwrap() {
        let number = usize::try_from(answer.number - 7).unwrap();
        assert!(unanswered.remove(&number));
        let Some(append_response::Result::Refused(reason)) = answer.result else {
            panic!("{:?} was answered with {answer:?}", calls[number]);
        };
        assert!(reason.contains("malformed message"), "{:?}: {reason}", calls[number]);
    }
    assert!(unanswered.is_empty());
}

/// What makes no sense is refused, and the node goes on.
#[tokio::test]
async fn malformed_calls_are_refused_and_the_node_goes_on() {
    let nodes = nodes().await;
    let stored = nodes.leader.write_cas(artist()).await.unwrap();
    nodes.follower.wait_until_caught_up(Duration::from_secs(20)).await.unwrap();
    let node = &nodes.follower.node;
    let plain_route = peer::Route {
        cluster: node.network.cluster.load(Ordering::Acquire),
        to: node.id(),
        from: nodes.leader.node_id(),
    };
    let route = Some(plain_route);
    let vote = Some(peer::Vote { term: 1 << 40, node: 7, committed: true });
    let log_id = |term, index| Some(peer::LogId { term, leader: 7, index });
    let entry = |term, index| peer::Entry { log_id: log_id(term, index), payload: None };
    let append = |previous, entries| peer::AppendRequest {
        route,
        vote,
        previous,
        entries,
        ..peer::AppendRequest::default()
    };
    let mut client = peers(&nodes.follower);
    let calls = [
        peer::AppendRequest::default(),
        peer::AppendRequest { vote: None, ..append(None, Vec::new()) },
        append(log_id(u64::MAX, 0), Vec::new()),
        append(log_id(1, 3), vec![entry(1, 9)]),
        append(log_id(1, 3), vec![entry(1 << 50, 4)]),
        append(None, vec![peer::Entry::default()]),
        // In the place of what was applied.
        append(None, vec![entry(1 << 40, 0), entry(1 << 40, 1)]),
    ];
    entries_are_refused(&mut client, &calls).await;
    let head = peer::SnapshotHead {
        route,
        vote,
        last: log_id(5, 500),
        membership: None,
        version_offset: 0,
        restore: None,
    };
    let part = |part| peer::SnapshotPart { part: Some(part) };
    let end = |resources| part(Part::End(peer::SnapshotEnd { resources, restoring: 0 }));
    let restoring = |resources| Part::End(peer::SnapshotEnd { resources: 0, restoring: resources });
    let snapshots = [
        vec![],
        vec![end(0)],
        vec![part(Part::Head(head.clone()))],
        vec![part(Part::Head(head.clone())), part(Part::Head(head.clone()))],
        vec![part(Part::Head(head.clone())), part(Part::Chunk(vec![0xff; 20].into()))],
        vec![part(Part::Head(head.clone())), end(1)],
        vec![part(Part::Head(head.clone())), part(restoring(1))],
        vec![part(Part::Head(head.clone())), part(Part::Restoring(vec![0xff; 20].into()))],
        vec![part(Part::Head(head.clone())), part(Part::Chunk(vec![1].into())), end(0)],
    ];
    for parts in snapshots {
        let text = format!("{parts:?}");
        client.install_snapshot(futures::stream::iter(parts)).await.expect_err(&text);
    }
    for joiner in [None, Some(peer::Node::default())] {
        let mut leader = peers(&nodes.leader);
        let route = Some(peer::Route::default());
        leader
            .join(peer::JoinRequest { route, node: joiner, member: false, replaces: 0 })
            .await
            .unwrap_err();
    }
    let restore = peer::RestoreRequest {
        route: Some(peer::Route { to: nodes.leader.node_id(), ..plain_route }),
        step: vec![0xff; 9].into(),
    };
    peers(&nodes.leader).restore(restore).await.unwrap_err();

    let id = stored.id.clone().unwrap();
    assert_eq!(nodes.follower.read(Consistency::Strong, &id).await.unwrap(), stored);
    nodes.follower.delete_cas(&id, &stored.version).await.unwrap();
}
