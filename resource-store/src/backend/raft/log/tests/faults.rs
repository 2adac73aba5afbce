//! Full disks, syncs that fail, torn writes, and how many writes and syncs the log makes.

use futures::{StreamExt as _, stream::FuturesUnordered};
use openraft::{RaftLogReader as _, storage::RaftLogStorage as _};
use tempfile::TempDir;

use super::{
    super::segment,
    Entry, Faults, HeldDisk, Log, LogOptions, append, content_of, entry_with,
    faulty_disk::FaultyDisk,
    id,
    model::{OPTIONS, open},
};

fn entry(index: u64, bytes: usize) -> Entry {
    entry_with(id(1, index), bytes, &mut fastrand::Rng::with_seed(index))
}

async fn read(log: &mut Log) -> Vec<u64> {
    let entries = log.try_get_log_entries(..).await.unwrap();
    for found in &entries {
        let (index, bytes) = (found.log_id.index, content_of(found).len());
        assert_eq!(content_of(found), content_of(&entry(index, bytes)));
    }
    entries.iter().map(|entry| entry.log_id.index).collect()
}

#[tokio::test]
async fn a_lone_write_takes_one_write_and_one_sync() {
    let disk = FaultyDisk::default();
    let options = LogOptions::default();
    let mut log = Log::open_on(disk.mount(), &options, Faults::default()).unwrap();
    let before = disk.counts();
    for index in 0..100 {
        append(&mut log, [entry(index, 500)]).await.unwrap();
        log.save_committed(Some(id(1, index))).await.unwrap();
    }
    let after = disk.counts();
    assert_eq!((after.0 - before.0, after.1 - before.1), (100, 100));
}

#[tokio::test]
async fn writes_that_wait_share_one_write_and_one_sync() {
    let disk = FaultyDisk::default();
    let held = HeldDisk::default();
    let faults = Faults::new().with_disk(held.clone());
    let log = Log::open_on(disk.mount(), &LogOptions::default(), faults).unwrap();
    let before = disk.counts();
    held.hang();
    let write = |index| {
        let mut log = log.clone();
        async move { append(&mut log, [entry(index, 500)]).await.unwrap() }
    };
    let mut first = Box::pin(write(0));
    assert!(futures::poll!(&mut first).is_pending());
    // The first is under way, or is taken together with the rest.
    let mut writers: Vec<_> = (1..64).map(|index| Box::pin(write(index))).collect();
    for writer in &mut writers {
        assert!(futures::poll!(writer).is_pending());
    }
    held.release();
    first.await;
    writers.into_iter().collect::<FuturesUnordered<_>>().collect::<Vec<()>>().await;
    let after = disk.counts();
    assert!(after.0 - before.0 <= 2 && after.1 - before.1 <= 2, "{before:?} {after:?}");
}

#[tokio::test]
async fn a_full_disk_is_said_before_it_stops_the_log_and_what_is_there_stays() {
    let disk = FaultyDisk::default();
    let mut log = open(&disk).unwrap();
    let mut full = log.disk_full();
    assert!(!*full.borrow_and_update());
    disk.set_full(true);
    let mut index = 0;
    // The first segment ends, and the reserved one is taken.
    while !*full.borrow_and_update() {
        append(&mut log, [entry(index, 500)]).await.unwrap();
        index += 1;
        tokio::task::yield_now().await;
        assert!(index < 100, "nobody says that the disk is full");
    }
    let room = OPTIONS.segment_bytes / 600 - 2;
    for _ in 0..room {
        append(&mut log, [entry(index, 500)]).await.unwrap();
        index += 1;
    }
    let error = loop {
        match append(&mut log, [entry(index, 500)]).await {
            Ok(()) => index += 1,
            Err(error) => break error,
        }
    };
    assert!(error.contains("next segment of the log cannot be created"), "{error}");
    assert_eq!(
        read(&mut log).await[..usize::try_from(index).unwrap()],
        (0..index).collect::<Vec<_>>()
    );
    log.close().await;
    disk.kill();
    let mut log = open(&disk).unwrap();
    assert!(*log.disk_full().borrow(), "the disk is as full as before");
    assert_eq!(read(&mut log).await, (0..index).collect::<Vec<_>>());
    disk.set_full(false);
    let mut full = log.disk_full();
    full.wait_for(|full| !full).await.unwrap();
    append(&mut log, [entry(index, 500)]).await.unwrap();
}

