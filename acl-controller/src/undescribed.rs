//! Tasks that ECS lists but does not describe, and for how long deletions wait for them.

use std::collections::{HashMap, HashSet};

use crate::task::Undescribed;

/// Number of consecutive passes after which a task that cannot be described counts as gone.
const LIMIT: u32 = 3;
/// Number of consecutive passes with such tasks, possibly others each time, after which deletions
/// no longer wait for them.
const LONGEST_HOLD: u32 = 10;

/// Tasks that are listed and cannot be described. Deletions that may concern them wait for a while.
#[derive(Debug, Default)]
pub(crate) struct UndescribedTasks {
    /// Number of consecutive passes of each task, by its ARN.
    times: HashMap<String, u32>,
    /// Number of consecutive passes in which deletions had to wait.
    held_up: u32,
}

impl UndescribedTasks {
    /// Returns the tasks of a pass's listing that may still run. Call it once in a pass.
    pub(crate) fn next_pass(&mut self, undescribed: &[Undescribed]) -> Vec<String> {
        let arns: HashSet<&str> = undescribed.iter().map(|task| task.arn.as_str()).collect();
        self.times.retain(|arn, _| arns.contains(arn.as_str()));
        for Undescribed { arn, reason } in undescribed {
            let times = self.times.entry(arn.clone()).or_default();
            *times = times.saturating_add(1);
            if *times <= LIMIT {
                tracing::warn!(
                    task.arn = arn,
                    reason,
                    "a listed task cannot be described: it counts as running"
                );
            } else if *times == LIMIT + 1 {
                tracing::warn!(
                    task.arn = arn,
                    reason,
                    "a listed task could not be described for {LIMIT} passes: it counts as gone"
                );
            }
        }
        // `next_pass` has counted, so the second listing of a pass must not count again.
        self.again(undescribed)
    }

    /// Returns the same for a second listing in one pass, without counting.
    pub(crate) fn again(&self, undescribed: &[Undescribed]) -> Vec<String> {
        let doubtful = undescribed
            .iter()
            .filter(|task| self.times.get(&task.arn).is_none_or(|times| *times <= LIMIT));
        doubtful.map(|task| task.arn.clone()).collect()
    }

    /// Returns `true` while deletions wait because of tasks that may belong to anything; `first`
    /// marks the first listing of a pass.
    pub(crate) fn holds_up(&mut self, unknown: usize, first: bool) -> bool {
        if first {
            // New such tasks in every pass would block deletions for ever, hence the second
            // counter.
            self.held_up = if unknown == 0 { 0 } else { self.held_up.saturating_add(1) };
        }
        let holds = unknown > 0 && self.held_up <= LONGEST_HOLD;
        if first && holds {
            tracing::warn!(
                tasks = unknown,
                "nothing is deleted: any service may have the tasks that cannot be described"
            );
        } else if first && self.held_up == LONGEST_HOLD + 1 {
            tracing::warn!(
                tasks = unknown,
                "there were tasks that cannot be described in {LONGEST_HOLD} passes in a row: deletions do not wait for them any more"
            );
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_description_counts_as_gone_after_three_passes_in_a_row() {
        let mut tasks = UndescribedTasks::default();
        let lost = [Undescribed::new("a", "MISSING")];
        for _ in 0..3 {
            assert_eq!(tasks.next_pass(&lost), ["a"]);
            assert_eq!(tasks.again(&lost), ["a"]);
        }
        assert!(tasks.next_pass(&lost).is_empty() && tasks.again(&lost).is_empty());
        assert!(tasks.next_pass(&[]).is_empty());
        assert_eq!(tasks.next_pass(&lost), ["a"], "the count starts again");
    }

    #[test]
    fn ever_new_tasks_without_description_hold_deletions_up_for_ten_passes() {
        let mut tasks = UndescribedTasks::default();
        for _ in 0..2 {
            for pass in 0..10 {
                assert!(tasks.holds_up(1, true), "{pass}");
                assert!(tasks.holds_up(2, false) && !tasks.holds_up(0, false), "{pass}");
            }
            for _ in 0..3 {
                assert!(!tasks.holds_up(1, true) && !tasks.holds_up(1, false));
            }
            assert!(!tasks.holds_up(0, true), "a pass without any: the count starts again");
        }
    }
}
