//! Streams of entries to other nodes.
//!
//! A call for each message costs more than the message itself, so all messages
//! to a node go through one stream, and answers say what they are for. They
//! come in any order, because a sign of life need not wait until the entries
//! before it are on the disk. Large messages have a stream of their own, so
//! that it need not wait until they came, either.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, transport::Channel};

use super::channels::{self, Channels};
use crate::{
    backend::store::sync::lock,
    error_chain::error_chain,
    pb::generated::resource_store::peer::v1::{
        self as peer, peer_service_client::PeerServiceClient,
    },
};

/// How many messages of a stream may be without an answer. Entries are sent one
/// message at a time, so more than a few of them means that the node is stuck.
pub(crate) const MOST_UNANSWERED: usize = 64;

/// From how many bytes on a message goes through the other stream.
const LARGE: usize = 64 << 10;

/// Streams to each address. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Appending {
    channels: Channels,
    open: Arc<Mutex<HashMap<Place, Stream>>>,
}

/// Where a stream goes to.
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

/// What another node says, or else why it says nothing.
type Answer = Result<peer::AppendResponse, String>;

/// Who waits for an answer.
#[derive(Debug, Default)]
struct Answers {
    /// The number of the next message.
    next: u64,
    /// Also those that nobody waits for any more.
    waiting: HashMap<u64, oneshot::Sender<Answer>>,
    /// Why the stream has ended.
    ended: Option<String>,
}

impl Appending {
    pub(crate) fn new(channels: Channels) -> Self {
        Self { channels, open: Arc::default() }
    }

    /// Sends a message and gives the answer, or else why there is none.
    ///
    /// # Cancel safety
    ///
    /// What was sent stays so, and is answered to nobody.
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
        if let Some(stream) = open.get(&place)
            && lock(&stream.answers).ended.is_none()
        {
            return Ok(stream.clone());
        }
        let channel = self.channels.to(&place.address).map_err(|e| error_chain(&e))?;
        let (requests, to_send) = mpsc::unbounded_channel();
        let stream = Stream { requests, answers: Arc::default() };
        tokio::spawn(run(channels::peer_client(channel), to_send, Arc::clone(&stream.answers)));
        open.insert(place, stream.clone());
        Ok(stream)
    }
}

impl Stream {
    /// Messages go in the order of their numbers.
    fn send(&self, message: peer::AppendRequest) -> Result<oneshot::Receiver<Answer>, String> {
        let mut answers = lock(&self.answers);
        if let Some(reason) = &answers.ended {
            return Err(reason.clone());
        }
        if answers.waiting.len() >= MOST_UNANSWERED {
            return Err(format!("it has not answered the last {MOST_UNANSWERED} messages"));
        }
        let number = answers.next;
        answers.next += 1;
        let (tell, answer) = oneshot::channel();
        if self.requests.send(peer::AppendRequest { number, ..message }).is_ok() {
            answers.waiting.insert(number, tell);
        }
        Ok(answer)
    }
}

/// Tells of answers until the stream ends.
async fn run(
    client: PeerServiceClient<Channel>,
    to_send: mpsc::UnboundedReceiver<peer::AppendRequest>,
    answers: Arc<Mutex<Answers>>,
) {
    let reason = match tell_answers(client, to_send, &answers).await {
        Ok(()) => "it has ended the stream".to_owned(),
        Err(status) => channels::reason(&status),
    };
    let mut answers = lock(&answers);
    for (_, tell) in answers.waiting.drain() {
        // Nobody may wait for it any more.
        tell.send(Err(reason.clone())).unwrap_or_default();
    }
    answers.ended = Some(reason);
}

async fn tell_answers(
    mut client: PeerServiceClient<Channel>,
    to_send: mpsc::UnboundedReceiver<peer::AppendRequest>,
    answers: &Mutex<Answers>,
) -> Result<(), Status> {
    let mut stream = client.append(UnboundedReceiverStream::new(to_send)).await?.into_inner();
    while let Some(answer) = stream.message().await? {
        let tell = lock(answers).waiting.remove(&answer.number);
        // Nobody may wait for it any more.
        tell.map_or(Ok(()), |tell| tell.send(Ok(answer))).unwrap_or_default();
    }
    Ok(())
}
