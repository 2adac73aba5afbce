//! A driver that remembers its calls and makes up its resources.

mod person;
mod world;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};

use crate::{
    ApplyRequest, Driver, DriverFactory, Error, Outcome, Plan, PlanId, PlanPurpose, Result,
    RunContext, Task, TaskInputs, TaskName,
};
use person::{Answer, Person};
use world::World;

/// A driver that remembers what it was told, and changes nothing but resources
/// that it makes up: one for each service instance, service name and key that
/// a task's module gets.
///
/// So its plans count what they add, change and destroy, a second apply of the
/// same changes nothing, and a plan can be applied once. Clones share what
/// they remember. One value makes the drivers of all tasks.
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use cts_tasks::{ApplyRequest, DriverFactory, RunContext, TaskInputs, testing::RecordingDriver};
///
/// # let task = cts_tasks::testing::task("web");
/// let recording = RecordingDriver::default();
/// let driver = recording.driver(&task)?;
/// driver.apply(ApplyRequest::Inputs(&TaskInputs::default()), &RunContext::default()).await?;
/// assert_eq!(recording.applies("web").len(), 1);
/// # Ok::<(), cts_tasks::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct RecordingDriver {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    calls: Mutex<Vec<Call>>,
    count: watch::Sender<usize>,
    failures: Mutex<BTreeMap<String, VecDeque<Failure>>>,
    gates: Mutex<BTreeMap<String, Arc<Semaphore>>>,
    worlds: Mutex<BTreeMap<TaskName, World>>,
    persons: Mutex<BTreeMap<String, Person>>,
}

struct Failure {
    message: String,
    retryable: bool,
}

/// A recorded call of a driver.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Call {
    /// [`Driver::prepare`].
    Prepare(TaskName),
    /// [`Driver::plan`], but for drift.
    Plan(TaskName, TaskInputs),
    /// [`Driver::plan`] for [`PlanPurpose::Drift`].
    Drift(TaskName),
    /// [`Driver::apply`] has begun, with these inputs.
    Apply(TaskName, TaskInputs),
    /// [`Driver::apply`] of a plan has begun.
    ApplyPlan(TaskName, PlanId),
    /// [`Driver::apply`] has ended well.
    Applied(TaskName),
    /// [`Driver::apply`] or [`Driver::follow`] was stopped.
    Stopped(TaskName),
    /// [`Driver::follow`] has begun, with this ticket.
    Follow(TaskName, String),
    /// [`Driver::discard`].
    Discard(TaskName, PlanId),
    /// [`Driver::destroy`].
    Destroy(TaskName),
}

/// Holds the applies of one task until it is opened or dropped.
#[derive(Debug)]
pub struct HeldRun {
    semaphore: Arc<Semaphore>,
}

impl HeldRun {
    /// Lets one apply end.
    pub fn let_one_pass(&self) {
        self.semaphore.add_permits(1);
    }
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        self.semaphore.close();
    }
}

impl fmt::Debug for RecordingDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingDriver").finish_non_exhaustive()
    }
}

impl RecordingDriver {
    /// Everything that was called so far.
    pub fn calls(&self) -> Vec<Call> {
        lock(&self.shared.calls).clone()
    }

    /// The inputs of every apply of one task that has begun, in order. Applies
    /// of a plan are not among them.
    pub fn applies(&self, task: &str) -> Vec<TaskInputs> {
        let calls = self.calls().into_iter();
        calls
            .filter_map(|call| match call {
                Call::Apply(name, inputs) if name.as_str() == task => Some(inputs),
                _ => None,
            })
            .collect()
    }

    /// The inputs of the last apply of one task that ended well, of a plan or
    /// not; `None` when there was none, or everything was destroyed since.
    pub fn applied(&self, task: &str) -> Option<TaskInputs> {
        let worlds = lock(&self.shared.worlds);
        worlds.iter().find(|(name, _)| name.as_str() == task)?.1.applied().cloned()
    }

