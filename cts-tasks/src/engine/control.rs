//! What can be asked of a running engine.

use std::sync::{Arc, MutexGuard, PoisonError};

use tokio::sync::{mpsc, oneshot};

use super::{
    Engine, FirstRun, Inspection, Shared,
    command::{Command, Order, Reply},
};
use crate::{Error, Result, Task, TaskName};

/// How many orders may wait; the supervisor takes them at once.
const ORDERS: usize = 64;

/// Changes of the tasks of a running engine.
///
/// What was begun is done to its end, also if the future is dropped. While the
/// engine does not run, each of these fails with [`Error::NotRunning`].
impl Engine {
    /// Adds a task: everything it needs is read from Consul once, within a
    /// minute, and its driver prepared. With [`FirstRun::Now`] it is also run.
    /// After an error nothing was added.
    ///
    /// # Errors
    ///
    /// [`Error::TaskExists`] if the name is taken; else Consul's or the driver's.
    pub async fn create(&self, task: Task, first_run: FirstRun) -> Result<()> {
        let task = Box::new(task);
        self.order(|reply| Order::Create { task, first_run, reply }).await
    }

    /// Says what the first run of a task would change that does not exist. The
    /// task is not kept.
    ///
    /// # Errors
    ///
    /// As [`Engine::create`].
    pub async fn inspect_new(&self, task: Task) -> Result<Inspection> {
        let task = Box::new(task);
        self.order(|reply| Order::InspectNew { task, reply }).await
    }

    /// Marks a task as deleted: it is not run again, and as soon as a run under
    /// way has ended it is gone, with its events. Its infrastructure stays. A
    /// task that is marked already stays marked.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`].
    pub async fn delete(&self, name: &TaskName) -> Result<()> {
        self.order(|reply| Order::Delete { name: name.clone(), reply }).await
    }

    /// Enables or disables a task. One that is enabled is prepared anew, and
    /// with [`FirstRun::Now`] run; after an error it is as it was.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`]; [`Error::TaskActive`] while it runs; else the driver's.
    pub async fn set_enabled(
        &self,
        name: &TaskName,
        enabled: bool,
        first_run: FirstRun,
    ) -> Result<()> {
        self.tell(name, |reply| Command::SetEnabled { enabled, first_run, reply }).await
    }

    /// Says what a run would change if the task were enabled, or disabled,
    /// which is nothing. The task stays as it is.
    ///
    /// # Errors
    ///
    /// As [`Engine::set_enabled`].
    pub async fn inspect_enabled(&self, name: &TaskName, enabled: bool) -> Result<Inspection> {
        self.tell(name, |reply| Command::Inspect { enabled, reply }).await
    }

    /// Runs a task now, whether or not anything changed, and without a second try.
    ///
    /// # Errors
    ///
    /// As [`Engine::set_enabled`], and [`Error::TaskDisabled`].
    pub async fn run_now(&self, name: &TaskName) -> Result<()> {
        self.tell(name, |reply| Command::Run { reply }).await
    }

    async fn tell<T>(
        &self,
        name: &TaskName,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T> {
        self.order(|reply| Order::ToWorker { name: name.clone(), command: command(reply) }).await
    }

    async fn order<T>(&self, order: impl FnOnce(Reply<T>) -> Order) -> Result<T> {
        let supervisor = self.shared.orders().clone().ok_or(Error::NotRunning)?;
        let (reply, answer) = oneshot::channel();
        supervisor.send(order(reply)).await.map_err(|_ended| Error::NotRunning)?;
        answer.await.unwrap_or(Err(Error::NotRunning))
    }
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Option<mpsc::Sender<Order>>> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the way to the supervisor open while the engine runs.
pub(crate) struct Open {
    shared: Arc<Shared>,
}

impl Open {
    pub(crate) fn new(shared: &Arc<Shared>) -> (Self, mpsc::Receiver<Order>) {
        let (sender, orders) = mpsc::channel(ORDERS);
        *shared.orders() = Some(sender);
        (Self { shared: Arc::clone(shared) }, orders)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        *self.shared.orders() = None;
    }
}
