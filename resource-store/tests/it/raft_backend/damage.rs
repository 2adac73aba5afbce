//! Files of a node that a disk or a hand has damaged: never served, never a
//! panic that gets out.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

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

/// The files below a folder that hold anything, by their paths in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(within) = folders.pop() {
        for entry in std::fs::read_dir(within).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let content = std::fs::read(&path).unwrap();
                // What is made for later holds nothing yet, and a snapshot that a stop cut short
                // is thrown away at the start.
                let is_made = path.extension().is_none_or(|end| end != "new")
                    && path.file_name().is_none_or(|name| name != "new.snapshot");
                if !content.is_empty() && is_made {
                    found.insert(path.strip_prefix(folder).unwrap().to_owned(), content);
                }
            }
        }
    }
    assert!(found.len() > 1, "{found:?}");
    found
}

fn write(folder: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (name, content) in files {
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(name), content).unwrap();
    }
}

/// How many places of a file are tried.
fn rounds() -> usize {
    let soak = std::env::var_os("SOAK").is_some_and(|value| value == "1");
    if soak { 3_000 } else { 60 }
}

fn config(folder: &Path) -> RaftConfig {
    let mut config = RaftConfig::new(folder, "127.0.0.1:0");
    config.snapshot_after_entries = 20;
    config.keep_entries = 5;
    config.segment_bytes = 32 << 10;
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
        assert!(text.contains(folder.to_str().unwrap()), "{text}");
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
    let files = files(folder.path());
    assert!(!noticed(folder.path(), &stored).await);
    let mut random = fastrand::Rng::with_seed(12);
    for (name, sound) in &files {
        let mut found = 0;
        for round in 0..rounds() {
            let place = TempDir::new().unwrap();
            write(place.path(), &files);
            let mut damaged = sound.clone();
            // What a file begins with is small, and most of it matters.
            let end = if round % 3 == 0 { sound.len().min(4096) } else { sound.len() };
            damaged[random.usize(..end)] ^= 1 << random.u8(..8);
            std::fs::write(place.path().join(name), damaged).unwrap();
            found += usize::from(noticed(place.path(), &stored).await);
        }
        // Of what is there twice, one is enough.
        let twice = name.ends_with("hard-state");
        assert!(found > 0 || twice, "{}: none of {} flips was noticed", name.display(), rounds());
    }
}

/// A damaged key must not read as if nothing were there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_key_is_noticed_at_the_start() {
    let (folder, stored) = sound().await;
    let name = thing("name-31").name().as_bytes().to_vec();
    let mut found = 0;
    for (file, sound) in files(folder.path()) {
        let ends = sound.len().saturating_sub(name.len());
        for place in (0..ends).filter(|at| sound[*at..].starts_with(&name)) {
            let mut damaged = sound.clone();
            damaged[place + name.len() - 1] ^= 8;
            std::fs::write(folder.path().join(&file), &damaged).unwrap();
            found += usize::from(noticed(folder.path(), &stored).await);
        }
        std::fs::write(folder.path().join(&file), &sound).unwrap();
    }
    assert!(found > 0, "no key was damaged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_cut_off_are_noticed() {
    let (folder, stored) = sound().await;
    let files = files(folder.path());
    for (name, sound) in &files {
        for part in [0, 1, 2, 3] {
            // In a folder of its own: a node that starts writes on, so that what it leaves is not
            // of one moment with a file that is put back.
            let place = TempDir::new().unwrap();
            write(place.path(), &files);
            std::fs::write(place.path().join(name), &sound[..sound.len() * part / 4]).unwrap();
            // Or nothing is lost, which that checks: the end of a segment may be empty, and what is
            // there twice may be whole once.
            let found = noticed(place.path(), &stored).await;
            assert!(found || part > 0, "{part} quarters of {}", name.display());
        }
    }
    assert!(!noticed(folder.path(), &stored).await);
}

/// What the version before wrote is neither read nor taken for nothing.
#[tokio::test]
async fn files_of_the_previous_format_are_refused_by_name() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/raft-previous-format");
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files(&data) {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let before = files(folder.path());
    for how in [Start::Resume, Start::Bootstrap, Start::Join("127.0.0.1:1".to_owned())] {
        let error = start(folder.path(), how).await.unwrap_err().to_string();
        for part in [folder.path().to_str().unwrap(), ".redb", "export its resources", "import"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
    assert_eq!(files(folder.path()), before, "nothing is changed");
}

/// A new log would let the node vote twice in a term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_log_is_no_empty_one() {
    let (folder, _) = sound().await;
    std::fs::remove_dir_all(folder.path().join("raft-log")).unwrap();
    for how in [Start::Resume, Start::Bootstrap, Start::Join("127.0.0.1:1".to_owned())] {
        let error = start(folder.path(), how).await.unwrap_err().to_string();
        let missing = format!("raft-log is missing in {}, beside", folder.path().display());
        assert!(error.contains(&missing) && error.contains("empty its folder"), "{error}");
    }
    assert!(!folder.path().join("raft-log").exists());
}
