//! Clients that create, change and delete without pause.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use resource_store::{Code, GrpcClient, ResourceClient as _, RpcError, pb};
use tokio::{sync::Notify, task::JoinSet};

use super::ledger::{Asked, Known, Ledger, OWNER, label};
use crate::resource_server::ResourceServer;

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
    answered: Notify,
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
    /// Lets clients work on from what is known.
    pub(crate) async fn start(
        server: &ResourceServer,
        ledger: &mut Ledger,
        random: &mut fastrand::Rng,
    ) -> Self {
        let client = server.client();
        let owner = match client.read(label(OWNER, 0).id.unwrap()).await {
            Ok(owner) => owner,
            Err(error) if error.code() == Code::NotFound => {
                client.write(label(OWNER, 0)).await.unwrap()
            }
            Err(error) => panic!("{error}"),
        };
        let progress = Arc::new(Progress::default());
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            let names = (0..NAMES).map(|name| format!("label-{number}-{name}"));
            let worker = Worker {
                client: server.client(),
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
            clients.spawn(worker.work(Arc::clone(&progress)));
        }
        Self { clients, progress }
    }

    pub(crate) async fn wait_for_answers(&self, answers: usize) {
        loop {
            let answered = self.progress.answered.notified();
            if self.progress.answers.load(Ordering::SeqCst) >= answers {
                return;
            }
            answered.await;
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
            progress.answered.notify_waiters();
        }
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