    /// Waits until what was called so far satisfies `enough`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_until(&self, enough: impl Fn(&[Call]) -> bool) {
        let mut count = self.shared.count.subscribe();
        while !enough(&lock(&self.shared.calls)) {
            if count.changed().await.is_err() {
                return;
            }
        }
    }

    /// Waits until `count` applies of a task have begun, and returns their inputs.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_for_applies(&self, task: &str, count: usize) -> Vec<TaskInputs> {
        let of_task = |call: &&Call| matches!(call, Call::Apply(name, _) if name.as_str() == task);
        self.wait_until(|calls| calls.iter().filter(of_task).count() >= count).await;
        self.applies(task)
    }

    /// Makes the next apply or destroy of `task` fail that has no failure yet.
    pub fn fail_next(&self, task: &str, message: &str, retryable: bool) {
        let failure = Failure { message: message.to_owned(), retryable };
        lock(&self.shared.failures).entry(task.to_owned()).or_default().push_back(failure);
    }

    /// Returns the number of failures of [`RecordingDriver::fail_next`] that are
    /// still to come.
    pub fn failures_left(&self, task: &str) -> usize {
        lock(&self.shared.failures).get(task).map_or(0, VecDeque::len)
    }

    /// Holds every further apply of `task`.
    pub fn hold(&self, task: &str) -> HeldRun {
        let semaphore = Arc::new(Semaphore::new(0));
        lock(&self.shared.gates).insert(task.to_owned(), Arc::clone(&semaphore));
        HeldRun { semaphore }
    }

    /// Takes away all plans that are kept, as if the instance that made them was lost.
    pub fn lose_plans(&self) {
        lock(&self.shared.worlds).values_mut().for_each(World::lose_plans);
    }

    /// Removes one of `task`'s resources behind its back; false if it has none.
    pub fn drift(&self, task: &str) -> bool {
        let mut worlds = lock(&self.shared.worlds);
        let world = worlds.iter_mut().find(|(name, _)| name.as_str() == task);
        world.is_some_and(|(_, world)| world.drift())
    }

    /// Makes every further apply of `task` wait for a person elsewhere, in the
    /// place of one that waits already.
    pub fn wait_for_person(&self, task: &str) {
        lock(&self.shared.persons).entry(task.to_owned()).or_default();
    }

    /// Confirms what waits, as a person elsewhere; false if nothing does.
    pub fn confirm(&self, task: &str) -> bool {
        self.decide(task, Person::confirm)
    }

    /// Refuses what waits, as a person elsewhere; false if nothing does.
    pub fn refuse(&self, task: &str) -> bool {
        self.decide(task, Person::refuse)
    }

    fn decide(&self, task: &str, act: impl FnOnce(&mut Person) -> bool) -> bool {
        let decided = lock(&self.shared.persons).get_mut(task).is_some_and(act);
        self.shared.count.send_modify(|_| {});
        decided
    }

    fn record(&self, call: Call) {
        lock(&self.shared.calls).push(call);
        self.shared.count.send_modify(|count| *count += 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refusal(what: &str, ticket: &str) -> Error {
    Error::Driver { message: format!("{what}: {ticket}"), retryable: false, source: None }
}

#[async_trait]
impl DriverFactory for RecordingDriver {
    async fn start(&self) -> Result<()> {
        Ok(())
    }

    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        Ok(Arc::new(ForTask { name: task.name.clone(), recording: self.clone() }))
    }
}

#[derive(Debug)]
struct ForTask {
    name: TaskName,
    recording: RecordingDriver,
}

impl ForTask {
    /// Looks at, or changes, the resources of this task.
    fn world<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(lock(&self.recording.shared.worlds).entry(self.name.clone()).or_default())
    }

    fn person<T>(&self, act: impl FnOnce(&mut Person) -> T) -> Option<T> {
        lock(&self.recording.shared.persons).get_mut(self.name.as_str()).map(act)
    }

    async fn pass_gate(&self, context: &RunContext) -> Result<()> {
        let gate = lock(&self.recording.shared.gates).get(self.name.as_str()).map(Arc::clone);
        let Some(gate) = gate else { return Ok(()) };
        tokio::select! {
            passed = gate.acquire() => {
                if let Ok(permit) = passed {
                    permit.forget();
                }
                Ok(())
            }
            reason = context.stop.stopped() => {
                self.recording.record(Call::Stopped(self.name.clone()));
                Err(Error::Stopped { reason })
            }
        }
    }

    /// Returns the failure that [`RecordingDriver::fail_next`] has ordered, if one
    /// is left.
    fn failure(&self) -> Result<()> {
        let failure = lock(&self.recording.shared.failures)
            .get_mut(self.name.as_str())
            .and_then(VecDeque::pop_front);
        match failure {
            Some(Failure { message, retryable }) => {
                Err(Error::Driver { message, retryable, source: None })
            }
            None => Ok(()),
        }
    }

    /// A stop that was given already ends everything at once.
    fn go_on(context: &RunContext) -> Result<()> {
        context.stop.reason().map_or(Ok(()), |reason| Err(Error::Stopped { reason }))
    }
}

