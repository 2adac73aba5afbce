//! What can be asked of a running engine.

use std::{
    collections::BTreeMap,
    sync::{Arc, MutexGuard, PoisonError},
};

use tokio::sync::{mpsc, oneshot};

use super::{
    Engine, FirstRun, Inspection, Shared,
    command::{Command, Order, Reply},
};
use crate::{Error, Plan, PlanId, Result, Task, TaskName};

/// Capacity of the supervisor's order queue; it takes orders at once.
const ORDERS: usize = 64;

/// Changes of the tasks of a running engine.
///
/// What was begun is done to its end, also if the future is dropped. While the
/// engine does not run, each of these fails with [`Error::NotRunning`].
impl Engine {
    /// Waits until every task of the configuration or the store has had its
    /// first run, and all are watched.
    ///
    /// # Errors
    ///
    /// [`Error::NotRunning`] when the engine does not run, or ends before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn watching(&self) -> Result<()> {
        let mut watching = self.shared.watching.subscribe();
        loop {
            if *watching.borrow_and_update() {
                return Ok(());
            }
            if self.shared.orders().is_none() || watching.changed().await.is_err() {
                return Err(Error::NotRunning);
            }
        }
    }

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

    /// Marks a task as deleted, also in the store: it is not run again, and as soon as a run under
    /// way has ended it is gone, with its events. A task that is marked already
    /// stays marked.
    ///
    /// Its infrastructure stays, unless the task has
    /// [`Task::destroy_on_delete`]: then it is disabled and its infrastructure
    /// destroyed before it goes. If that fails, the task stays, disabled and
    /// with an event that says why, and can be deleted again.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`].
    pub async fn delete(&self, name: &TaskName) -> Result<()> {
        self.order(|reply| Order::Delete { name: name.clone(), spare: false, reply }).await
    }

    /// As [`Engine::delete`], but the infrastructure stays in any case.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`].
    pub async fn forget(&self, name: &TaskName) -> Result<()> {
        self.order(|reply| Order::Delete { name: name.clone(), spare: true, reply }).await
    }

    /// Gives a task another definition, as soon as nothing of it runs, and
    /// runs it. Its events stay; a plan that waits is discarded.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`]; Consul's or the driver's, after which the task is
    /// as it was.
    pub async fn replace(&self, task: Task) -> Result<()> {
        let (name, factory) = (task.name.clone(), Arc::clone(&self.factory));
        let task = Box::new(task);
        self.tell(&name, |reply| Command::Replace { task, factory, reply }).await
    }

    /// Enables or disables a task. One that is enabled is prepared again, and
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

    /// The plans that wait for approval, by task.
    pub fn waiting_plans(&self) -> BTreeMap<TaskName, Plan> {
        self.state(|state| state.plans.clone())
    }

    /// The plan of one task that waits for approval, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchTask`].
    pub fn waiting_plan(&self, name: &TaskName) -> Result<Option<Plan>> {
        self.state(|state| {
            let known = state.tasks.iter().any(|task| task.name == *name);
            known.then(|| state.plans.get(name).cloned())
        })
        .ok_or_else(|| Error::NoSuchTask { task: name.to_string() })
    }

    /// Applies the plan that waits, and nothing in its place, without a second
    /// try. If newer inputs have come in, or the infrastructure was changed
    /// since, nothing of it is applied and a new plan is made, to which the
    /// guard may object again.
    ///
    /// # Errors
    ///
    /// As [`Engine::run_now`]; [`Error::NoSuchPlan`] when another plan waits,
    /// or none; [`Error::PlanSuperseded`] when a new plan had to be made. After
    /// an error of the driver the plan waits on only if nothing of it was begun.
    pub async fn approve(&self, name: &TaskName, plan: &PlanId) -> Result<()> {
        self.tell(name, |reply| Command::Approve { plan: plan.clone(), reply }).await
    }

    /// Forgets the plan that waits, without applying it. The next run plans again.
    ///
    /// # Errors
    ///
    /// As [`Engine::set_enabled`]; [`Error::NoSuchPlan`] when another plan
    /// waits, or none.
    pub async fn discard_plan(&self, name: &TaskName, plan: &PlanId) -> Result<()> {
        self.tell(name, |reply| Command::Discard { plan: plan.clone(), reply }).await
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
        answer.await.unwrap_or_else(|_dropped| {
            Err(if self.shared.orders().is_none() { Error::NotRunning } else { lost_answer() })
        })
    }
}

fn lost_answer() -> Error {
    Error::Other {
        operation: "changing a task",
        retryable: true,
        source: "the work on the task ended without an answer; see the log".into(),
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
        self.shared.watching.send_replace(false);
    }
}
