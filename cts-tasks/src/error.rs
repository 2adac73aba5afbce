//! Errors of this crate.

use std::{path::PathBuf, time::Duration};

use crate::{PlanId, TaskName};

/// A boxed error of another crate, kept as the source of one of ours.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The failures of keeping and running tasks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Consul could not be asked.
    #[error("unable to retrieve data from Consul: {what}")]
    Consul {
        /// The read or write that was attempted.
        what: String,
        /// `true` if asking again may help.
        retryable: bool,
        /// Error of the client or of the watch.
        source: BoxError,
    },
    /// There is no such task.
    #[error("a task with name '{task}' does not exist or has not been initialized yet")]
    NoSuchTask {
        /// The name that was asked for.
        task: String,
    },
    /// There is such a task already.
    #[error("task with name {task} already exists")]
    TaskExists {
        /// The name.
        task: TaskName,
    },
    /// The task runs, or is being changed or deleted.
    #[error("task '{task}' is active and cannot be updated at this time")]
    TaskActive {
        /// The name.
        task: TaskName,
    },
    /// A disabled task does not run.
    #[error("task '{task}' is disabled; enable it first")]
    TaskDisabled {
        /// The name.
        task: TaskName,
    },
    /// No such plan waits for approval.
    #[error("{}", no_such_plan(task, plan, waiting.as_ref()))]
    NoSuchPlan {
        /// The task.
        task: TaskName,
        /// The id that was given.
        plan: PlanId,
        /// The plan that waits instead.
        waiting: Option<PlanId>,
    },
    /// The plan was approved, but is no longer the right one: nothing of it was
    /// applied, and a new plan was made.
    #[error("{}", superseded(task, plan, waiting.as_ref()))]
    PlanSuperseded {
        /// The task.
        task: TaskName,
        /// The plan that was approved.
        plan: PlanId,
        /// The new plan, if it waits for approval, too.
        waiting: Option<PlanId>,
    },
    /// The configuration was not read again into a running daemon; nothing changed.
    #[error("the configuration is not reloaded, and nothing changed: {reason}")]
    NotReloaded {
        /// Why, and what to do.
        reason: String,
    },
    /// Tasks can be changed only while the engine runs.
    #[error("the engine is not running")]
    NotRunning,
    /// A driver's step failed: what the tool reported, ready for a person.
    #[error("{message}")]
    Driver {
        /// The failed step, its task, and the diagnostics.
        message: String,
        /// `true` if the same step may succeed later with the same input.
        retryable: bool,
        /// The cause, if another error is behind it.
        source: Option<BoxError>,
    },
    /// A file could not be read or written.
    #[error("{action} {}", path.display())]
    File {
        /// The attempt, such as `cannot write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The step was stopped before it was done.
    #[error("stopped: {reason}")]
    Stopped {
        /// Why.
        reason: crate::StopReason,
    },
    /// A run took longer than its task allows, and was ended.
    #[error("{}", timed_out(task, *limit, source.is_some()))]
    TimedOut {
        /// The task.
        task: TaskName,
        /// [`crate::Task::timeout`].
        limit: Duration,
        /// Failure of the try that was ended, or of the one before.
        source: Option<Box<Self>>,
    },
    /// A run failed, and its task allows no time for another try.
    #[error("{}", no_time_left(task, *limit))]
    NoTimeLeft {
        /// The task.
        task: TaskName,
        /// [`crate::Task::timeout`].
        limit: Duration,
        /// Failures of its tries.
        source: Box<Self>,
    },
    /// This process may not act now; another one leads.
    #[error("not permitted to act: {reason}")]
    NotPermitted {
        /// The authority that refused, and why.
        reason: String,
    },
    /// The store refused a batch for good, because another process owns the data now.
    #[error("the store no longer accepts changes of this process: {reason}")]
    Fenced {
        /// The store's reason.
        reason: String,
    },
    /// An implementation outside this crate failed.
    #[error("{operation} failed")]
    Other {
        /// The operation that was attempted.
        operation: &'static str,
        /// `true` if trying again may help.
        retryable: bool,
        /// The cause.
        source: BoxError,
    },
}

impl Error {
    /// Creates an error of a driver, which a later try with the same input may cure. The
    /// message says which step failed and what to do, and holds no secrets.
    ///
    /// ```
    /// use cts_tasks::Error;
    ///
    /// let busy = Error::driver("reload: another reload runs");
    /// assert!(busy.is_retryable());
    /// let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
    /// let refused = Error::driver("reload: haproxy is not installed").permanent().caused_by(missing);
    /// assert!(!refused.is_retryable());
    /// ```
    pub fn driver(message: impl Into<String>) -> Self {
        Self::Driver { message: message.into(), retryable: true, source: None }
    }