/// The system may show what it never wrote after a sync that failed.
#[tokio::test]
async fn a_sync_that_failed_ends_all_writing_and_nothing_is_promised_that_is_not_there() {
    let disk = FaultyDisk::default();
    let mut log = open(&disk).unwrap();
    append(&mut log, [entry(0, 500)]).await.unwrap();
    disk.set_failing_syncs(true);
    let error = append(&mut log, [entry(1, 500)]).await.unwrap_err();
    assert!(error.contains("0000000000000001.wal: it cannot be synced: input/output"), "{error}");
    disk.set_failing_syncs(false);
    for index in [1, 2] {
        let error = append(&mut log, [entry(index, 500)]).await.unwrap_err();
        assert!(
            error.contains("takes no writes any more") || error.contains("cannot follow"),
            "{error}"
        );
    }
    assert_eq!(read(&mut log).await.first(), Some(&0));
    drop(log);
    disk.kill();
    // The page of the failed sync is shown still; it counts once it is written again.
    let mut log = open(&disk).unwrap();
    let before = read(&mut log).await;
    assert_eq!(before.first(), Some(&0));
    drop(log);
    disk.crash(&mut fastrand::Rng::with_seed(1));
    let mut log = open(&disk).unwrap();
    assert_eq!(read(&mut log).await, before);
}

#[tokio::test]
async fn a_torn_write_is_cut_off_and_what_was_synced_is_not() {
    let mut cut = 0;
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = FaultyDisk::default();
        let mut log = open(&disk).unwrap();
        append(&mut log, (0..3).map(|index| entry(index, 700))).await.unwrap();
        // The write is made, and its sync is not.
        disk.cut_power_after(0);
        append(&mut log, (3..6).map(|index| entry(index, 1200))).await.unwrap_err();
        disk.crash(&mut random);
        drop(log);
        let mut log = open(&disk).unwrap();
        let found = read(&mut log).await;
        assert!(found.starts_with(&[0, 1, 2]), "seed {seed}: {found:?}");
        cut += usize::from(found.len() < 6);
        append(&mut log, [entry(found.len() as u64, 100)]).await.unwrap();
    }
    assert!(cut > 0);
}

#[tokio::test]
async fn segments_whose_entries_are_purged_are_removed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    let mut log = Log::open(&path, &OPTIONS, Faults::default()).unwrap();
    let segments = || {
        let names = std::fs::read_dir(&path).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| segment::sequence(name).is_some()).count()
    };
    for index in 0..100 {
        append(&mut log, [entry(index, 700)]).await.unwrap();
    }
    let before = segments();
    assert!(before > 5, "{before}");
    log.purge(id(1, 97)).await.unwrap();
    log.close().await;
    assert!(segments() <= 2, "{} of {before}", segments());
    let mut log = Log::open(&path, &OPTIONS, Faults::default()).unwrap();
    assert_eq!(read(&mut log).await, [98, 99]);
}

#[tokio::test]
async fn one_handle_has_the_folder_and_only_the_owner_reads_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("log");
    assert!(!Log::exists(&path).unwrap());
    let log = Log::open(&path, &OPTIONS, Faults::default()).unwrap();
    assert!(Log::exists(&path).unwrap());
    let error = Log::open(&path, &OPTIONS, Faults::default()).unwrap_err().to_string();
    assert!(error.contains("is in use by another process"), "{error}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{:?}", entry.file_name());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
    log.close().await;
    Log::open(&path, &OPTIONS, Faults::default()).unwrap();
}
