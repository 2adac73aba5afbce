use std::collections::{HashMap, HashSet};

use crate::task::Undescribed;

/// Passes in a row after which a task that cannot be described counts as gone.
const LIMIT: u32 = 3;

/// Tasks that are listed and cannot be described: nothing is deleted for a while for what they may
/// be. Keeps the number of passes in a row of each, by its ARN.
#[derive(Debug, Default)]
pub(crate) struct Doubts(HashMap<String, u32>);

impl Doubts {
    /// Those of a pass's listing that may still run; to be asked once in a pass.
    pub(crate) fn next_pass(&mut self, undescribed: &[Undescribed]) -> Vec<String> {
        let arns: HashSet<&str> = undescribed.iter().map(|task| task.arn.as_str()).collect();
        self.0.retain(|arn, _| arns.contains(arn.as_str()));
        for task in undescribed {
            let times = self.0.entry(task.arn.clone()).or_default();
            *times = times.saturating_add(1);
            if *times <= LIMIT {
                tracing::warn!(task.arn, reason = task.reason, "a listed task cannot be described");
            }
        }
        self.again(undescribed)
    }

    /// The same for a second listing in one pass.
    pub(crate) fn again(&self, undescribed: &[Undescribed]) -> Vec<String> {
        let doubtful = undescribed
            .iter()
            .filter(|task| self.0.get(&task.arn).is_none_or(|times| *times <= LIMIT));
        doubtful.map(|task| task.arn.clone()).collect()
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
}
