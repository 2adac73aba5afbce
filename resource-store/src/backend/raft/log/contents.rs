//! The contents of the log, as its records led to them one after the other: which entries there
//! are and where they stand, and which are purged and committed.
//!
//! The same steps are taken when a log is opened and after each write, so both lead to the same.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    record::{Header, Kind, log_id},
    segment::{Ids, Segment},
};
use crate::backend::raft::types::{LogId, NodeId};

/// Place of an entry's record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    /// Sequence number of the segment.
    pub(super) sequence: u64,
    /// Offset in it.
    pub(super) at: u32,
    /// Size of the record.
    pub(super) size: u32,
}

/// Entries of the log by their places, and the ids around them.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) ids: Ids,
    /// Index of the first location.
    first: u64,
    /// Index of the first entry that the log ever had.
    pub(super) origin: u64,
    locations: VecDeque<Location>,
    /// Index of the first entry of each term and leader, in order.
    leaders: VecDeque<(u64, (u64, NodeId))>,
    /// Segments that can be read, by sequence number.
    pub(super) segments: BTreeMap<u64, Arc<Segment>>,
    /// Highest index of an entry in each segment, also of those that were truncated.
    pub(super) highest: BTreeMap<u64, u64>,
}

impl Contents {
    pub(super) fn new(ids: Ids) -> Self {
        Self { ids, ..Self::default() }
    }

    /// Takes the step of one record, or says why it cannot follow those before.
    pub(super) fn apply(&mut self, header: &Header, sequence: u64, at: u64) -> Result<(), String> {
        let too_large = |_| "a segment of more than 4 GiB".to_owned();
        let location = Location {
            sequence,
            at: u32::try_from(at).map_err(too_large)?,
            size: u32::try_from(header.record_size()).map_err(too_large)?,
        };
        match header.kind {
            Kind::Truncate => self.truncate(header),
            Kind::Purge => self.purge(header.log_id()),
            Kind::Committed => self.ids.committed = Some(header.log_id()),
            Kind::Blank | Kind::Change | Kind::Restore | Kind::Membership => {
                let next = self.ids.next_index();
                if self.ids.last.is_none() {
                    self.origin = header.index;
                } else if header.index != next {
                    let index = header.index;
                    return Err(format!("entry {index} stands where entry {next} has to"));
                }
                self.push(header, location);
                let highest = self.highest.entry(sequence).or_default();
                *highest = header.index.max(*highest);
            }
        }
        Ok(())
    }

    fn push(&mut self, header: &Header, location: Location) {
        if self.locations.is_empty() {
            self.first = header.index;
        }
        self.locations.push_back(location);
        let leader = (header.term, header.leader);
        if self.leaders.back().is_none_or(|(_, last)| *last != leader) {
            self.leaders.push_back((header.index, leader));
        }
        self.ids.last = Some(header.log_id());
    }

    fn truncate(&mut self, header: &Header) {
        let since = header.index;
        let keep = usize::try_from(since.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.locations.truncate(keep);
        while self.leaders.back().is_some_and(|(first, _)| *first >= since) {
            self.leaders.pop_back();
        }
        self.ids.last = since.checked_sub(1).map(|last| log_id(header.term, header.leader, last));
    }

    fn purge(&mut self, upto: LogId) {
        self.ids.purged = self.ids.purged.max(Some(upto));
        // A snapshot may replace more than there is.
        self.ids.last = self.ids.last.max(Some(upto));
        let count = (upto.index + 1).saturating_sub(self.first);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.locations.len());
        self.locations.drain(..count);
        self.first += count as u64;
        // The last run that begins before what is left holds its first entry.
        while self.leaders.get(1).is_some_and(|(first, _)| *first <= self.first) {
            self.leaders.pop_front();
        }
        if self.locations.is_empty() {
            self.leaders.clear();
        }
    }

    /// Returns the entries that have to be there and are not.
    pub(super) fn missing(&self) -> Option<(u64, u64)> {
        let first = self.ids.purged.map_or(self.origin, |purged| purged.index + 1);
        let there = if self.locations.is_empty() { self.ids.next_index() } else { self.first };
        (there > first).then(|| (first, there - 1))
    }

    /// Returns the id of an entry that is there or was purged last.
    pub(super) fn log_id(&self, index: u64) -> Option<LogId> {
        let end = self.first + self.locations.len() as u64;
        if self.locations.is_empty() || !(self.first..end).contains(&index) {
            return self.ids.purged.filter(|purged| purged.index == index);
        }
        let run = self.leaders.partition_point(|(first, _)| *first <= index).checked_sub(1)?;
        let (_, (term, leader)) = *self.leaders.get(run)?;
        Some(log_id(term, leader, index))
    }

    /// Returns the places of entries from `start` to before `end`, with their segments; the first
    /// of them if they have more than `limit` bytes.
    pub(super) fn locate(
        &self,
        start: u64,
        end: u64,
        limit: usize,
    ) -> Vec<(u64, Location, Arc<Segment>)> {
        let Some(skip) = start.checked_sub(self.first) else { return Vec::new() };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let (mut found, mut bytes) = (Vec::new(), 0_usize);
        for (index, location) in (start..end).zip(self.locations.iter().skip(skip)) {
            bytes = bytes.saturating_add(usize::try_from(location.size).unwrap_or(usize::MAX));
            if !found.is_empty() && bytes > limit {
                break;
            }
            let Some(segment) = self.segments.get(&location.sequence) else { break };
            found.push((index, *location, Arc::clone(segment)));
        }
        found
    }
}
