//! Bits that flip and sectors that vanish at random places of segments and vote: found, or
//! harmless, and never a panic.

use std::{collections::BTreeMap, ops::Range};

use openraft::storage::RaftLogStorage as _;

use super::{
    super::{
        hard_state,
        record::{HEADER, Header, Kind, Seed, seal},
        segment::{HEAD, sequence},
    },
    LogId, Vote, append, entry_with,
    faulty_disk::FaultyDisk,
    id,
    model::{LEADER, Model, open},
};

type Files = BTreeMap<String, Vec<u8>>;

fn rounds() -> usize {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    if soak { 20_000 } else { 200 }
}

/// A log of a few segments with a vote, and what it holds; closed or just left.
async fn sound(random: &mut fastrand::Rng, close: bool) -> (Files, Model, LogId) {
    let disk = FaultyDisk::default();
    let mut log = open(&disk).unwrap();
    let mut model = Model::default();
    let vote = Vote::new_committed(3, LEADER);
    log.save_vote(&vote).await.unwrap();
    model.vote = Some(vote);
    for index in 0..60 {
        let entry = entry_with(id(3, index), random.usize(1..900), random);
        model.entries.insert(index, (entry.log_id, super::content_of(&entry)));
        append(&mut log, [entry]).await.unwrap();
    }
    log.truncate(id(3, 50)).await.unwrap();
    model.entries.split_off(&50);
    // It goes to the disk at once, because it frees segments.
    log.purge(id(3, 30)).await.unwrap();
    model.entries = model.entries.split_off(&31);
    model.purged = Some(id(3, 30));
    for index in 50..53 {
        let entry = entry_with(id(4, index), 700, random);
        model.entries.insert(index, (entry.log_id, super::content_of(&entry)));
        append(&mut log, [entry]).await.unwrap();
    }
    let last = id(4, 52);
    log.save_committed(Some(last)).await.unwrap();
    model.committed = Some(last);
    if close {
        log.close().await;
    }
    disk.kill();
    drop(log);
    (disk.contents(), model, last)
}

/// Opens damaged files and reads all: `true` if the damage was found, `false` if it did no harm.
async fn found(files: &Files, model: &Model) -> Result<bool, String> {
    let disk = FaultyDisk::with_contents(files);
    let mut log = match open(&disk) {
        Ok(log) => log,
        Err(error) => {
            let text = error.to_string();
            let names = files.keys().any(|name| text.contains(name.as_str()));
            return if names { Ok(true) } else { Err(format!("no file is named: {text}")) };
        }
    };
    let checked = model.check(&mut log).await;
    log.close().await;
    checked.map(|()| false)
}

/// The places of a file that hold anything.
fn used(bytes: &[u8]) -> Range<usize> {
    0..bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1)
}

#[tokio::test]
async fn flipped_bits_are_found_or_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(24);
    for close in [true, false] {
        let (files, model, _) = sound(&mut random, close).await;
        assert_eq!(found(&files, &model).await, Ok(false));
        let names: Vec<_> = files.keys().cloned().collect();
        let mut count = 0;
        for round in 0..rounds() {
            let name = &names[round % names.len()];
            let mut damaged = files.clone();
            let bytes = damaged.get_mut(name).unwrap();
            let places = if random.u32(..4) == 0 { 0..bytes.len() } else { used(bytes) };
            let (place, bit) = (random.usize(places), random.u8(..8));
            bytes[place] ^= 1 << bit;
            match found(&damaged, &model).await {
                Ok(was_found) => count += usize::from(was_found),
                Err(why) => panic!("closed: {close}, {name}, bit {bit} of byte {place}: {why}"),
            }
        }
        assert!(count > rounds() / 4, "only {count} of {} flips were found", rounds());
    }
}

