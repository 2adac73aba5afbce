//! A server that was just started may answer, for a moment, as if everything were gone: it leads, and
//! has not yet replayed its log. Consul 1.8.7 does. Only a consistent read waits until it has.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport, Watcher,
    query::HealthService,
    testing::TestConsul,
    transport::{ExchangeLimits, TransportError},
    types::HealthStatus,
};
use tokio::{sync::Notify, time::timeout};

/// The way to a server that crashes and comes back.
#[derive(Debug)]
struct Restarting {
    to: Arc<dyn Transport>,
    replaying: AtomicBool,
    crash: Notify,
    /// Queries of the reads that came while it replayed.
    reads: Mutex<Vec<String>>,
}

#[async_trait]
impl Transport for Restarting {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        let query = request.uri().query().unwrap_or_default().to_owned();
        if self.replaying.load(Ordering::SeqCst) {
            let consistent = query.split('&').any(|part| part.starts_with("consistent"));
            self.reads.lock().unwrap().push(query);
            if !consistent {
                let mut answer = http::Response::new(Bytes::from_static(b"[]"));
                answer.headers_mut().insert("X-Consul-Index", 1.into());
                return Ok(answer);
            }
        }
        tokio::select! {
            biased;
            () = self.crash.notified() => {
                Err(TransportError::Failed { source: "the server was killed".into() })
            }
            answer = self.to.exchange(request, limits) => answer,
        }
    }
}

fn restarting(consul: &TestConsul) -> (Arc<Restarting>, Client) {
    let way = Arc::new(Restarting {
        to: consul.transport(),
        replaying: AtomicBool::new(false),
        crash: Notify::new(),
        reads: Mutex::default(),
    });
    let to: Arc<dyn Transport> = Arc::clone(&way) as Arc<dyn Transport>;
    (way, Client::with_transport(ClientConfig::default(), to).unwrap())
}

#[tokio::test(start_paused = true)]
async fn what_a_server_says_before_it_has_caught_up_is_not_shown() {
    for max_stale in [Duration::ZERO, Duration::from_secs(5)] {
        a_crash_is_no_change(max_stale).await;
    }
}

/// The first read of a watch may reach a server that has just been started, or a follower that
/// lags behind.
#[tokio::test(start_paused = true)]
async fn the_first_read_is_confirmed() {
    for max_stale in [Duration::ZERO, Duration::from_secs(5)] {
        let consul = TestConsul::new();
        consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
        let (way, client) = restarting(&consul);
        way.replaying.store(true, Ordering::SeqCst);
        let watcher = Watcher::builder(client).max_stale(max_stale).build();
        let mut watch = watcher.watch(HealthService::new("web"));
        let first = timeout(Duration::from_secs(30), watch.changed()).await.unwrap().unwrap();
        assert_eq!(first.data.len(), 1, "{:?}", way.reads.lock().unwrap());
    }
}

async fn a_crash_is_no_change(max_stale: Duration) {
    let consul = TestConsul::new();
    consul.set_instance("web", "web-1", "10.0.0.1", 80, HealthStatus::Passing);
    let (way, client) = restarting(&consul);
    let watcher = Watcher::builder(client).max_stale(max_stale).build();
    let mut watch = watcher.watch(HealthService::new("web"));
    assert_eq!(watch.changed().await.unwrap().data.len(), 1);
    // It blocks by now.
    tokio::time::sleep(Duration::from_secs(1)).await;

    way.replaying.store(true, Ordering::SeqCst);
    way.crash.notify_one();
    assert!(watch.changed().await.is_err(), "the crash is told");
    let said = timeout(Duration::from_secs(30), watch.changed()).await;
    assert!(said.is_err(), "nothing has changed, but the watch says {said:?}");
    let reads = std::mem::take(&mut *way.reads.lock().unwrap());
    assert!(reads.first().is_some_and(|query| query.contains("consistent")), "{reads:?}");

    // Later reads are plain again, and tell what changes.
    way.replaying.store(false, Ordering::SeqCst);
    consul.set_instance("web", "web-2", "10.0.0.2", 80, HealthStatus::Passing);
    assert_eq!(watch.changed().await.unwrap().data.len(), 2);
}
