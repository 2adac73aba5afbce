//! Orders to a running engine about its tasks, and commands to their workers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{DriverFactory, Error, Inspection, PlanId, Result, Task, TaskName};

/// When a task that is created or enabled runs for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstRun {
    /// When its condition says so.
    #[default]
    WhenTriggered,
    /// At once; if that fails, nothing was created or enabled.
    Now,
}

/// The way back for a command's outcome. Its receiver may have been dropped
/// meanwhile.
pub(crate) type Reply<T> = oneshot::Sender<Result<T>>;

/// For the supervisor of all tasks.
#[derive(Debug)]
pub(crate) enum Order {
    Create { task: Box<Task>, first_run: FirstRun, reply: Reply<()> },
    InspectNew { task: Box<Task>, reply: Reply<Inspection> },
    Delete { name: TaskName, spare: bool, reply: Reply<()> },
    ToWorker { name: TaskName, command: Command },
}

/// For the worker of one task.
#[derive(Debug)]
pub(crate) enum Command {
    SetEnabled {
        enabled: bool,
        first_run: FirstRun,
        reply: Reply<()>,
    },
    /// Previews a run with the task enabled, or not.
    Inspect {
        enabled: bool,
        reply: Reply<Inspection>,
    },
    Run {
        reply: Reply<()>,
    },
    /// Take another definition of the task, as soon as nothing runs.
    Replace {
        task: Box<Task>,
        factory: Arc<dyn DriverFactory>,
        reply: Reply<()>,
    },
    /// Apply the plan that waits.
    Approve {
        plan: PlanId,
        reply: Reply<()>,
    },
    /// Forget the plan that waits.
    Discard {
        plan: PlanId,
        reply: Reply<()>,
    },
}

impl Command {
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::SetEnabled { reply, .. }
            | Self::Run { reply }
            | Self::Replace { reply, .. }
            | Self::Approve { reply, .. }
            | Self::Discard { reply, .. } => answer(reply, Err(error)),
            Self::Inspect { reply, .. } => answer(reply, Err(error)),
        }
    }
}

/// Answers, if somebody still waits.
pub(crate) fn answer<T>(reply: Reply<T>, result: Result<T>) {
    if reply.send(result).is_err() {
        tracing::debug!("whoever asked did not wait for the answer");
    }
}

/// Capacity of one worker's command queue; the worker takes commands at once.
const COMMANDS: usize = 8;

/// The supervisor's end of one worker.
#[derive(Debug)]
pub(crate) struct Handle {
    commands: mpsc::Sender<Command>,
    retired: CancellationToken,
    spares: Arc<AtomicBool>,
}

/// The worker's end.
#[derive(Debug)]
pub(crate) struct Orders {
    pub(crate) commands: mpsc::Receiver<Command>,
    /// Given when the task is deleted: what runs may end, nothing more begins.
    pub(crate) retired: CancellationToken,
    spares: Arc<AtomicBool>,
}

impl Orders {
    /// Returns `true` if a deletion leaves the infrastructure alone, whatever the
    /// task's own setting.
    pub(crate) fn spares(&self) -> bool {
        self.spares.load(Ordering::Acquire)
    }
}

impl Handle {
    pub(crate) fn new() -> (Self, Orders) {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let retired = CancellationToken::new();
        let spares = Arc::new(AtomicBool::new(false));
        let handle =
            Self { commands: sender, retired: retired.clone(), spares: Arc::clone(&spares) };
        (handle, Orders { commands, retired, spares })
    }

    /// Hands a command on; a task that is being deleted takes none.
    pub(crate) fn send(&self, name: &TaskName, command: Command) {
        let active = || Error::TaskActive { task: name.clone() };
        if self.retired.is_cancelled() {
            return command.refuse(active());
        }
        if let Err(error) = self.commands.try_send(command) {
            let (mpsc::error::TrySendError::Full(command)
            | mpsc::error::TrySendError::Closed(command)) = error;
            command.refuse(active());
        }
    }

    /// Returns `true` if the worker has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.commands.is_closed()
    }

    /// Returns `true` if the task is marked as deleted.
    pub(crate) fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Marks the task as deleted; with `spare` its infrastructure stays in any case.
    pub(crate) fn retire(&self, spare: bool) {
        if !self.retired.is_cancelled() {
            self.spares.store(spare, Ordering::Release);
        }
        self.retired.cancel();
    }
}
