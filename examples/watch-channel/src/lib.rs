//! A watcher that feeds a channel: the rest of a program always has the newest instances of
//! a service, and never waits for Consul.

use std::sync::Arc;

use consul_watch::{Watcher, error_chain, query::HealthService, types::ServiceEntry};
use futures::StreamExt as _;
use tokio::sync::watch;

/// What is known of a service.
#[derive(Debug, Clone, Default)]
pub struct Instances {
    /// Those that pass their checks, as they were last seen; none before the first answer.
    pub passing: Arc<Vec<ServiceEntry>>,
    /// Why they may be out of date; `None` while Consul answers.
    pub problem: Option<String>,
}

/// Follows a service. The channel holds the newest instances; dropping every receiver ends the
/// watch, and an error that no retry cures closes the channel with its text as the last
/// `problem`.
pub fn follow(watcher: &Watcher, service: &str) -> watch::Receiver<Instances> {
    let mut changes = watcher.watch(HealthService::new(service).passing());
    let (newest, receiver) = watch::channel(Instances::default());
    tokio::spawn(async move {
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = newest.closed() => return,
            };
            match change {
                Some(Ok(snapshot)) => {
                    newest.send_replace(Instances { passing: snapshot.data, problem: None });
                }
                Some(Err(error)) => {
                    let problem = Some(error_chain(error.cause()).to_string());
                    newest.send_modify(|known| known.problem = problem);
                    if error.is_fatal() {
                        return;
                    }
                }
                None => return,
            }
        }
    });
    receiver
}
