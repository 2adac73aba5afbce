//! Requests on their way in: their connection is at work, and the memory of their
//! bodies is counted.
//!
//! A body counts from its first byte until the call is answered. Beyond the bound
//! for all bodies, or a quarter of it for those from one address, the next bytes
//! of a body are refused, and its call ends with `RESOURCE_EXHAUSTED`.
//!
//! The messages of answers go out in frames that need one system call together.

use std::{
    collections::HashMap,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::{
    Status,
    body::Body,
    codegen::{Service, http},
};

use super::accept::{Call, ConnectionInfo, block};

/// Part of the bound that those from one address may take: a quarter.
const SHARE: usize = 4;

/// Length of the frames of a short message, in bytes. The HTTP/2 library copies frames
/// of less than 1,024 bytes into its buffer, and sends head, message and trailers of an
/// answer with one system call; after a longer one it sends what it has, so that an
/// answer takes three, and wakes its client as often.
const PIECE: usize = 1023;
/// Length of a message, in bytes, from which on the system calls matter less than the
/// number of frames.
const SHORT: usize = 8 * 1024;

/// The memory that the bodies of requests take.
#[derive(Debug)]
pub(super) struct BodyMemory {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: usize,
    by_address: HashMap<Option<IpAddr>, usize>,
}

impl BodyMemory {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, address: Option<IpAddr>, bytes: usize) -> bool {
        let mut taken = self.taken();
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        let fits = taken.total.saturating_add(bytes) <= self.most
            && of_address.saturating_add(bytes) <= self.most / SHARE;
        if fits && bytes > 0 {
            taken.total += bytes;
            *taken.by_address.entry(address).or_default() += bytes;
        }
        fits
    }

    fn give_back(&self, address: Option<IpAddr>, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let mut taken = self.taken();
        taken.total -= bytes;
        if let Some(count) = taken.by_address.get_mut(&address) {
            *count -= bytes;
            if *count == 0 {
                taken.by_address.remove(&address);
            }
        }
    }
}

/// The bytes that the body of one request has taken; dropping it gives them back.
#[derive(Debug)]
struct Held {
    memory: Arc<BodyMemory>,
    address: Option<IpAddr>,
    bytes: Mutex<usize>,
}

impl Held {
    fn take(&self, bytes: usize) -> Result<(), Status> {
        if !self.memory.take(self.address, bytes) {
            return Err(Status::resource_exhausted(
                "the bodies of requests take as much memory as the server allows; try again later",
            ));
        }
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) += bytes;
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let bytes = *self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        self.memory.give_back(self.address, bytes);
    }
}

/// Lets requests in.
#[derive(Debug, Clone)]
pub(super) struct Admission<S> {
    pub(super) inner: S,
    pub(super) memory: Arc<BodyMemory>,
}

impl<S, B> Service<http::Request<Body>> for Admission<S>
where
    S: Service<http::Request<Body>, Response = http::Response<B>>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
{
    type Response = http::Response<Answer<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let in_pieces = request.version() == http::Version::HTTP_2;
        let info = request.extensions_mut().remove::<ConnectionInfo>();
        let call = info.as_ref().map(|info| info.connection.call());
        let address = info.as_ref().and_then(|info| info.tcp.remote_addr());
        if let Some(info) = info {
            request.extensions_mut().insert(info.tcp);
        }
        let held = Arc::new(Held {
            memory: Arc::clone(&self.memory),
            address: address.map(|address| block(address.ip())),
            bytes: Mutex::default(),
        });
        let counted = Arc::clone(&held);
        let request = request.map(|body| Body::new(Counted { body, held: counted }));
        let answered = self.inner.call(request);
        Box::pin(async move {
            let answer = answered.await;
            drop(held);
            answer.map(|answer| {
                let rest = Bytes::new();
                answer.map(|body| Answer { body: Box::pin(body), in_pieces, rest, _call: call })
            })
        })
    }
}

