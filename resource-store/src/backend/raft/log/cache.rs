//! The newest entries of the log, in memory.

use std::collections::VecDeque;

use crate::backend::raft::types::{Entry, EntryExt as _, LogId};

/// The newest entries, without gaps.
#[derive(Debug)]
pub(super) struct Cache {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Bytes of entries that are kept, besides those that are not on the disk.
    limit: usize,
    /// Entries before this index are on the disk.
    flushed: u64,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, limit, flushed: 0 }
    }

    /// Appends what follows the log so far.
    pub(super) fn push(&mut self, entries: Vec<Entry>) {
        let next = entries.first().map(|entry| entry.log_id.index);
        if self.end().is_some_and(|end| Some(end) != next) {
            self.clear();
        }
        self.bytes += entries.iter().map(Entry::bytes).sum::<usize>();
        self.entries.extend(entries);
        self.trim();
    }

    /// Entries from `start` to before `end` as far as they are here, with the
    /// index of the first one; up to `most` bytes, but at least one.
    pub(super) fn read(&self, start: u64, end: u64, most: usize) -> (u64, Vec<Entry>) {
        let Some(first) = self.entries.front().map(|entry| entry.log_id.index) else {
            return (end, Vec::new());
        };
        let from = start.max(first);
        let skip = usize::try_from(from - first).unwrap_or(usize::MAX);
        let count = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let found = self.entries.iter().skip(skip).take(count);
        let found: Vec<_> = found
            .enumerate()
            .take_while(|(place, entry)| {
                bytes += entry.bytes();
                *place == 0 || bytes <= most
            })
            .map(|(_, entry)| entry.clone())
            .collect();
        (if found.is_empty() { end } else { from }, found)
    }

    /// Entries before `end` are on the disk.
    pub(super) fn flushed(&mut self, end: u64) {
        self.flushed = end;
        self.trim();
    }

    /// Entries before this index are on the disk; there may be more.
    pub(super) fn flushed_to(&self) -> u64 {
        self.flushed
    }

    /// Returns the id of an entry, if it is here.
    pub(super) fn log_id(&self, index: u64) -> Option<LogId> {
        let first = self.entries.front()?.log_id.index;
        let place = usize::try_from(index.checked_sub(first)?).ok()?;
        self.entries.get(place).map(|entry| entry.log_id)
    }

    /// Throws entries from `since` on away.
    pub(super) fn truncate(&mut self, since: u64) {
        while self.entries.back().is_some_and(|entry| entry.log_id.index >= since) {
            self.bytes -= self.entries.pop_back().map_or(0, |entry| entry.bytes());
        }
        self.flushed = self.flushed.min(since);
    }

    /// Throws entries up to `upto` away.
    pub(super) fn purge(&mut self, upto: u64) {
        while self.entries.front().is_some_and(|entry| entry.log_id.index <= upto) {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.bytes());
        }
    }

    fn end(&self) -> Option<u64> {
        self.entries.back().map(|entry| entry.log_id.index + 1)
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    fn trim(&mut self) {
        // What is not on the disk yet can be read nowhere else.
        while self.bytes > self.limit
            && self.entries.front().is_some_and(|entry| entry.log_id.index < self.flushed)
        {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::raft::types::{Content, Proposal};

    const LIMIT: usize = 1 << 20;

    fn entry(index: u64, bytes: usize) -> Entry {
        Entry {
            log_id: LogId::new(openraft::CommittedLeaderId::new(1, 1), index),
            payload: openraft::EntryPayload::Normal(Proposal::new(Content::Log(
                vec![0; bytes].into(),
            ))),
        }
    }

    fn indexes((from, read): (u64, Vec<Entry>)) -> (u64, Vec<u64>) {
        (from, read.into_iter().map(|entry| entry.log_id.index).collect())
    }

    #[test]
    fn reads_say_where_the_cache_begins() {
        let mut cache = Cache::new(LIMIT);
        assert_eq!(indexes(cache.read(0, 9, 100)), (9, vec![]));
        cache.push((5..9).map(|index| entry(index, 10)).collect());
        assert_eq!(indexes(cache.read(3, 7, usize::MAX)), (5, vec![5, 6]));
        assert_eq!(indexes(cache.read(6, 9, 1)), (6, vec![6]));
        assert_eq!(indexes(cache.read(2, 4, 100)), (4, vec![]));
        cache.truncate(7);
        cache.purge(5);
        assert_eq!(indexes(cache.read(0, 9, usize::MAX)), (6, vec![6]));
        cache.push(vec![entry(20, 1)]);
        assert_eq!(indexes(cache.read(0, 30, usize::MAX)), (20, vec![20]));
    }

    #[test]
    fn only_what_is_on_the_disk_is_thrown_out() {
        let mut cache = Cache::new(LIMIT);
        cache.push((0..4).map(|index| entry(index, LIMIT / 2)).collect());
        assert_eq!(indexes(cache.read(0, 9, usize::MAX)).1.len(), 4);
        cache.flushed(2);
        assert_eq!(indexes(cache.read(0, 9, usize::MAX)).1, [2, 3]);
        cache.flushed(4);
        assert_eq!(indexes(cache.read(0, 9, usize::MAX)).1, [3]);
    }
}