/// A file that was synced never lacks a sector.
#[tokio::test]
async fn sectors_that_vanish_are_found_or_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(25);
    let (files, model, _) = sound(&mut random, true).await;
    let names: Vec<_> = files.keys().cloned().collect();
    let mut count = 0;
    for round in 0..rounds() {
        let name = &names[round % names.len()];
        let mut damaged = files.clone();
        let bytes = damaged.get_mut(name).unwrap();
        let from = random.usize(used(bytes)) / 512 * 512;
        let to = if random.bool() { bytes.len() } else { (from + 512).min(bytes.len()) };
        match random.u32(..3) {
            0 => bytes.truncate(from),
            _ => bytes[from..to].fill(0),
        }
        match found(&damaged, &model).await {
            Ok(was_found) => count += usize::from(was_found),
            Err(why) => panic!("{name}, {from} to {to}: {why}"),
        }
    }
    assert!(count > rounds() / 4, "only {count} of {} were found", rounds());
}

#[tokio::test]
async fn files_that_are_gone_are_missed() {
    let mut random = fastrand::Rng::with_seed(26);
    let (files, model, _) = sound(&mut random, true).await;
    let segments = files.keys().filter(|name| sequence(name).is_some()).count();
    assert!(segments > 2, "{segments} segments");
    for name in files.keys() {
        let mut damaged = files.clone();
        damaged.remove(name);
        let disk = FaultyDisk::with_contents(&damaged);
        match open(&disk) {
            Err(error) => {
                let text = error.to_string();
                assert!(
                    text.contains(name.as_str()) || text.contains("are in no segment"),
                    "{text}"
                );
            }
            Ok(mut log) => {
                model.check(&mut log).await.unwrap();
                assert_eq!(name, super::super::segment::SPARE);
            }
        }
    }
}

/// Damage that both checksums are made to agree with is what a log without them would take.
#[tokio::test]
async fn the_checker_catches_what_checksums_do_not() {
    let mut random = fastrand::Rng::with_seed(27);
    let (mut files, model, last) = sound(&mut random, true).await;
    let disk = FaultyDisk::with_contents(&files);
    let node = open(&disk).unwrap().identity().node;
    let name = files.keys().rfind(|name| sequence(name).is_some()).unwrap().clone();
    let seed = Seed::new(node, sequence(&name).unwrap());
    let bytes = files.get_mut(&name).unwrap();
    let mut start = usize::try_from(HEAD).unwrap();
    let header = loop {
        let header = Header::read(&bytes[start..], seed, start as u64).unwrap();
        if header.kind == Kind::Change && header.log_id() == last {
            break header;
        }
        start += header.record_size();
    };
    let end = start + header.record_size();
    let payload = start + HEADER..start + HEADER + usize::try_from(header.length).unwrap();
    bytes[payload.start] ^= 1;
    let crc = crc32c::crc32c(&bytes[payload]);
    bytes[start + 12..start + 16].copy_from_slice(&crc.to_le_bytes());
    seal(&mut bytes[start..end], seed, start as u64, |_, _| {});
    let why = found(&files, &model).await.unwrap_err();
    assert!(why.starts_with("entries:"), "{why}");
}

#[tokio::test]
async fn one_damaged_copy_of_the_vote_is_made_again_and_two_are_refused() {
    let mut random = fastrand::Rng::with_seed(28);
    let (files, model, _) = sound(&mut random, true).await;
    let flip = |places: &[usize]| {
        let mut damaged = files.clone();
        for place in places {
            damaged.get_mut(hard_state::FILE).unwrap()[*place] ^= 4;
        }
        damaged
    };
    for place in [9, 4096 + 9] {
        let disk = FaultyDisk::with_contents(&flip(&[place]));
        let mut log = open(&disk).unwrap();
        model.check(&mut log).await.unwrap();
        log.close().await;
        // Each open adds to what the copies say, and both say the same.
        let mended = &disk.contents()[hard_state::FILE];
        assert_eq!(mended[..4096], mended[4096..]);
    }
    let disk = FaultyDisk::with_contents(&flip(&[9, 4096 + 9]));
    let text = open(&disk).unwrap_err().to_string();
    assert!(text.contains("hard-state is damaged at offset 0: neither copy can be used"), "{text}");
    assert!(text.contains("remove this node from the cluster"), "{text}");
}
