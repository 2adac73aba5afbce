//! One name in several versions of its group: lists and watches agree.

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt as _, StreamExt as _};
use proptest::{collection, prelude::*};
use resource_store::{
    Parity, Resource, ResourceData, ResourceService,
    backend::{Backend, WatchEvent, memory::MemoryBackend},
    demo::{self, v1, v2},
    pb::{self, Id, Tenancy},
    service::EventStream,
};

use crate::support::*;

/// One change, by the places of name and tenancy in their lists.
#[derive(Debug, Clone)]
enum Step {
    Older(usize, usize),
    Newer(usize, usize),
    Delete(usize, usize),
    Finalize(usize, usize),
    Watch,
}

const NAMES: [&str; 3] = ["ka", "kb", "m"];
const TENANCIES: [(&str, &str); 2] = [("default", "default"), ("foo", "bar")];

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..NAMES.len(), 0..TENANCIES.len());
    prop_oneof![
        3 => place().prop_map(|(n, t)| Step::Older(n, t)),
        3 => place().prop_map(|(n, t)| Step::Newer(n, t)),
        2 => place().prop_map(|(n, t)| Step::Delete(n, t)),
        1 => place().prop_map(|(n, t)| Step::Finalize(n, t)),
        1 => Just(Step::Watch),
    ]
}

fn older(name: &str, tenancy: Tenancy) -> pb::Resource {
    let data = v1::Artist { name: name.to_owned(), ..v1::Artist::default() };
    Resource::new(tenancy, name, data).encode()
}

fn newer(name: &str, tenancy: Tenancy) -> pb::Resource {
    let mut resource = artist(name);
    resource.id.as_mut().unwrap().tenancy = Some(tenancy);
    resource
}

/// A question that a list answers once and a watch goes on answering.
#[derive(Debug, Clone)]
struct Question {
    ty: pb::Type,
    tenancy: Tenancy,
    prefix: &'static str,
}

/// A watch, and what it says there is.
struct Follower {
    question: Question,
    events: EventStream,
    state: BTreeMap<String, Arc<pb::Resource>>,
    complete: bool,
}

fn key(id: &Id) -> String {
    format!("{}/{}/{}", id.partition(), id.namespace(), id.name)
}

impl Follower {
    async fn start(service: &ResourceService, question: &Question) -> Self {
        let request = pb::WatchListRequest {
            r#type: Some(question.ty.clone()),
            tenancy: Some(question.tenancy.clone()),
            name_prefix: question.prefix.to_owned(),
        };
        let events = service.watch_list(&anonymous(), request).await.unwrap();
        Self { question: question.clone(), events, state: BTreeMap::new(), complete: false }
    }

    /// Takes every event that is there.
    fn drain(&mut self) {
        while let Some(Some(event)) = self.events.next().now_or_never() {
            self.take(event.unwrap());
        }
    }

    fn take(&mut self, event: WatchEvent) {
        match event {
            WatchEvent::Upsert(resource) => {
                self.state.insert(key(&id(&resource)), resource);
            }
            WatchEvent::Delete(resource) => {
                let before = self.state.remove(&key(&id(&resource)));
                let told = before.map(|before| (before.uid().to_owned(), before.version.clone()));
                let gone = Some((resource.uid().to_owned(), resource.version.clone()));
                assert_eq!(told, gone, "a delete carries what was last told");
            }
            WatchEvent::EndOfSnapshot => {
                assert!(!self.complete, "one end of the snapshot");
                self.complete = true;
            }
        }
    }

    /// Checks that watch and list agree: now, or once the watch, whose snapshot
    /// is read from a file elsewhere, has told more.
    async fn agrees(&mut self, service: &ResourceService, at_once: bool) {
        let question = self.question.clone();
        self.drain();
        let listed = list(service, &question).await;
        while !(at_once || self.complete && self.told() == listed) {
            let event =
                tokio::time::timeout(std::time::Duration::from_secs(10), self.events.next());
            let event = event.await.expect("the watch tells no more").unwrap().unwrap();
            self.take(event);
        }
        assert!(self.complete);
        assert_eq!(self.told(), listed, "watch and list of {question:?}");
    }

    fn told(&self) -> Vec<Arc<pb::Resource>> {
        self.state.values().cloned().collect()
    }
}