/// The body of a request, whose bytes count.
struct Counted {
    body: Body,
    held: Arc<Held>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else {
            return Poll::Ready(None);
        };
        let frame = frame.and_then(|frame| {
            self.held.take(frame.data_ref().map_or(0, Bytes::len))?;
            Ok(frame)
        });
        Poll::Ready(Some(frame))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. Until its end, the connection is at work.
#[derive(Debug)]
pub(super) struct Answer<B> {
    body: Pin<Box<B>>,
    /// Short messages are sent as several frames.
    in_pieces: bool,
    /// Remainder of such a message.
    rest: Bytes,
    _call: Option<Call>,
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.rest.is_empty() {
            let Some(frame) = ready!(self.body.as_mut().poll_frame(cx)?) else {
                return Poll::Ready(None);
            };
            match frame.into_data() {
                Ok(data) if self.in_pieces && data.len() <= SHORT => self.rest = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut all = SizeHint::new();
        if let Some(upper) = hint.upper() {
            all.set_upper(upper.saturating_add(rest));
        }
        all.set_lower(hint.lower().saturating_add(rest));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_in_all_and_for_each_address() {
        let memory = BodyMemory::new(400);
        let held = |last: u8| Held {
            memory: Arc::clone(&memory),
            address: Some(IpAddr::from([10, 0, 0, last])),
            bytes: Mutex::default(),
        };
        let [first, second, third, fourth, fifth] = [1, 2, 3, 4, 5].map(held);
        first.take(60).unwrap();
        first.take(40).unwrap();
        assert!(first.take(1).is_err(), "a quarter is the most for one address");
        for other in [&second, &third] {
            other.take(100).unwrap();
        }
        fourth.take(99).unwrap();
        assert!(fifth.take(2).is_err(), "the whole is the most for all");
        fifth.take(1).unwrap();
        drop(first);
        fifth.take(50).unwrap();
        drop((second, third, fourth, fifth));
        let taken = memory.taken();
        assert!(taken.total == 0 && taken.by_address.is_empty(), "{taken:?}");
    }

    /// A body of one message, and then trailers.
    #[derive(Debug)]
    struct Message(Option<Bytes>, bool);

    impl HttpBody for Message {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let trailers = || Frame::trailers(http::HeaderMap::new());
            let next = self.0.take().map(Frame::data);
            let next = next.or_else(|| std::mem::take(&mut self.1).then(trailers));
            Poll::Ready(next.map(Ok))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.as_ref().map_or(0, Bytes::len) as u64)
        }
    }

    /// Gives the lengths of the frames of data, and then whether trailers follow.
    fn frames(length: usize, in_pieces: bool) -> (Vec<usize>, bool) {
        let message: Bytes = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let body = Box::pin(Message(Some(message.clone()), true));
        let mut answer = Answer { body, in_pieces, rest: Bytes::new(), _call: None };
        let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        loop {
            let left = answer.size_hint().exact().unwrap();
            assert_eq!(left, (length - bytes.len()) as u64);
            let Poll::Ready(frame) = Pin::new(&mut answer).poll_frame(&mut cx) else { panic!() };
            match frame.unwrap().unwrap().into_data() {
                Ok(data) => {
                    lengths.push(data.len());
                    bytes.extend_from_slice(&data);
                }
                Err(trailers) => {
                    assert!(bytes == message, "bytes are lost or in another order");
                    return (lengths, trailers.is_trailers());
                }
            }
        }
    }

    #[test]
    fn short_messages_are_sent_in_pieces_that_need_no_call_of_their_own() {
        assert_eq!(frames(0, true), (vec![0], true));
        assert_eq!(frames(PIECE, true), (vec![PIECE], true));
        assert_eq!(frames(PIECE + 1, true), (vec![PIECE, 1], true));
        assert_eq!(frames(SHORT, true).0.len(), SHORT.div_ceil(PIECE));
        assert_eq!(frames(SHORT + 1, true), (vec![SHORT + 1], true));
        assert_eq!(frames(5000, false), (vec![5000], true), "HTTP/1 has no frames");
    }
}