    /// Creates an error of a store, a cluster or a permit outside this crate, which a later
    /// try may cure; `operation` is what was tried, such as `reading the state`.
    pub fn other(operation: &'static str, source: impl Into<BoxError>) -> Self {
        Self::Other { operation, retryable: true, source: source.into() }
    }

    /// Says of an error of a driver, of [`Error::other`] or of Consul that no retry cures it.
    /// Without effect on the rest, whose kind tells that.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        if let Self::Consul { retryable, .. }
        | Self::Driver { retryable, .. }
        | Self::Other { retryable, .. } = &mut self
        {
            *retryable = false;
        }
        self
    }

    /// Adds the cause to an error of a driver; without effect on others.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<BoxError>) -> Self {
        if let Self::Driver { source, .. } = &mut self {
            *source = Some(cause.into());
        }
        self
    }

    /// Consul could not be asked for `what`.
    pub(crate) fn consul(what: impl Into<String>, source: consul_watch::Error) -> Self {
        Self::Consul { what: what.into(), retryable: source.is_retryable(), source: source.into() }
    }

    /// Returns `true` if the same call may succeed later with the same input.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Consul { retryable, .. }
            | Self::Driver { retryable, .. }
            | Self::Other { retryable, .. } => *retryable,
            Self::File { .. }
            | Self::TaskActive { .. }
            | Self::TimedOut { .. }
            | Self::NoTimeLeft { .. } => true,
            Self::NoSuchTask { .. }
            | Self::TaskExists { .. }
            | Self::TaskDisabled { .. }
            | Self::NoSuchPlan { .. }
            | Self::PlanSuperseded { .. }
            | Self::NotReloaded { .. }
            | Self::NotRunning
            | Self::Stopped { .. }
            | Self::NotPermitted { .. }
            | Self::Fenced { .. } => false,
        }
    }

    /// Returns `true` if it came about because this machine is short of something: open
    /// files, room on a disk, memory or processes. That passes without any
    /// change in Consul.
    ///
    /// Told by the text, since most come through a tool's own report.
    pub(crate) fn is_shortage(&self) -> bool {
        const TEXTS: [&str; 6] = [
            "too many open files",
            "no space left on device",
            "disk quota exceeded",
            "cannot allocate memory",
            "out of memory",
            "resource temporarily unavailable",
        ];
        let text = consul_watch::error_chain(self).to_lowercase();
        TEXTS.iter().any(|known| text.contains(known))
    }

    /// Returns `true` if nothing was applied because a person or a newer plan was in the
    /// way: who discards a plan does not want it again.
    pub(crate) fn is_superseded(&self) -> bool {
        matches!(self, Self::Driver { message, .. } if message.contains(SUPERSEDED))
    }

    /// The same once more, if it ends the whole engine.
    pub(crate) fn concerning_all(&self) -> Option<Self> {
        match self {
            Self::Fenced { reason } => Some(Self::Fenced { reason: reason.clone() }),
            Self::NotPermitted { reason } => Some(Self::NotPermitted { reason: reason.clone() }),
            _ => None,
        }
    }
}

/// Text of [`Error::Driver`] for an apply that applied nothing.
pub(crate) const SUPERSEDED: &str =
    "nothing was applied: the plan was discarded, or is no longer the right one";

fn no_such_plan(task: &TaskName, plan: &PlanId, waiting: Option<&PlanId>) -> String {
    match waiting {
        Some(waiting) => format!(
            "task '{task}' has no plan {plan} that waits for approval; the one that waits is {waiting}"
        ),
        None => format!("task '{task}' has no plan that waits for approval, so not {plan} either"),
    }
}

fn timed_out(task: &TaskName, limit: Duration, failed: bool) -> String {
    format!(
        "task '{task}' ran longer than its timeout of {} and was stopped; what it was at may be \
         half done. Raise timeout in the task if it needs more time{}",
        consul_watch::GoDuration::new(limit),
        if failed { ". Its last failure" } else { "" }
    )
}

fn no_time_left(task: &TaskName, limit: Duration) -> String {
    format!(
        "task '{task}' had no time left within its timeout of {} to try again after its last \
         failure",
        consul_watch::GoDuration::new(limit)
    )
}

fn superseded(task: &TaskName, plan: &PlanId, waiting: Option<&PlanId>) -> String {
    let next = match waiting {
        Some(waiting) => format!("the new plan {waiting} waits for approval"),
        None => "a new plan was made, which needed no approval".to_owned(),
    };
    format!("plan {plan} of task '{task}' is out of date and was not applied; {next}")
}
