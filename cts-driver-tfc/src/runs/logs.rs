//! The logs of a run's plan and apply, reported line by line while the run goes on.

use std::time::Duration;

use consul_watch::error_chain;
use secrecy::SecretString;
use tokio::time::{sleep, timeout};

use super::{
    Runs,
    log_positions::{RunLogs, StepLog, Which},
};
use crate::{
    Result,
    log::{self, LogLines, PIECE},
    types::{RunReport, RunStatus, StepStatus},
};

/// Time for what is new in one log: a slow host of logs must not hold up the run.
const LOOK: Duration = Duration::from_secs(10);

/// Characters that are reported of a line.
const LONGEST: usize = 4096;

impl Runs<'_> {
    /// Reports what is new in the logs of a run, if anybody listens.
    ///
    /// A log that cannot be read is no failure of the run. The log of an ended step is read to its
    /// end mark, which can take the host of the logs some seconds more, so that no line of it comes
    /// after what follows the step; then it is not asked for again, however long the run waits.
    pub(super) async fn report_logs(&self, report: &RunReport, which: Which) {
        // Nobody listens in most runs, which then need no requests for logs.
        if !self.context.progress.is_heard() {
            return;
        }
        let logs = self.logs.of(&report.run.id);
        // Held over the requests: two who follow the same run would report lines twice.
        let mut logs = logs.lock().await;
        let run = &report.run.attributes;
        let plan = report.plan.as_ref().map(|plan| &plan.attributes);
        let apply = report.apply.as_ref().map(|apply| &apply.attributes);
        let RunLogs { plan: plan_log, apply: apply_log } = &mut *logs;
        let steps = [
            ("plan", plan_log, RunStatus::Planning, plan.map(|it| (&it.status, &it.log_read_url))),
            (
                "apply",
                apply_log,
                RunStatus::Applying,
                apply.map(|it| (&it.status, &it.log_read_url)),
            ),
        ];
        for (name, log, active, step) in steps {
            let Some((status, Some(address))) = step else { continue };
            let ended = match status {
                StepStatus::Finished | StepStatus::Errored | StepStatus::Canceled => true,
                StepStatus::Open => false,
                // It was never begun, and has no log.
                StepStatus::Unreachable => continue,
            };
            let wanted = match which {
                Which::Ended => ended,
                Which::Growing => !ended && run.status == active,
            };
            if wanted && !log.over {
                // One that was cancelled may never have begun, and so have no log.
                let whole = ended && *status != StepStatus::Canceled;
                self.report_step(report, name, log, address, (ended, whole)).await;
            }
        }
    }

    async fn report_step(
        &self,
        report: &RunReport,
        name: &str,
        log: &mut StepLog,
        address: &SecretString,
        (ended, whole): (bool, bool),
    ) {
        let read = tokio::select! {
            read = timeout(LOOK, self.read_on(&mut log.lines, address, whole)) => read,
            // A stop is dealt with by who waits for the run.
            _reason = self.context.stop.stopped() => return,
        };
        let problem = match read {
            Ok(Ok(())) if whole && log.lines.is_framed() && !log.lines.is_complete() => {
                Some("its end is missing".to_owned())
            }
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error_chain(&error)),
            Err(_late) => Some(format!("no answer within {} s", LOOK.as_secs())),
        };
        let id = &report.run.id;
        if let Some(problem) = &problem {
            tracing::debug!(task.name = %self.task.name, run.id = %id, step = name, error = problem, "cannot read the log of the run");
        }
        // Even after a failure: what is lost of an ended log is said once, and not tried at each
        // look.
        log.over = ended || log.lines.is_complete();
        if ended {
            if let Some(line) = log.lines.rest() {
                self.report_line(&line);
            }
            if let Some(problem) = problem {
                self.report_line(&format!(
                    "run {id}: the rest of the log of its {name} cannot be read: {problem}"
                ));
            }
        }
    }

    /// Reads and reports what is there; of a whole log all of it, waiting for its end.
    async fn read_on(
        &self,
        lines: &mut LogLines,
        address: &SecretString,
        whole: bool,
    ) -> Result<()> {
        let (mut empty, mut waits) = (0, log::waits());
        while !lines.is_complete() {
            let piece = self.client.log_piece(address, lines.offset(), PIECE).await?;
            for line in lines.take(&piece) {
                self.report_line(&line);
            }
            if !piece.is_empty() {
                // A short piece is the newest there is; the next request would be empty.
                if !whole && u64::try_from(piece.len()).unwrap_or(PIECE) < PIECE {
                    break;
                }
                (empty, waits) = (0, log::waits());
                continue;
            }
            // Without marks there is no end to wait for.
            let unmarked = lines.offset() > 0 && !lines.is_framed();
            empty += 1;
            if !whole || unmarked || empty >= log::EMPTY {
                break;
            }
            sleep(waits.next_delay()).await;
        }
        Ok(())
    }

    /// Reports a line without values of sensitive variables.
    fn report_line(&self, line: &str) {
        // Before it is cut: half a value would not be found.
        let mut line = self.mask.hide(line);
        if let Some((end, _)) = line.char_indices().nth(LONGEST) {
            line.truncate(end);
            line.push('…');
        }
        self.context.progress.report(&line);
    }
}
