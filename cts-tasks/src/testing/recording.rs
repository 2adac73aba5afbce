use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};

use crate::{
    Action, ApplyRequest, Changes, Driver, DriverFactory, Error, InputsDigest, Outcome, Plan,
    PlanId, PlanPurpose, Result, RunContext, Task, TaskInputs, TaskName,
};

/// A driver that changes nothing and remembers what it was told.
///
/// Clones share what they remember. One value makes the drivers of all tasks.
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
}

struct Failure {
    message: String,
    retryable: bool,
}

/// One call of a driver.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Call {
    /// [`Driver::prepare`].
    Prepare(TaskName),
    /// [`Driver::plan`].
    Plan(TaskName, TaskInputs),
    /// [`Driver::apply`] has begun, with these inputs.
    Apply(TaskName, TaskInputs),
    /// [`Driver::apply`] of a plan has begun.
    ApplyPlan(TaskName, PlanId),
    /// [`Driver::apply`] has ended well.
    Applied(TaskName),
    /// [`Driver::apply`] was stopped.
    Stopped(TaskName),
    /// [`Driver::destroy`].
    Destroy(TaskName),
}

/// Holds the applies of one task until it is opened or dropped.
#[derive(Debug)]
pub struct Gate {
    semaphore: Arc<Semaphore>,
}

impl Gate {
    /// Lets one apply end.
    pub fn let_one_pass(&self) {
        self.semaphore.add_permits(1);
    }
}

impl Drop for Gate {
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

    /// The inputs of every apply of one task that has begun, in order.
    pub fn applies(&self, task: &str) -> Vec<TaskInputs> {
        let calls = self.calls().into_iter();
        calls
            .filter_map(|call| match call {
                Call::Apply(name, inputs) if name.as_str() == task => Some(inputs),
                _ => None,
            })
            .collect()
    }

    /// Waits until what was called so far satisfies `enough`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn wait_until(&self, enough: impl Fn(&[Call]) -> bool) {
        let mut count = self.shared.count.subscribe();
        while !enough(&self.calls()) {
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
        self.wait_until(|_| self.applies(task).len() >= count).await;
        self.applies(task)
    }

    /// Makes the next apply of `task` fail that has no failure yet.
    pub fn fail_next(&self, task: &str, message: &str, retryable: bool) {
        let failure = Failure { message: message.to_owned(), retryable };
        lock(&self.shared.failures).entry(task.to_owned()).or_default().push_back(failure);
    }

    /// Holds every further apply of `task`.
    pub fn hold(&self, task: &str) -> Gate {
        let semaphore = Arc::new(Semaphore::new(0));
        lock(&self.shared.gates).insert(task.to_owned(), Arc::clone(&semaphore));
        Gate { semaphore }
    }

    fn record(&self, call: Call) {
        lock(&self.shared.calls).push(call);
        self.shared.count.send_modify(|count| *count += 1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
}

#[async_trait]
impl Driver for ForTask {
    async fn prepare(&self, _context: &RunContext) -> Result<()> {
        self.recording.record(Call::Prepare(self.name.clone()));
        Ok(())
    }

    async fn plan(
        &self,
        inputs: &TaskInputs,
        _purpose: PlanPurpose,
        _context: &RunContext,
    ) -> Result<Plan> {
        self.recording.record(Call::Plan(self.name.clone(), inputs.clone()));
        let id = PlanId::new(InputsDigest::of(inputs).as_str());
        Ok(Plan::new(id, changes(inputs), "recorded, not planned"))
    }

    async fn apply(&self, request: ApplyRequest<'_>, context: &RunContext) -> Result<Outcome> {
        context.permit.check()?;
        let changes = match request {
            ApplyRequest::Inputs(inputs) => {
                self.recording.record(Call::Apply(self.name.clone(), inputs.clone()));
                changes(inputs)
            }
            ApplyRequest::Plan(id) => {
                self.recording.record(Call::ApplyPlan(self.name.clone(), id.clone()));
                Changes::default()
            }
        };
        self.pass_gate(context).await?;
        let failure = lock(&self.recording.shared.failures)
            .get_mut(self.name.as_str())
            .and_then(VecDeque::pop_front);
        if let Some(Failure { message, retryable }) = failure {
            return Err(Error::Driver { message, retryable, source: None });
        }
        self.recording.record(Call::Applied(self.name.clone()));
        Ok(Outcome::Applied(changes))
    }

    async fn discard(&self, _plan: &PlanId, _context: &RunContext) -> Result<()> {
        Ok(())
    }

    async fn follow(&self, ticket: &str, _context: &RunContext) -> Result<Outcome> {
        Err(Error::Driver {
            message: format!("nothing waits for a person here: {ticket}"),
            retryable: false,
            source: None,
        })
    }

    async fn destroy(&self, _context: &RunContext) -> Result<Outcome> {
        self.recording.record(Call::Destroy(self.name.clone()));
        Ok(Outcome::Applied(Changes::default()))
    }
}

/// As if each instance were a resource to make.
fn changes(inputs: &TaskInputs) -> Changes {
    let mut changes = Changes::default();
    for instance in inputs.services.iter().flatten() {
        changes.record(format!("instance[{:?}]", instance.id), Action::Create);
    }
    changes
}