async fn list(service: &ResourceService, question: &Question) -> Vec<Arc<pb::Resource>> {
    let request = pb::ListRequest {
        r#type: Some(question.ty.clone()),
        tenancy: Some(question.tenancy.clone()),
        name_prefix: question.prefix.to_owned(),
    };
    service.list(&anonymous(), request).await.unwrap()
}

async fn change(service: &ResourceService, step: &Step) {
    let tenancy = |t: &usize| Tenancy::new(TENANCIES[*t].0, TENANCIES[*t].1);
    // Marked resources refuse some writes: that is as good an answer as any.
    match step {
        Step::Older(n, t) => drop(service.put(older(NAMES[*n], tenancy(t))).await),
        Step::Newer(n, t) => drop(service.put(newer(NAMES[*n], tenancy(t))).await),
        Step::Delete(n, t) => {
            for target in [older(NAMES[*n], tenancy(t)), newer(NAMES[*n], tenancy(t))] {
                drop(service.remove(&id(&target), "").await);
            }
        }
        Step::Finalize(n, t) => {
            let mut held = newer(NAMES[*n], tenancy(t));
            held.add_finalizer("f");
            drop(service.put(held).await);
        }
        Step::Watch => {}
    }
}

fn questions() -> Vec<Question> {
    let mut all = Vec::new();
    for ty in [v1::Artist::resource_type(), v2::Artist::resource_type()] {
        for (partition, namespace) in [("*", "*"), ("default", "*"), ("foo", "bar")] {
            for prefix in ["", "k"] {
                let tenancy = Tenancy::new(partition, namespace);
                all.push(Question { ty: ty.clone(), tenancy, prefix });
            }
        }
    }
    all
}

async fn watches_agree_with_lists(
    backend: Arc<dyn Backend>,
    parity: Parity,
    steps: &[Step],
    at_once: bool,
) {
    let service = builder_over(backend).parity(parity).build();
    let mut followers = Vec::new();
    for question in questions() {
        followers.push(Follower::start(&service, &question).await);
    }
    for step in steps {
        change(&service, step).await;
        if matches!(step, Step::Watch) {
            for question in questions() {
                followers.push(Follower::start(&service, &question).await);
            }
        }
        for follower in &mut followers {
            follower.agrees(&service, at_once).await;
        }
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// After each of many writes in two versions of a group, every watch has
    /// told exactly what a list tells.
    #[test]
    fn watches_agree_with_lists_at_every_moment(steps in collection::vec(step(), 1..24)) {
        current_thread().block_on(async {
            for parity in [Parity::Corrected, Parity::Upstream] {
                watches_agree_with_lists(Arc::new(MemoryBackend::new()), parity, &steps, true).await;
            }
        });
    }
}

/// The same over a file.
#[cfg(feature = "durable")]
#[test]
fn watches_of_a_file_agree_with_lists() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    use resource_store::backend::durable::{DurableBackend, DurableOptions, SyncPolicy};

    let steps = collection::vec(step(), 60).new_tree(&mut TestRunner::deterministic()).unwrap();
    current_thread().block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let mut options = DurableOptions::default();
        options.sync = SyncPolicy::Never;
        let file = folder.path().join("resources.redb");
        let backend = DurableBackend::open(file, options).await.unwrap();
        let shared = Arc::new(backend.clone());
        watches_agree_with_lists(shared, Parity::Corrected, &steps.current(), false).await;
        backend.close().await.unwrap();
    });
}

/// A write in an older version takes the resource away from those who watch
/// the newer one.
#[tokio::test]
async fn a_watch_is_told_when_another_version_takes_a_resource_away() {
    let service = service();
    let stored = service.put(artist("korn")).await.unwrap();
    let mut newer = service.follow::<v2::Artist>(None).await.unwrap();
    let mut older_ones = service.follow::<v1::Artist>(None).await.unwrap();
    assert_eq!(snapshot(&mut newer).await, [Arc::clone(&stored)]);
    assert_eq!(snapshot(&mut older_ones).await, []);
    let taken = service.put(older("korn", demo::default_tenancy())).await.unwrap();
    assert_eq!(next(&mut newer).await, WatchEvent::Delete(stored));
    assert_eq!(next(&mut older_ones).await, WatchEvent::Upsert(Arc::clone(&taken)));
    let back = service.put(artist("korn")).await.unwrap();
    assert_eq!(next(&mut newer).await, WatchEvent::Upsert(back));
    assert_eq!(next(&mut older_ones).await, WatchEvent::Delete(taken));
}
