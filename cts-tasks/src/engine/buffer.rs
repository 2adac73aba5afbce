use tokio::time::Instant;

use crate::BufferPeriod;

/// Collects changes: says when a task is to run.
///
/// The first change starts a quiet time of `min` and sets a deadline of `max`;
/// each further change starts the quiet time anew, but never past the deadline.
///
/// Source: hcat 0.2, buffer period; Consul-Terraform-Sync 0.9, `buffer_period`.
#[derive(Debug)]
pub(crate) struct Buffer {
    period: BufferPeriod,
    pending: Option<Pending>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    fires_at: Instant,
    deadline: Instant,
}

impl Buffer {
    pub(crate) fn new(period: BufferPeriod) -> Self {
        Self { period, pending: None }
    }

    /// Takes notice of a change at `now`.
    pub(crate) fn change(&mut self, now: Instant) {
        let (min, max) = match self.period {
            BufferPeriod::Disabled => Default::default(),
            BufferPeriod::Enabled { min, max } => (min, max),
        };
        let deadline = self.pending.map_or(now + max, |pending| pending.deadline);
        self.pending = Some(Pending { fires_at: (now + min).min(deadline), deadline });
    }

    /// When the collected changes are to be acted on; `None` without any.
    pub(crate) fn fires_at(&self) -> Option<Instant> {
        self.pending.map(|pending| pending.fires_at)
    }

    /// Forgets what was collected.
    pub(crate) fn reset(&mut self) {
        self.pending = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn buffer(min: u64, max: u64) -> Buffer {
        Buffer::new(BufferPeriod::Enabled { min: ms(min), max: ms(max) })
    }

    /// Changes at the given moments; the delay from the first to the run.
    fn total(mut buffer: Buffer, changes: &[u64]) -> Duration {
        let start = Instant::now();
        for at in changes {
            buffer.change(start + ms(*at));
        }
        buffer.fires_at().unwrap() - start
    }

    /// Spec: CW34
    #[test]
    fn one_change_waits_for_the_quiet_time() {
        assert_eq!(total(buffer(2, 8), &[0]), ms(2));
    }

    /// Spec: CW35
    #[test]
    fn further_changes_snooze_up_to_the_deadline() {
        assert_eq!(total(buffer(4, 12), &[0, 4]), ms(8));
        assert_eq!(total(buffer(4, 21), &[0, 4, 8, 12]), ms(16));
        assert_eq!(total(buffer(4, 6), &[0, 1, 3, 5]), ms(6));
    }

    /// Spec: CTS70
    #[test]
    fn flapping_beyond_max_runs_at_max() {
        let changes: Vec<u64> = (0..20).collect();
        assert_eq!(total(buffer(5, 20), &changes), ms(20));
    }

    #[test]
    fn a_disabled_buffer_fires_at_once() {
        assert_eq!(total(Buffer::new(BufferPeriod::Disabled), &[0]), ms(0));
    }

    #[test]
    fn after_a_reset_the_next_change_starts_a_new_period() {
        let mut buffer = buffer(4, 6);
        let start = Instant::now();
        buffer.change(start);
        buffer.reset();
        assert_eq!(buffer.fires_at(), None);
        buffer.change(start + ms(100));
        assert_eq!(buffer.fires_at(), Some(start + ms(104)));
    }
}