#[async_trait]
impl Driver for ForTask {
    async fn prepare(&self, context: &RunContext) -> Result<()> {
        Self::go_on(context)?;
        self.recording.record(Call::Prepare(self.name.clone()));
        Ok(())
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        purpose: PlanPurpose,
        context: &RunContext,
    ) -> Result<Plan> {
        Self::go_on(context)?;
        let name = self.name.clone();
        self.recording.record(match purpose {
            PlanPurpose::Drift => Call::Drift(name),
            PlanPurpose::Inspect | PlanPurpose::Apply => Call::Plan(name, inputs.clone()),
        });
        Ok(self.world(|world| world.plan(inputs, purpose)))
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        context.permit.check()?;
        Self::go_on(context)?;
        let name = self.name.clone();
        let inputs = match request {
            ApplyRequest::Inputs(inputs) => {
                self.recording.record(Call::Apply(name, inputs.clone()));
                inputs.clone()
            }
            ApplyRequest::Plan(id) => {
                let Some(inputs) = self.world(|world| world.take_plan(id)) else {
                    return Ok(Outcome::Superseded);
                };
                self.recording.record(Call::ApplyPlan(name, id.clone()));
                inputs
            }
        };
        self.pass_gate(context).await?;
        self.failure()?;
        if let Some(ticket) = self.person(|person| person.ask(inputs.clone())) {
            return Ok(Outcome::Waiting { ticket, url: None });
        }
        let changes = self.world(|world| world.apply(inputs));
        self.recording.record(Call::Applied(self.name.clone()));
        Ok(if changes.is_empty() { Outcome::Unchanged } else { Outcome::Applied(changes) })
    }

    async fn holds(&self, plan: &PlanId, _context: &RunContext) -> Result<bool> {
        Ok(self.world(|world| world.holds(plan)))
    }

    async fn discard(&self, plan: &PlanId, _context: &RunContext) -> Result<()> {
        self.recording.record(Call::Discard(self.name.clone(), plan.clone()));
        self.world(|world| world.discard(plan));
        Ok(())
    }

    async fn follow(&self, ticket: &str, context: &RunContext) -> Result<Outcome> {
        self.recording.record(Call::Follow(self.name.clone(), ticket.to_owned()));
        let mut count = self.recording.shared.count.subscribe();
        loop {
            match self.person(|person| person.answer(ticket)).flatten() {
                Some(Answer::None) => {}
                Some(Answer::Confirmed(inputs)) => {
                    let changes = self.world(|world| world.apply(inputs));
                    self.recording.record(Call::Applied(self.name.clone()));
                    return Ok(Outcome::Applied(changes));
                }
                Some(Answer::Superseded) => return Ok(Outcome::Superseded),
                Some(Answer::Refused) => return Err(refusal("a person refused", ticket)),
                None => return Err(refusal("nothing waits for a person here", ticket)),
            }
            tokio::select! {
                _ = count.changed() => {}
                reason = context.stop.stopped() => {
                    self.recording.record(Call::Stopped(self.name.clone()));
                    return Err(Error::Stopped { reason });
                }
            }
        }
    }

    async fn destroy(&self, context: &RunContext) -> Result<Outcome> {
        context.permit.check()?;
        Self::go_on(context)?;
        self.recording.record(Call::Destroy(self.name.clone()));
        self.failure()?;
        let changes = self.world(World::destroy);
        Ok(if changes.is_empty() { Outcome::Unchanged } else { Outcome::Applied(changes) })
    }
}
