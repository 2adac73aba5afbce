use std::collections::{HashMap, HashSet};

use crate::task::Undescribed;

/// Passes in a row after which a task that cannot be described counts as gone.
const LIMIT: u32 = 3;
/// Passes in a row, each with such tasks, maybe others each time, after which deletions do not wait
/// for them any more.
const LONGEST_HOLD: u32 = 10;

/// Tasks that are listed and cannot be described: nothing is deleted for a while for what they may
/// be.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// Passes in a row of each, by its ARN.
    times: HashMap<String, u32>,
    /// Passes in a row in which deletions had to wait.
    held_up: u32,
}

impl Doubts {
    /// Those of a pass's listing that may still run; to be asked once in a pass.
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
        self.again(undescribed)
    }

    /// The same for a second listing in one pass.
    pub(crate) fn again(&self, undescribed: &[Undescribed]) -> Vec<String> {
        let doubtful = undescribed
            .iter()
            .filter(|task| self.times.get(&task.arn).is_none_or(|times| *times <= LIMIT));
        doubtful.map(|task| task.arn.clone()).collect()
    }

    /// Whether deletions wait because of so many tasks that may belong to anything; `first` for
    /// the first listing of a pass.
    pub(crate) fn holds_up(&mut self, unknown: usize, first: bool) -> bool {
        if first {
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
        let mut doubts = Doubts::default();
        let lost = [Undescribed::new("a", "MISSING")];
        for _ in 0..3 {
            assert_eq!(doubts.next_pass(&lost), ["a"]);
            assert_eq!(doubts.again(&lost), ["a"]);
        }
        assert!(doubts.next_pass(&lost).is_empty() && doubts.again(&lost).is_empty());
        assert!(doubts.next_pass(&[]).is_empty());
        assert_eq!(doubts.next_pass(&lost), ["a"], "it begins anew");
    }

    #[test]
    fn ever_new_tasks_without_description_hold_deletions_up_for_ten_passes() {
        let mut doubts = Doubts::default();
        for _ in 0..2 {
            for pass in 0..10 {
                assert!(doubts.holds_up(1, true), "{pass}");
                assert!(doubts.holds_up(2, false) && !doubts.holds_up(0, false), "{pass}");
            }
            for _ in 0..3 {
                assert!(!doubts.holds_up(1, true) && !doubts.holds_up(1, false));
            }
            assert!(!doubts.holds_up(0, true), "a pass without any: it begins anew");
        }
    }
}
