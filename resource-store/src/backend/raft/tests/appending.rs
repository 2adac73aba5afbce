//! Streams of entries to a node that answers as a test wants.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _, future::join_all, stream::BoxStream};
use tokio::{net::TcpListener, sync::Notify, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    backend::raft::{
        appending::{Appending, MOST_UNANSWERED},
        channels::{self, Channels, MAX_MESSAGE},
    },
    pb::generated::resource_store::peer::v1::{
        self as peer, append_response,
        peer_service_server::{PeerService, PeerServiceServer},
    },
};

/// A node that takes entries only.
#[derive(Debug, Default)]
struct Follower {
    /// Reads nothing of the first stream.
    stuck: bool,
    /// Reads all, and answers nothing.
    silent: AtomicBool,
    /// Ends the streams there are.
    end: Notify,
    streams: AtomicUsize,
}

#[async_trait]
impl PeerService for &'static Follower {
    type AppendStream = BoxStream<'static, Result<peer::AppendResponse, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<peer::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let requests = request.into_inner();
        if self.streams.fetch_add(1, Ordering::SeqCst) == 0 && self.stuck {
            let held = futures::stream::pending().chain(requests.map(|_| unreachable!()));
            return Ok(Response::new(held.boxed()));
        }
        let follower = *self;
        let end = async { follower.end.notified().await };
        let answers = requests.filter_map(move |request| async move {
            let number = request.ok()?.number;
            let accepted = append_response::Result::Accepted(append_response::Accepted {});
            let answer = peer::AppendResponse { number, result: Some(accepted) };
            (!follower.silent.load(Ordering::SeqCst)).then_some(Ok(answer))
        });
        Ok(Response::new(answers.take_until(end).boxed()))
    }

    async fn request_vote(
        &self,
        _: Request<peer::VoteRequest>,
    ) -> Result<Response<peer::VoteResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn install_snapshot(
        &self,
        _: Request<Streaming<peer::SnapshotPart>>,
    ) -> Result<Response<peer::SnapshotResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn read_index(
        &self,
        _: Request<peer::ReadIndexRequest>,
    ) -> Result<Response<peer::ReadIndexResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn join(
        &self,
        _: Request<peer::JoinRequest>,
    ) -> Result<Response<peer::JoinResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn remove(
        &self,
        _: Request<peer::RemoveRequest>,
    ) -> Result<Response<peer::RemoveResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn restore(
        &self,
        _: Request<peer::RestoreRequest>,
    ) -> Result<Response<peer::RestoreResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn members(
        &self,
        _: Request<peer::MembersRequest>,
    ) -> Result<Response<peer::MembersResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Starts one, and gives its address.
async fn serve(follower: &'static Follower) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = PeerServiceServer::new(follower).max_decoding_message_size(MAX_MESSAGE);
    let incoming = TcpListenerStream::new(listener);
    tokio::spawn(channels::server().add_service(service).serve_with_incoming(incoming));
    address
}

fn sign_of_life() -> peer::AppendRequest {
    peer::AppendRequest::default()
}

fn large() -> peer::AppendRequest {
    let payload = Some(peer::entry::Payload::Log(vec![7; 8 << 20].into()));
    let entries = vec![peer::Entry { log_id: None, payload }];
    peer::AppendRequest { entries, ..sign_of_life() }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), work).await.expect("an answer in time")
}

#[tokio::test]
async fn signs_of_life_pass_entries_that_are_slow() {
    let follower = Box::leak(Box::new(Follower { stuck: true, ..Follower::default() }));
    let (appending, address) = (Appending::new(Channels::new(None)), serve(follower).await);
    let mut slow = Box::pin(appending.send(&address, large()));
    assert!(slow.as_mut().now_or_never().is_none());
    within(async {
        while follower.streams.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..3 {
        within(appending.send(&address, sign_of_life())).await.unwrap();
    }
    assert!(slow.now_or_never().is_none());
}

#[tokio::test]
async fn a_node_that_answers_nothing_gets_only_so_many_messages() {
    let follower = &*Box::leak(Box::new(Follower::default()));
    let (appending, address) = (Appending::new(Channels::new(None)), serve(follower).await);
    within(appending.send(&address, sign_of_life())).await.unwrap();
    follower.silent.store(true, Ordering::SeqCst);

    let mut waiting: Vec<_> =
        (0..MOST_UNANSWERED).map(|_| Box::pin(appending.send(&address, sign_of_life()))).collect();
    for waiting in &mut waiting {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    // Also if nobody waits for an answer any more, none came.
    waiting.truncate(3);
    let refused = within(appending.send(&address, sign_of_life())).await.unwrap_err();
    assert!(refused.contains("not answered"), "{refused}");

    follower.end.notify_one();
    for ended in within(join_all(waiting)).await {
        assert!(ended.unwrap_err().contains("ended"));
    }
    follower.silent.store(false, Ordering::SeqCst);
    within(appending.send(&address, sign_of_life())).await.unwrap();
    assert_eq!(follower.streams.load(Ordering::SeqCst), 2);
}
