//! What the tests do with a node besides starting and ending it.

use std::{process::ExitStatus, sync::Arc};

use nix::sys::signal::Signal;
use resource_store::{backend::Consistency, testing::history::LoadNode};
use tokio::time::timeout;

use super::node::{Node, START_LIMIT};

impl Node {
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// Kills it, without forgetting it: [`Self::gone`] waits for its end.
    pub(crate) fn strike(&self) {
        self.signal(Signal::SIGKILL);
    }

    /// Waits until it is gone, which was killed or ends by itself. Gives how it
    /// ended, if it was not gone before.
    pub(crate) async fn gone(&mut self) -> Option<ExitStatus> {
        let mut process = self.process.take()?;
        Some(timeout(START_LIMIT, process.wait()).await.unwrap().unwrap())
    }

    /// Clients of their own for a load.
    pub(crate) fn for_load(&self) -> LoadNode {
        LoadNode {
            eventual: Arc::new(self.client(Consistency::Eventual)),
            strong: Arc::new(self.client(Consistency::Strong)),
        }
    }
}
