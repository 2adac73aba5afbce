//! How long the disk of the log takes.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Number of classes, each twice as long as the one before; the last one takes all from 18 minutes on.
const CLASSES: usize = 32;

/// Counts writes of the log, with their syncs, by how long they took: the n-th class took less
/// than 2^n microseconds.
#[derive(Debug, Default)]
pub(crate) struct SyncTimes {
    classes: [AtomicU64; CLASSES],
    micros: AtomicU64,
    longest: AtomicU64,
}

/// The counts since the log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean_micros: u64,
    /// The upper end of the class that the slowest hundredth begins in.
    pub(crate) p99_micros: u64,
    pub(crate) max_micros: u64,
}

impl SyncTimes {
    /// Takes one up. There is one caller, the thread of the log.
    pub(super) fn record(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let class = usize::try_from(u64::BITS - micros.leading_zeros()).unwrap_or(CLASSES);
        if let Some(class) = self.classes.get(class.min(CLASSES - 1)) {
            class.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.longest.fetch_max(micros, Ordering::Relaxed);
        metrics::histogram!("resource_store_raft_log_sync_seconds").record(took);
    }

    pub(crate) fn summary(&self) -> Summary {
        let classes = self.classes.each_ref().map(|class| class.load(Ordering::Relaxed));
        let count: u64 = classes.iter().sum();
        let slow = count.div_ceil(100);
        let max_micros = self.longest.load(Ordering::Relaxed);
        let mut above = 0;
        let p99 = classes.iter().enumerate().rev().find(|(_, found)| {
            above += **found;
            above >= slow && count > 0
        });
        Summary {
            count,
            mean_micros: self.micros.load(Ordering::Relaxed).checked_div(count).unwrap_or(0),
            p99_micros: p99.map_or(0, |(class, _)| (1_u64 << class).min(max_micros)),
            max_micros,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_syncs_are_seen() {
        let times = SyncTimes::default();
        assert_eq!(times.summary(), Summary::default());
        for _ in 0..990 {
            times.record(Duration::from_micros(900));
        }
        for _ in 0..9 {
            times.record(Duration::from_millis(20));
        }
        times.record(Duration::from_secs(1));
        let found = times.summary();
        assert_eq!((found.count, found.max_micros), (1000, 1_000_000));
        assert_eq!(found.mean_micros, (990 * 900 + 9 * 20_000 + 1_000_000) / 1000);
        // Ten of a thousand took more than 16 ms.
        assert_eq!(found.p99_micros, 1 << 15);
    }
}
