//! A way to Consul on which chosen requests fail, before or after they had their effect.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport,
    testing::TestConsul,
    transport::{ExchangeLimits, TransportError},
};

use crate::scene::ROOT;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It is answered with this status and has no effect.
    Refused(u16),
    /// It has its effect, but the answer is lost.
    AnswerLost,
}

/// Lets the requests with these numbers, counted from 0, fail. Each request waits once, so that
/// others can be between two of them.
#[derive(Debug)]
pub(crate) struct Interrupted {
    inner: Arc<dyn Transport>,
    which: Range<usize>,
    how: How,
    count: AtomicUsize,
}

impl Interrupted {
    /// A way to the double, and a client that takes it.
    pub(crate) fn new(consul: &TestConsul, which: Range<usize>, how: How) -> (Arc<Self>, Client) {
        let way =
            Arc::new(Self { inner: consul.transport(), which, how, count: AtomicUsize::new(0) });
        let mut config = ClientConfig::default();
        config.token = Some(ROOT.into());
        let client = Client::with_transport(config, Arc::clone(&way) as Arc<dyn Transport>);
        (way, client.unwrap())
    }

    /// Requests so far.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Transport for Interrupted {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        tokio::task::yield_now().await;
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if !self.which.contains(&number) {
            return self.inner.exchange(request, limits).await;
        }
        match self.how {
            How::Refused(status) => {
                let mut answer = http::Response::new(Bytes::from_static(b"No cluster leader"));
                *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
                Ok(answer)
            }
            How::AnswerLost => {
                self.inner.exchange(request, limits).await?;
                Err(TransportError::Failed { source: "the connection was cut".into() })
            }
        }
    }
}
