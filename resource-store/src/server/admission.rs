//! Requests on their way in: their connection is at work, and the memory of their
//! bodies is counted.
//!
//! A body counts from its first byte until the call is answered. Beyond the bound
//! for all bodies, or a quarter of it for those from one address, the next bytes
//! of a body are refused, and its call ends with `RESOURCE_EXHAUSTED`.

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

/// What the body of one request has taken; dropping it gives it back.
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
            answer.map(|answer| answer.map(|body| Answer { body: Box::pin(body), _call: call }))
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

/// The body of an answer: until its end, the connection is at work.
#[derive(Debug)]
pub(super) struct Answer<B> {
    body: Pin<Box<B>>,
    _call: Option<Call>,
}

impl<B: HttpBody<Data = Bytes>> HttpBody for Answer<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.body.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
}
