//! The requests of one process: a write that is held back or whose answer is lost, and the
//! planted mistakes that can only be made between a program and Consul.

use std::{
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Clock as _, SystemClock, Transport,
    transport::{ExchangeLimits, TransportError},
};
use http::{Method, Request, Response};

use super::child::Plant;

/// What happens to the next write as leader, once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The whole process stands still between its check and the request.
    Pause(Duration),
    /// Consul carries the write out, and its answer never comes.
    LostAnswer,
}

/// A transport to Consul to which mishaps happen. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Wire {
    inner: Arc<dyn Transport>,
    plant: Option<Plant>,
    next: Arc<Mutex<Option<Mishap>>>,
    /// The mishaps that struck and are not in the log yet.
    struck: Arc<Mutex<Vec<Mishap>>>,
    /// When the last good answer to a renewal came.
    renewed: Arc<Mutex<Option<Duration>>>,
}

impl Wire {
    pub(crate) fn new(inner: Arc<dyn Transport>, plant: Option<Plant>) -> Self {
        Self { inner, plant, next: Arc::default(), struck: Arc::default(), renewed: Arc::default() }
    }

    pub(crate) fn strike(&self, mishap: Mishap) {
        *self.next.lock().unwrap() = Some(mishap);
    }

    pub(crate) fn struck(&self) -> Vec<Mishap> {
        std::mem::take(&mut *self.struck.lock().unwrap())
    }

    pub(crate) fn renewed(&self) -> Option<Duration> {
        *self.renewed.lock().unwrap()
    }

    /// Goes on when whoever asked waits no more: what was sent cannot be called back.
    async fn detached(
        &self,
        request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        let this = self.clone();
        let renewal = request.uri().path().starts_with("/v1/session/renew/");
        let exchange = tokio::spawn(async move {
            let answer = this.inner.exchange(request, limits).await;
            if renewal && answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                *this.renewed.lock().unwrap() = Some(SystemClock.monotonic());
            }
            answer
        });
        exchange.await.map_err(|failed| TransportError::Failed { source: failed.into() })?
    }
}

#[async_trait]
impl Transport for Wire {
    async fn exchange(
        &self,
        mut request: Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<Response<Bytes>, TransportError> {
        if !is_write_as_leader(&request) {
            if self.plant == Some(Plant::LateAnswers) {
                let patient = ExchangeLimits::new(Duration::from_mins(1), Duration::from_mins(1));
                return self.detached(request, patient).await;
            }
            return self.inner.exchange(request, limits).await;
        }
        if self.plant == Some(Plant::UnfencedWrites) {
            *request.body_mut() = without_check(request.body());
        }
        let mishap = self.next.lock().unwrap().take();
        self.struck.lock().unwrap().extend(mishap);
        match mishap {
            None => self.inner.exchange(request, limits).await,
            Some(Mishap::Pause(time)) => {
                stand_still(time);
                self.detached(request, limits).await
            }
            Some(Mishap::LostAnswer) => {
                let again = self.plant == Some(Plant::ResentWrites);
                let answer = self.inner.exchange(request.clone(), limits).await;
                if again {
                    return self.inner.exchange(request, limits).await;
                }
                // An exchange that failed by itself has no answer to lose.
                answer?;
                Err(TransportError::Failed { source: "the answer was lost".into() })
            }
        }
    }
}

/// Stops everything in this process: its runtime has one thread.
fn stand_still(time: Duration) {
    let (_kept, never) = mpsc::channel::<()>();
    // Nobody sends anything.
    assert_eq!(never.recv_timeout(time), Err(mpsc::RecvTimeoutError::Timeout));
}

/// Tells a write of [`Leadership::commit`](cts_ha::Leadership::commit) from the acquisition of
/// the lock, which is a transaction as well.
fn is_write_as_leader(request: &Request<Bytes>) -> bool {
    request.method() == Method::PUT
        && request.uri().path() == "/v1/txn"
        && operations(request.body()).iter().any(|op| op["KV"]["Verb"] == "check-session")
}

fn operations(body: &Bytes) -> Vec<serde_json::Value> {
    serde_json::from_slice(body).unwrap_or_default()
}

fn without_check(body: &Bytes) -> Bytes {
    let mut ops = operations(body);
    ops.retain(|op| op["KV"]["Verb"] != "check-session");
    serde_json::to_vec(&ops).unwrap().into()
}
