//! A disk in memory that loses, tears and reorders what was not synced when it crashes, and fails
//! any operation that a test asks for.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
};

use super::super::disk::{Disk, DiskFile};
use crate::backend::store::sync::lock;

const SECTOR: usize = 512;

/// A disk. A clone is the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct FaultyDisk {
    state: Arc<Mutex<State>>,
}

/// The disk as one process sees it, until it is killed.
#[derive(Debug)]
struct Mounted {
    disk: FaultyDisk,
    generation: u64,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<Content>,
    /// Names as programs see them.
    names: BTreeMap<String, usize>,
    /// Names as they are on the disk.
    durable_names: BTreeMap<String, usize>,
    /// States of the names since the last sync of the folder.
    unsynced_names: Vec<BTreeMap<String, usize>>,
    /// Handles of an earlier generation are of a process that is gone.
    generation: u64,
    /// Operations that change something, until the power goes.
    operations_left: Option<u64>,
    writes: u64,
    syncs: u64,
    no_space: bool,
    failing_syncs: bool,
    /// Syncs return at once and do nothing.
    lying_syncs: bool,
}

#[derive(Debug, Default)]
struct Content {
    /// As programs see it.
    now: Vec<u8>,
    /// As it is on the disk.
    durable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
}

fn power_cut() -> io::Error {
    io::Error::other("the power is gone")
}

impl State {
    /// Counts an operation, unless the power is gone.
    fn step(&mut self) -> io::Result<()> {
        match &mut self.operations_left {
            Some(0) => Err(power_cut()),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn file(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut self.names);
        self.unsynced_names.push(self.names.clone());
    }
}

impl FaultyDisk {
    /// Lets the power go after so many more operations.
    pub(super) fn cut_power_after(&self, operations: u64) {
        lock(&self.state).operations_left = Some(operations);
    }

    /// Lets nothing be created any more, or everything again.
    pub(super) fn set_full(&self, full: bool) {
        lock(&self.state).no_space = full;
    }

    /// Fails every sync from now on, and loses what it was to bring to the disk.
    pub(super) fn set_failing_syncs(&self, failing: bool) {
        lock(&self.state).failing_syncs = failing;
    }

    pub(super) fn set_lying_syncs(&self) {
        lock(&self.state).lying_syncs = true;
    }

    /// Returns how often content was written and synced.
    pub(super) fn counts(&self) -> (u64, u64) {
        let state = lock(&self.state);
        (state.writes, state.syncs)
    }

    /// Ends the process that uses the disk; what it wrote is still there.
    pub(super) fn kill(&self) {
        let mut state = lock(&self.state);
        state.generation += 1;
        state.operations_left = None;
        state.failing_syncs = false;
    }

    /// Ends the process and the machine: of what was not synced, any sectors are there after it,
    /// in no order, and of the changes of names the first ones.
    pub(super) fn crash(&self, random: &mut fastrand::Rng) {
        self.kill();
        let mut state = lock(&self.state);
        for file in &mut state.files {
            // All, none, or some of the sectors.
            let odds = [0.0, 0.1, 0.5, 0.9, 1.0][random.usize(..5)];
            for (at, bytes) in std::mem::take(&mut file.unsynced) {
                let mut from = at;
                while from < at + bytes.len() {
                    let to = ((from / SECTOR + 1) * SECTOR).min(at + bytes.len());
                    if random.f64() < odds {
                        file.durable[from..to].copy_from_slice(&bytes[from - at..to - at]);
                    }
                    from = to;
                }
            }
            file.now.clone_from(&file.durable);
        }
        let kept = random.usize(..=state.unsynced_names.len());
        if let Some(kept) = kept.checked_sub(1) {
            state.durable_names = state.unsynced_names[kept].clone();
        }
        state.unsynced_names.clear();
        state.names = state.durable_names.clone();
    }

    /// Returns the names and contents of all files.
    pub(super) fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        let state = lock(&self.state);
        state
            .names
            .iter()
            .map(|(name, file)| (name.clone(), state.files[*file].now.clone()))
            .collect()
    }

    /// Returns a disk with these files.
    pub(super) fn with_contents(contents: &BTreeMap<String, Vec<u8>>) -> Self {
        let disk = Self::default();
        {
            let mut state = lock(&disk.state);
            for (name, bytes) in contents {
                let place = state.files.len();
                state.files.push(Content {
                    now: bytes.clone(),
                    durable: bytes.clone(),
                    unsynced: Vec::new(),
                });
                state.names.insert(name.clone(), place);
            }
            state.durable_names = state.names.clone();
        }
        disk
    }

    /// Returns the disk for another process.
    pub(super) fn mount(&self) -> Arc<dyn Disk> {
        let generation = lock(&self.state).generation;
        Arc::new(Mounted { disk: self.clone(), generation })
    }
}

impl Mounted {
    fn handle(&self, file: usize) -> Arc<dyn DiskFile> {
        Arc::new(Handle { disk: self.disk.clone(), file, generation: self.generation })
    }

    /// Counts an operation of this process, which must be alive.
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = lock(&self.disk.state);
        if state.generation != self.generation {
            return Err(power_cut());
        }
        state.step()?;
        Ok(state)
    }
}

impl Disk for Mounted {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(lock(&self.disk.state).names.keys().cloned().collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state()?;
        if state.no_space {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let zeros = vec![0; usize::try_from(bytes).unwrap()];
        let file = state.files.len();
        state.files.push(Content { now: zeros.clone(), durable: zeros, unsynced: Vec::new() });
        state.rename(|names| {
            names.insert(name.to_owned(), file);
        });
        Ok(self.handle(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = lock(&self.disk.state).file(name)?;
        Ok(self.handle(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state()?;
        let file = state.file(from)?;
        state.rename(|names| {
            names.remove(from);
            names.insert(to.to_owned(), file);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state()?;
        state.file(name)?;
        state.rename(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut state = self.state()?;
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("/disk").join(name)
    }
}

#[derive(Debug)]
struct Handle {
    disk: FaultyDisk,
    file: usize,
    generation: u64,
}

impl DiskFile for Handle {
    fn size(&self) -> io::Result<u64> {
        Ok(lock(&self.disk.state).files[self.file].now.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let state = lock(&self.disk.state);
        let from = usize::try_from(at).unwrap();
        let bytes = state.files[self.file].now.get(from..from + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut state = lock(&self.disk.state);
        if state.generation != self.generation {
            return Err(power_cut());
        }
        let cut = state.step();
        state.writes += 1;
        let file = &mut state.files[self.file];
        let from = usize::try_from(at).unwrap();
        file.now
            .get_mut(from..from + bytes.len())
            .ok_or(io::ErrorKind::StorageFull)?
            .copy_from_slice(bytes);
        file.unsynced.push((from, bytes.to_vec()));
        // The last write may have got to the disk, too.
        cut
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.disk.state);
        if state.generation != self.generation {
            return Err(power_cut());
        }
        state.step()?;
        state.syncs += 1;
        if state.lying_syncs {
            return Ok(());
        }
        let failing = state.failing_syncs;
        let file = &mut state.files[self.file];
        let unsynced = std::mem::take(&mut file.unsynced);
        if failing {
            // As Linux does it: programs see what the disk never gets, and the next sync is
            // content.
            return Err(io::Error::other("input/output error"));
        }
        for (at, bytes) in unsynced {
            file.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}
