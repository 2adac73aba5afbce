//! Clients that create, change and delete without pause.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use resource_store::{Code, GrpcClient, ResourceClient as _, RpcError, backend::Consistency, pb};
use tokio::{sync::Notify, task::JoinSet};

use super::ledger::{Asked, Known, Ledger, OWNER, label};
use crate::store_cluster::node::Node;

const CLIENTS: u64 = 6;
const NAMES: u64 = 4;

/// Clients at work.
pub(crate) struct Load {
    clients: JoinSet<Vec<Report>>,
    progress: Arc<Progress>,
}

#[derive(Default)]
struct Progress {
    answers: AtomicUsize,
    /// How many clients are at work.
    working: AtomicUsize,
    changed: Notify,
    over: AtomicBool,
}

/// What a client knows of a name in the end, and what it saw on the way.
struct Report {
    name: String,
    known: Known,
    seen: Vec<pb::Resource>,
    acknowledged: usize,
}

impl Load {
    /// Lets clients of each server work on from what is known.
    pub(crate) async fn start(
        servers: &[Node],
        ledger: &mut Ledger,
        random: &mut fastrand::Rng,
    ) -> Self {
        let client = servers[0].client(Consistency::Strong);
        let owner = match client.read(label(OWNER, 0).id.unwrap()).await {
            Ok(owner) => owner,
            Err(error) if error.code() == Code::NotFound => {
                client.write(label(OWNER, 0)).await.unwrap()
            }
            Err(error) => panic!("{error}"),
        };
        let progress = Arc::new(Progress::default());
        let mut clients = JoinSet::new();
        for (number, server) in (0..CLIENTS).zip(servers.iter().cycle()) {
            let names = (0..NAMES).map(|name| format!("label-{number}-{name}"));
            let worker = Worker {
                client: server.client(Consistency::Strong),
                owner: owner.id.clone().unwrap(),
                names: names
                    .map(|name| Report {
                        known: ledger.names.remove(&name).unwrap_or_default(),
                        name,
                        seen: Vec::new(),
                        acknowledged: 0,
                    })
                    .collect(),
                // Numbers that no other client uses.
                next: ledger.next + number,
                random: random.fork(),
            };
            progress.working.fetch_add(1, Ordering::SeqCst);
            clients.spawn(worker.work(Arc::clone(&progress)));
        }
        Self { clients, progress }
    }

    /// Waits for so many, or until no client is left: a client ends when it
    /// cannot know what became of a change, as when the leader changed.
    pub(crate) async fn wait_for_answers(&self, answers: usize) {
        let Progress { answers: so_far, working, changed, .. } = &*self.progress;
        loop {
            let next = changed.notified();
            if so_far.load(Ordering::SeqCst) >= answers || working.load(Ordering::SeqCst) == 0 {
                return;
            }
            next.await;
        }
    }

    /// Notes what the clients know, once the server is gone.
    pub(crate) async fn end(mut self, ledger: &mut Ledger) {
        self.progress.over.store(true, Ordering::SeqCst);
        while let Some(reports) = self.clients.join_next().await {
            for report in reports.unwrap() {
                ledger.acknowledged += report.acknowledged;
                for resource in &report.seen {
                    let number = ledger.saw(resource).unwrap();
                    ledger.next = ledger.next.max(number + 1);
                }
                if let Some(Asked::Write(number)) = report.known.asked {
                    ledger.next = ledger.next.max(number + 1);
                }
                ledger.names.insert(report.name, report.known);
            }
        }
    }
}

struct Worker {
    client: GrpcClient,
    owner: pb::Id,
    names: Vec<Report>,
    next: u64,
    random: fastrand::Rng,
}

impl Worker {
    async fn work(mut self, progress: Arc<Progress>) -> Vec<Report> {
        while !progress.over.load(Ordering::SeqCst) {
            let name = self.random.usize(..self.names.len());
            if let Err(error) = self.change(name).await {
                let gone =
                    matches!(error.code(), Code::Unavailable | Code::Cancelled | Code::Unknown)
                        || error.code() == Code::Internal;
                assert!(gone, "{error:?}");
                break;
            }
            progress.answers.fetch_add(1, Ordering::SeqCst);
            progress.changed.notify_waiters();
        }
        progress.working.fetch_sub(1, Ordering::SeqCst);
        progress.changed.notify_waiters();
        self.names
    }

    /// Changes a name as one that knows what is stored, and notes the answer.
    async fn change(&mut self, name: usize) -> Result<(), RpcError> {
        let report = &mut self.names[name];
        let known = &mut report.known;
        if let Some(stored) = known.resource.clone().filter(|_| self.random.u8(..4) == 0) {
            known.asked = Some(Asked::Delete);
            let request = pb::DeleteRequest { id: stored.id, version: stored.version };
            self.client.delete(request).await?;
            (known.state, known.resource) = (None, None);
        } else {
            let number = self.next;
            self.next += CLIENTS;
            known.asked = Some(Asked::Write(number));
            let whole = label(&report.name, number);
            let resource = match known.resource.clone() {
                Some(stored) => {
                    pb::Resource { data: whole.data, metadata: whole.metadata, ..stored }
                }
                None => pb::Resource { owner: Some(self.owner.clone()), ..whole },
            };
            let stored = self.client.write(resource).await?;
            report.seen.push(stored.clone());
            known.state = Some((number, stored.version.clone()));
            known.resource = Some(stored);
        }
        known.asked = None;
        report.acknowledged += 1;
        Ok(())
    }
}
