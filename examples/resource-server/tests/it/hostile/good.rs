//! The good client, and the time of each of its steps.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use resource_store::{
    GrpcClient, GrpcClientConfig, RequestContext, ResourceClient, ResourceData as _, RpcError,
    backend::{Consistency, WatchEvent},
    demo::{self, v2},
    pb::{ListRequest, WatchListRequest},
};
use tokio::{task::JoinHandle, time::Instant};
use tokio_util::sync::CancellationToken;

use super::Target;

/// Time between two visits.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a step is waited for that is late.
const LATE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Seen {
    times: Vec<Duration>,
    /// The first step that was late or failed.
    wrong: Option<String>,
}

/// Asks again and again, until it is stopped.
pub(super) struct GoodClient {
    seen: Arc<Mutex<Seen>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl GoodClient {
    pub(super) fn start(target: &Target, limit: Duration) -> Self {
        let (seen, stop) = (Arc::default(), CancellationToken::new());
        let steps = Steps { seen: Arc::clone(&seen), limit };
        let lasting = target.client();
        let url = format!("http://{}", target.address);
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut number = 0_u64;
            while !stopped.is_cancelled() {
                // One whose connection was new, and one whose is not.
                let fresh = GrpcClient::new(&GrpcClientConfig::new(&url)).unwrap();
                steps.visit("a new connection", fresh, number).await;
                steps.visit("a lasting connection", lasting.clone(), number).await;
                number += 1;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { seen, stop, task }
    }

    /// Tells the first step that was late or failed.
    pub(super) fn check(&self) -> Result<(), String> {
        self.seen.lock().unwrap().wrong.clone().map_or(Ok(()), Err)
    }

    /// Gives the number of steps, the slowest, and the 99th percentile.
    pub(super) async fn stop(self) -> Result<(usize, Duration, Duration), String> {
        self.stop.cancel();
        self.task.await.unwrap();
        let mut seen = self.seen.lock().unwrap();
        if let Some(wrong) = &seen.wrong {
            return Err(wrong.clone());
        }
        seen.times.sort_unstable();
        let count = seen.times.len();
        Ok((count, seen.times[count - 1], seen.times[count * 99 / 100]))
    }
}

struct Steps {
    seen: Arc<Mutex<Seen>>,
    limit: Duration,
}

impl Steps {
    async fn visit(&self, over: &str, client: GrpcClient, number: u64) {
        let name = format!("good-{}", number % 100);
        let artist = demo::artist(&name).encode();
        let id = artist.id.clone().unwrap();
        let strong = RequestContext::anonymous().with_consistency(Consistency::Strong);
        let Some(stored) = self.step(over, "write", client.write(artist)).await else { return };
        let reading = client.clone().with_context(strong);
        if let Some(read) = self.step(over, "read", reading.read(id)).await {
            assert_eq!(read.uid(), stored.uid());
        }
        let (r#type, tenancy) = (v2::Artist::resource_type(), demo::default_tenancy());
        let list = ListRequest {
            r#type: Some(r#type.clone()),
            tenancy: Some(tenancy.clone()),
            name_prefix: name.clone(),
        };
        self.step(over, "list", client.list(list)).await;
        let watch = WatchListRequest {
            r#type: Some(r#type),
            tenancy: Some(tenancy),
            name_prefix: name.clone(),
        };
        let snapshot = async {
            let mut events = client.watch_list(watch).await?;
            while let Some(event) = events.next().await {
                if event? == WatchEvent::EndOfSnapshot {
                    break;
                }
            }
            Ok(())
        };
        self.step(over, "watch", snapshot).await;
    }

    async fn step<T>(
        &self,
        over: &str,
        what: &str,
        work: impl Future<Output = Result<T, RpcError>>,
    ) -> Option<T> {
        let begun = Instant::now();
        let done = tokio::time::timeout(LATE, work).await;
        let took = begun.elapsed();
        let mut seen = self.seen.lock().unwrap();
        seen.times.push(took);
        let (wrong, given) = match done {
            Ok(Ok(given)) if took <= self.limit => (None, Some(given)),
            Ok(Ok(given)) => (Some("late".to_owned()), Some(given)),
            Ok(Err(error)) => (Some(error.to_string()), None),
            Err(_elapsed) => (Some("no answer".to_owned()), None),
        };
        if let Some(wrong) = wrong {
            seen.wrong.get_or_insert(format!("{what} over {over} after {took:?}: {wrong}"));
        }
        given
    }
}
