//! The positions up to which the logs of runs were reported, and which of the logs are read.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{log::LogLines, types::RunId};

/// Number of runs of one workspace whose place in their logs is known.
const KEPT: usize = 8;

/// Position up to which the logs of runs were reported.
#[derive(Debug, Default)]
pub(crate) struct Logs(Mutex<VecDeque<(RunId, SharedRunLogs)>>);

/// Position in the logs of one run, shared by everybody who follows the run.
pub(super) type SharedRunLogs = Arc<tokio::sync::Mutex<RunLogs>>;

#[derive(Debug, Default)]
pub(super) struct RunLogs {
    pub(super) plan: StepLog,
    pub(super) apply: StepLog,
}

/// Position in the log of one step.
#[derive(Debug, Default)]
pub(super) struct StepLog {
    pub(super) lines: LogLines,
    /// `true` once nothing more of it is read.
    pub(super) over: bool,
}

/// Selection of the logs that are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Logs of steps that have ended, to their end.
    Ended,
    /// Log of the step that goes on, as far as it is there.
    Growing,
}

impl Logs {
    pub(super) fn of(&self, run: &RunId) -> SharedRunLogs {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, logs)) = known.iter().find(|(id, _)| id == run) {
            return Arc::clone(logs);
        }
        let logs = SharedRunLogs::default();
        known.push_back((run.clone(), Arc::clone(&logs)));
        if known.len() > KEPT {
            known.pop_front();
        }
        logs
    }
}
