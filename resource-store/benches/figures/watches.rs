//! What a write costs among many watches that it does not concern.

use std::{sync::Arc, time::Duration};

use futures::StreamExt as _;
use resource_store::{
    Registry, RequestContext, ResourceData as _, ResourceService,
    backend::{WatchEvent, memory::MemoryBackend},
    demo::{self, v2::Artist},
    pb,
    service::EventStream,
};
use tokio::{task::JoinSet, time::Instant};

use super::{percentiles, print};

/// Number of watches of other names.
const OTHERS: usize = 40_000;
const WRITES: usize = 100;
const ROUNDS: usize = 5;

/// Follows the artists with such a name; the end of the snapshot is taken.
async fn follow(service: &ResourceService, name_prefix: String) -> EventStream {
    let request = pb::WatchListRequest {
        r#type: Some(Artist::resource_type()),
        tenancy: Some(demo::default_tenancy()),
        name_prefix,
    };
    let mut watch = service.watch_list(&RequestContext::anonymous(), request).await.unwrap();
    while watch.next().await.unwrap().unwrap() != WatchEvent::EndOfSnapshot {}
    watch
}

/// Measures from a write to the event of the one watch that it concerns.
async fn measure(service: &ResourceService, mine: &mut EventStream, times: &mut Vec<Duration>) {
    for _ in 0..WRITES {
        let started = Instant::now();
        let request = pb::WriteRequest { resource: Some(demo::artist("mine").encode()) };
        service.write(&RequestContext::anonymous(), request).await.unwrap();
        mine.next().await.unwrap().unwrap();
        times.push(started.elapsed());
        // What else the write led to is not the next one's wait.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Prints the time from a write to its watcher, alone and among many watches of
/// other names, in turns.
pub(super) async fn figures() {
    let mut registry = Registry::new().unwrap();
    demo::register(&mut registry).unwrap();
    let service = ResourceService::builder(registry, Arc::new(MemoryBackend::new())).build();
    let (mut alone, mut among) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let mut mine = follow(&service, "mine".to_owned()).await;
        measure(&service, &mut mine, &mut alone).await;
        let mut others = JoinSet::new();
        for number in 0..OTHERS {
            let mut watch = follow(&service, format!("other-{number}")).await;
            others.spawn(async move { while watch.next().await.is_some() {} });
        }
        // So that all of them wait.
        tokio::time::sleep(Duration::from_millis(200)).await;
        measure(&service, &mut mine, &mut among).await;
        others.shutdown().await;
    }
    let [mean_alone, mean_among] =
        [&alone, &among].map(|times: &Vec<Duration>| times.iter().sum::<Duration>().as_secs_f64());
    print("write to its watcher, alone", &percentiles(alone));
    print(&format!("write to its watcher, among {OTHERS} others"), &percentiles(among));
    print("ratio of the means", &format!("{:.2}", mean_among / mean_alone));
}
