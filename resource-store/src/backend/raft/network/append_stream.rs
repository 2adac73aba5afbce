//! Streams of entries to other nodes.
//!
//! A call for each message costs more than the message itself, so all messages
//! to a node go through one stream. Answers say what they are for, so that the
//! next message need not wait for the one before, and what nobody waits for any
//! more is not sent. Large messages have a stream of their own: a sign of life
//! need not wait until they came.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures::StreamExt as _;
use prost::Message as _;
use tokio::{
    sync::{
        mpsc,
        oneshot::{self, Sender},
    },
    time::Instant,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, transport::Channel};

use super::{
    acknowledgements::Acknowledgements,
    channels::{self, Channels},
};
use crate::{
    backend::{
        raft::types::{NodeId, Vote, proto},
        store::sync::lock,
    },
    error_chain::error_chain,
    pb::generated::resource_store::peer::v1::{
        self as peer, peer_service_client::PeerServiceClient,
    },
};

/// Upper bound of the messages of a stream that have no answer yet. There is one
/// for each round of reads, and a node does not answer while it waits for its disk.
pub(crate) const MOST_UNANSWERED: usize = 1024;

/// From how many bytes on a message goes through the other stream.
const LARGE: usize = 64 << 10;

/// Streams to each address. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct AppendStreams {
    channels: Channels,
    /// Is told of messages that were acknowledged.
    acknowledgements: Acknowledgements,
    open: Arc<Mutex<HashMap<Place, Stream>>>,
}

/// The destination of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Place {
    address: String,
    large: bool,
}

/// A stream. It ends with the last of these.
#[derive(Debug, Clone)]
struct Stream {
    requests: mpsc::UnboundedSender<peer::AppendRequest>,
    answers: Arc<Mutex<Answers>>,
}

/// Another node's answer, or the reason why there is none.
type Answer = Result<peer::AppendResponse, String>;

/// Callers that wait for answers.
#[derive(Debug, Default)]
struct Answers {
    /// The number of the next message.
    next: u64,
    /// Also those that nobody waits for any more.
    waiting: HashMap<u64, Waiting>,
    /// Why the stream has ended.
    ended: Option<String>,
}

/// A message without an answer.
#[derive(Debug)]
struct Waiting {
    tell: Sender<Answer>,
    /// To whom it goes, and in which term, if it says so.
    route: Option<(Vote, NodeId)>,
    /// No later than when it was sent.
    sent: Instant,
}

impl Waiting {
    /// Whoever takes a message, even if it lacks entries before those in it,
    /// follows the leader, also if nobody waits for the answer any more.
    fn answered(self, answer: peer::AppendResponse, acknowledgements: &Acknowledgements) {
        use peer::append_response::Result::{Accepted, Conflict};
        if let (Some((vote, node)), Some(Accepted(_) | Conflict(_))) = (self.route, &answer.result)
        {
            acknowledgements.note(&vote, node, self.sent);
        }
        self.tell.send(Ok(answer)).unwrap_or_default();
    }
}

impl AppendStreams {
    pub(crate) fn new(channels: Channels, acknowledgements: Acknowledgements) -> Self {
        Self { channels, acknowledgements, open: Arc::default() }
    }

    /// Sends a message and gives the answer, or else why there is none.
    ///
    /// # Cancel safety
    ///
    /// The message may be sent or not, and is answered to nobody.
    pub(crate) async fn send(&self, address: &str, message: peer::AppendRequest) -> Answer {
        let large = !message.entries.is_empty() && message.encoded_len() >= LARGE;
        let stream = self.stream(Place { address: address.to_owned(), large })?;
        let answer = stream.send(message)?;
        answer.await.unwrap_or_else(|_gone| Err("the stream to it has ended".to_owned()))
    }

    /// Ends all streams.
    pub(crate) fn close_all(&self) {
        lock(&self.open).clear();
    }

    /// The stream to a place, which is begun if there is none.
    fn stream(&self, place: Place) -> Result<Stream, String> {
        let mut open = lock(&self.open);
        if let Some(stream) = open.get(&place).filter(|stream| !stream.has_ended()) {
            return Ok(stream.clone());
        }
        open.retain(|_, stream| !stream.has_ended());
        let channel = self.channels.to(&place.address).map_err(|e| error_chain(&e))?;
        let (requests, to_send) = mpsc::unbounded_channel();
        let stream = Stream { requests, answers: Arc::default() };
        let (client, acknowledgements) =
            (channels::peer_client(channel), self.acknowledgements.clone());
        tokio::spawn(run(client, to_send, Arc::clone(&stream.answers), acknowledgements));
        open.insert(place, stream.clone());
        Ok(stream)
    }
}

impl Stream {
    fn has_ended(&self) -> bool {
        self.requests.is_closed() || lock(&self.answers).ended.is_some()
    }

    /// Messages go in the order of their numbers.
    fn send(&self, message: peer::AppendRequest) -> Result<oneshot::Receiver<Answer>, String> {
        let mut answers = lock(&self.answers);
        if let Some(reason) = &answers.ended {
            return Err(reason.clone());
        }
        // Entries are one message at a time, and a place is kept for them.
        let places = MOST_UNANSWERED - usize::from(message.entries.is_empty());
        if answers.waiting.len() >= places {
            return Err(format!("it has not answered the last {places} messages"));
        }
        let number = answers.next;
        answers.next += 1;
        let (tell, answer) = oneshot::channel();
        let vote = proto::vote(message.vote).ok();
        let route = vote.zip(message.route.map(|route| route.to));
        let waiting = Waiting { tell, route, sent: Instant::now() };
        if self.requests.send(peer::AppendRequest { number, ..message }).is_ok() {
            answers.waiting.insert(number, waiting);
        }
        Ok(answer)
    }
}

/// Tells of answers until the stream ends.
async fn run(
    client: PeerServiceClient<Channel>,
    to_send: mpsc::UnboundedReceiver<peer::AppendRequest>,
    answers: Arc<Mutex<Answers>>,
    acknowledgements: Acknowledgements,
) {
    let reason = match tell_answers(client, to_send, &answers, &acknowledgements).await {
        Ok(()) => "it has ended the stream".to_owned(),
        Err(status) => channels::reason(&status),
    };
    let mut answers = lock(&answers);
    for (_, waiting) in answers.waiting.drain() {
        // Nobody may wait for it any more.
        waiting.tell.send(Err(reason.clone())).unwrap_or_default();
    }
    answers.ended = Some(reason);
}

async fn tell_answers(
    mut client: PeerServiceClient<Channel>,
    to_send: mpsc::UnboundedReceiver<peer::AppendRequest>,
    answers: &Arc<Mutex<Answers>>,
    acknowledgements: &Acknowledgements,
) -> Result<(), Status> {
    let wanted = {
        let answers = Arc::clone(answers);
        move |message: &peer::AppendRequest| {
            let mut answers = lock(&answers);
            let waiting = answers.waiting.get(&message.number);
            let given_up = waiting.is_some_and(|waiting| waiting.tell.is_closed());
            if given_up {
                answers.waiting.remove(&message.number);
            }
            std::future::ready(!given_up)
        }
    };
    let requests = UnboundedReceiverStream::new(to_send).filter(wanted);
    let mut stream = client.append(requests).await?.into_inner();
    while let Some(answer) = stream.message().await? {
        let waiting = lock(answers).waiting.remove(&answer.number);
        if let Some(waiting) = waiting {
            waiting.answered(answer, acknowledgements);
        }
    }
    Ok(())
}
