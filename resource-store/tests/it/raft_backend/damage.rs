//! Files of a node that a disk or a hand has damaged: never served, never a
//! panic that gets out.

use std::path::Path;

use futures::TryStreamExt as _;
use resource_store::{
    backend::{
        Backend, Consistency, Error,
        raft::{RaftBackend, RaftConfig, Start},
    },
    pb::Resource,
};
use tempfile::TempDir;

use super::cluster::{everything, put, thing, within};

const FILES: [&str; 2] = ["raft-log.redb", "raft-resources.redb"];

/// How many places of a file are tried.
fn rounds() -> usize {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    if soak { 3_000 } else { 60 }
}

fn config(folder: &Path) -> RaftConfig {
    let mut config = RaftConfig::new(folder, "127.0.0.1:0");
    config.snapshot_after_entries = 20;
    config.keep_entries = 5;
    config
}

async fn start(folder: &Path, how: Start) -> Result<RaftBackend, Error> {
    within(RaftBackend::start(config(folder), how)).await
}

/// The folder of a stopped node with some resources, and what they are.
async fn sound() -> (TempDir, Vec<Resource>) {
    let folder = tempfile::tempdir().unwrap();
    let node = start(folder.path(), Start::Bootstrap).await.unwrap();
    for number in 0..60 {
        put(&node, &format!("name-{number:02}")).await;
    }
    let stored = all(&node).await.unwrap();
    assert_eq!(stored.len(), 60);
    within(node.shutdown()).await;
    (folder, stored)
}

async fn all(node: &RaftBackend) -> Result<Vec<Resource>, Error> {
    let found = node.snapshot().await?;
    found.map_ok(|resource| Resource::clone(&resource)).try_collect().await
}

/// Starts a node with damaged files and reads all there is: the right thing, or
/// an error that names the file. Says whether anything was noticed.
async fn noticed(folder: &Path, stored: &[Resource]) -> bool {
    let named = |error: Error| {
        let text = error.to_string();
        assert!(FILES.iter().any(|file| text.contains(file)), "{text}");
    };
    let node = match start(folder, Start::Resume).await {
        Ok(node) => node,
        Err(error) => {
            named(error);
            return true;
        }
    };
    let mut one_by_one = Ok(());
    for resource in stored {
        match node.read(Consistency::Eventual, resource.id.as_ref().unwrap()).await {
            Ok(read) => assert_eq!(*read, *resource),
            // Not found would be no error that names a file.
            Err(error) => one_by_one = Err(error),
        }
    }
    let read = all(&node).await;
    let listed = node.list(Consistency::Eventual, &everything()).await;
    within(node.shutdown()).await;
    match (one_by_one, read, listed) {
        (Ok(()), Ok(read), Ok(listed)) => {
            assert_eq!(read, stored);
            assert_eq!(listed.len(), stored.len());
            false
        }
        (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => {
            named(error);
            true
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_in_the_files_of_a_node_are_noticed_or_do_no_harm() {
    let (folder, stored) = sound().await;
    let files = FILES.map(|name| std::fs::read(folder.path().join(name)).unwrap());
    assert!(!noticed(folder.path(), &stored).await);
    let mut random = fastrand::Rng::with_seed(12);
    for (damaged_file, name) in FILES.iter().enumerate() {
        let mut found = 0;
        for round in 0..rounds() {
            let place = TempDir::new_in(folder.path()).unwrap();
            for (content, name) in files.iter().zip(FILES) {
                std::fs::write(place.path().join(name), content).unwrap();
            }
            let mut damaged = files[damaged_file].clone();
            // The head of the file is small, and most of it matters.
            let end = if round % 3 == 0 { 4096 } else { damaged.len() };
            damaged[random.usize(..end)] ^= 1 << random.u8(..8);
            std::fs::write(place.path().join(name), damaged).unwrap();
            found += usize::from(noticed(place.path(), &stored).await);
        }
        assert!(found > 0, "{name}: none of {} flips was noticed", rounds());
    }
}

/// Without the check of the file a damaged key reads as if nothing were there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_key_is_noticed_at_the_start() {
    let (folder, stored) = sound().await;
    let file = folder.path().join("raft-resources.redb");
    let sound = std::fs::read(&file).unwrap();
    let name = thing("name-31").name().as_bytes().to_vec();
    let places: Vec<_> =
        (0..sound.len() - name.len()).filter(|at| sound[*at..].starts_with(&name)).collect();
    let mut found = 0;
    for place in places {
        let mut damaged = sound.clone();
        damaged[place + name.len() - 1] ^= 8;
        std::fs::write(&file, &damaged).unwrap();
        found += usize::from(noticed(folder.path(), &stored).await);
    }
    assert!(found > 0, "no key was damaged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_cut_off_are_noticed() {
    let (folder, stored) = sound().await;
    for name in FILES {
        let file = folder.path().join(name);
        let sound = std::fs::read(&file).unwrap();
        for part in [0, 1, 2, 3] {
            std::fs::write(&file, &sound[..sound.len() * part / 4]).unwrap();
            assert!(noticed(folder.path(), &stored).await, "{part} quarters of {name}");
        }
        std::fs::write(&file, &sound).unwrap();
    }
    assert!(!noticed(folder.path(), &stored).await);
}

/// A new log would let the node vote twice in a term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_log_is_no_empty_one() {
    let (folder, _) = sound().await;
    std::fs::remove_file(folder.path().join("raft-log.redb")).unwrap();
    for how in [Start::Resume, Start::Bootstrap, Start::Join("127.0.0.1:1".to_owned())] {
        let error = start(folder.path(), how).await.unwrap_err().to_string();
        let missing = format!("raft-log.redb is missing in {}, beside", folder.path().display());
        assert!(error.contains(&missing) && error.contains("empty its folder"), "{error}");
    }
    assert!(!folder.path().join("raft-log.redb").exists());
}
