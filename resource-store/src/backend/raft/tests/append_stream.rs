//! Streams of entries to a node that answers as a test wants.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    future::join_all,
    stream::{self, BoxStream},
};
use tokio::{net::TcpListener, sync::Notify, time::timeout};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

use crate::{
    backend::raft::network::{
        acknowledgements::Acknowledgements,
        append_stream::{AppendStreams, MOST_UNANSWERED},
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
    /// Answers three messages at a time.
    shuffles: bool,
    /// Reads all, and answers nothing.
    silent: AtomicBool,
    /// Ends the streams there are.
    end: Notify,
    streams: AtomicUsize,
    messages: AtomicUsize,
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
            let held = stream::pending().chain(requests.map(|_| unreachable!()));
            return Ok(Response::new(held.boxed()));
        }
        if self.shuffles {
            return Ok(Response::new(shuffled(requests).flatten().boxed()));
        }
        let follower = *self;
        let end = async { follower.end.notified().await };
        let answers = requests.filter_map(move |request| async move {
            let number = request.ok()?.number;
            follower.messages.fetch_add(1, Ordering::SeqCst);
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

    type BackupStream = BoxStream<'static, Result<peer::SnapshotPart, Status>>;

    async fn status(
        &self,
        _: Request<peer::StatusRequest>,
    ) -> Result<Response<peer::StatusResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn move_leader(
        &self,
        _: Request<peer::MoveLeaderRequest>,
    ) -> Result<Response<peer::MoveLeaderResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn campaign(
        &self,
        _: Request<peer::CampaignRequest>,
    ) -> Result<Response<peer::CampaignResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn backup(
        &self,
        _: Request<peer::BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        Err(Status::unimplemented(""))
    }
}

/// Answers the last message first, each with what it had committed as the term
/// of a vote, and then says things that nobody asked for.
fn shuffled(
    requests: Streaming<peer::AppendRequest>,
) -> impl Stream<Item = impl Stream<Item = Result<peer::AppendResponse, Status>>> {
    requests.map(Result::unwrap).chunks(3).map(|messages| {
        let answer = |number, term| {
            let vote = peer::Vote { term, node: 7, committed: true };
            let result = Some(append_response::Result::Newer(vote));
            peer::AppendResponse { number, result }
        };
        let term = |message: &peer::AppendRequest| message.committed.unwrap().index;
        let answers = messages.iter().rev().map(|message| answer(message.number, term(message)));
        let mut answers: Vec<_> = answers.collect();
        answers.push(answer(messages[0].number, 99));
        answers.push(answer(u64::MAX, 99));
        stream::iter(answers.into_iter().map(Ok))
    })
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
    let (appending, address) = (
        AppendStreams::new(Channels::new(None), Acknowledgements::default()),
        serve(follower).await,
    );
    let mut slow = Box::pin(appending.send(&address, large()));
    assert!(slow.as_mut().now_or_never().is_none());
    within(async {
        while follower.streams.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // More than it takes until the entries have filled what they may of the
    // connection.
    for _ in 0..1000 {
        within(appending.send(&address, sign_of_life())).await.unwrap();
    }
    assert!(slow.now_or_never().is_none());
}

#[tokio::test]
async fn answers_in_any_order_reach_who_asked() {
    let follower = Box::leak(Box::new(Follower { shuffles: true, ..Follower::default() }));
    let (appending, address) = (
        AppendStreams::new(Channels::new(None), Acknowledgements::default()),
        serve(follower).await,
    );
    for round in 0..20 {
        let ask = async |index| {
            let committed = Some(peer::LogId { term: 1, leader: 7, index });
            let message = peer::AppendRequest { committed, ..sign_of_life() };
            let answer = appending.send(&address, message).await.unwrap();
            let vote = peer::Vote { term: index, node: 7, committed: true };
            assert_eq!(answer.result, Some(append_response::Result::Newer(vote)));
        };
        within(async { tokio::join!(ask(round), ask(round + 100), ask(round + 200)) }).await;
    }
}

/// As when a call that took too long is made again.
#[tokio::test]
async fn what_nobody_waits_for_is_not_sent() {
    let follower = &*Box::leak(Box::new(Follower::default()));
    let (appending, address) = (
        AppendStreams::new(Channels::new(None), Acknowledgements::default()),
        serve(follower).await,
    );
    for _ in 0..100 {
        // Nothing goes out before the task of the stream has its turn.
        assert!(appending.send(&address, sign_of_life()).now_or_never().is_none());
    }
    within(appending.send(&address, sign_of_life())).await.unwrap();
    assert_eq!(follower.messages.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_node_that_answers_nothing_gets_only_so_many_messages() {
    let follower = &*Box::leak(Box::new(Follower::default()));
    let (appending, address) = (
        AppendStreams::new(Channels::new(None), Acknowledgements::default()),
        serve(follower).await,
    );
    within(appending.send(&address, sign_of_life())).await.unwrap();
    follower.silent.store(true, Ordering::SeqCst);

    let mut waiting: Vec<_> =
        (1..MOST_UNANSWERED).map(|_| Box::pin(appending.send(&address, sign_of_life()))).collect();
    for waiting in &mut waiting {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    let refused = within(appending.send(&address, sign_of_life())).await.unwrap_err();
    assert!(refused.contains("not answered"), "{refused}");
    // There is room for entries.
    let entries = vec![peer::Entry::default()];
    let mut entries =
        Box::pin(appending.send(&address, peer::AppendRequest { entries, ..sign_of_life() }));
    assert!(entries.as_mut().now_or_never().is_none());

    follower.end.notify_one();
    for ended in within(join_all(waiting)).await {
        assert!(ended.unwrap_err().contains("ended"));
    }
    follower.silent.store(false, Ordering::SeqCst);
    within(appending.send(&address, sign_of_life())).await.unwrap();
    assert_eq!(follower.streams.load(Ordering::SeqCst), 2);
}
