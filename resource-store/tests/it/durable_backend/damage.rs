//! Files that a disk or a hand has damaged: never served, never a panic that
//! gets out.

use std::path::PathBuf;

use resource_store::backend::durable::DurableOptions;

use super::*;

/// A closed store with some resources, and what they are.
async fn sound() -> (TempDir, PathBuf, Vec<Arc<Resource>>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let owner = store.write_cas(artist("owner")).await.unwrap();
    for i in 0..60 {
        let owner = owner.id.clone();
        store.write_cas(Resource { owner, ..artist(&format!("artist-{i}")) }).await.unwrap();
    }
    let stored = contents(&store).await;
    store.close().await.unwrap();
    let file = folder.path().join("resources.redb");
    (folder, file, stored)
}

/// Opens a damaged file and reads all there is: the right thing, or an error
/// that names the file. Says whether anything was noticed.
async fn noticed(file: &Path, check: bool, stored: &[Arc<Resource>]) -> bool {
    let mut options = DurableOptions::default();
    options.check_on_open = check;
    let named = |error: Error| {
        let text = error.to_string();
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(!matches!(error, Error::NotFound));
    };
    let store = match DurableBackend::open(file, options).await {
        Ok(store) => store,
        Err(error) => {
            named(error);
            return true;
        }
    };
    let mut noticed = false;
    let mut note = |error: Error| {
        noticed = true;
        named(error);
    };
    for resource in stored {
        match store.read(Consistency::Strong, &id(resource)).await {
            Ok(read) => assert_eq!(read, *resource),
            // Only the check of the whole file can tell that a key is missing.
            Err(Error::NotFound) if !check => return true,
            Err(other) => note(other),
        }
    }
    match store.snapshot().await.unwrap().try_collect::<Vec<_>>().await {
        Ok(read) if check => assert_eq!(read, stored),
        Ok(_) => {}
        Err(error) => note(error),
    }
    match store.list_by_owner(&id(&stored[stored.len() - 1])).await {
        Ok(owned) if check => assert_eq!(owned.len(), stored.len() - 1),
        Ok(_) => {}
        Err(error) => note(error),
    }
    // A sound store is closed, any other may refuse.
    drop(store.close().await);
    noticed
}

fn soak() -> bool {
    std::env::var_os("SOAK").is_some_and(|value| value == "1")
}

/// How many places are tried.
fn rounds() -> usize {
    if soak() { 20_000 } else { 150 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_are_noticed_or_do_no_harm() {
    let (_folder, file, stored) = sound().await;
    let sound = std::fs::read(&file).unwrap();
    let mut random = fastrand::Rng::with_seed(11);
    let mut found = 0;
    for round in 0..rounds() {
        let mut damaged = sound.clone();
        // The head of the file is small, and most of it matters.
        let end = if round % 3 == 0 { 4096 } else { damaged.len() };
        let (mut byte, bit) = (random.usize(..end), random.u8(..8));
        // In a long run, every bit of it that holds anything.
        if soak() && round < 512 * 8 {
            byte = round / 8;
        }
        damaged[byte] ^= 1 << if soak() { round % 8 } else { bit.into() };
        std::fs::write(&file, &damaged).unwrap();
        found += usize::from(noticed(&file, true, &stored).await);
    }
    assert!(found > 0, "none of {} flips was noticed", rounds());
}

/// The checksum of each record is what notices here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bits_in_records_are_noticed_without_the_check_of_the_file() {
    let (_folder, file, stored) = sound().await;
    let sound = std::fs::read(&file).unwrap();
    let needle = b"artist-31";
    let places: Vec<_> =
        (0..sound.len() - needle.len()).filter(|i| sound[*i..].starts_with(needle)).collect();
    assert!(!places.is_empty());
    for place in places {
        let mut damaged = sound.clone();
        damaged[place + needle.len() + 4] ^= 4;
        std::fs::write(&file, &damaged).unwrap();
        noticed(&file, false, &stored).await;
    }
}

/// A record that is damaged while the store is open: it alone is refused, by
/// its name, and nothing takes its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_record_is_named_and_the_others_are_served() {
    let (_folder, file, stored) = sound().await;
    let sound = std::fs::read(&file).unwrap();
    let resource = stored.iter().find(|resource| resource.name() == "artist-31").unwrap();
    let mut named = 0;
    let name = b"artist-31";
    for place in (0..sound.len() - name.len()).filter(|i| sound[*i..].starts_with(name)) {
        let mut damaged = sound.clone();
        damaged[place] ^= 1;
        std::fs::write(&file, &damaged).unwrap();
        let mut options = DurableOptions::default();
        options.check_on_open = false;
        let Ok(store) = DurableBackend::open(&file, options).await else { continue };
        let text = match store.read(Consistency::Strong, &id(resource)).await {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        if text.contains("record demo/Artist/default/default/artist-31 is damaged") {
            named += 1;
            let other = &stored[0];
            assert_eq!(store.read(Consistency::Strong, &id(other)).await.unwrap(), *other);
            let (refused, written) = tokio::join!(
                store.write_cas(Resource::clone(resource)),
                store.write_cas(artist("new"))
            );
            assert!(refused.unwrap_err().to_string().contains("is damaged"));
            written.unwrap();
        }
        store.close().await.unwrap();
    }
    assert!(named > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_files_are_noticed() {
    let (_folder, file, stored) = sound().await;
    let sound = std::fs::read(&file).unwrap();
    let mut random = fastrand::Rng::with_seed(12);
    let lengths = (0..rounds() / 10).map(|_| random.usize(..sound.len()));
    for length in [0, 1, 100, 4095, 4096, 8192, sound.len() - 1].into_iter().chain(lengths) {
        std::fs::write(&file, &sound[..length]).unwrap();
        assert!(noticed(&file, true, &stored).await, "{length} of {} bytes", sound.len());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_of_zeros_or_noise_are_noticed_or_do_no_harm() {
    let (_folder, file, stored) = sound().await;
    let sound = std::fs::read(&file).unwrap();
    let mut random = fastrand::Rng::with_seed(13);
    for round in 0..rounds() / 3 {
        let mut damaged = sound.clone();
        let at = random.usize(..damaged.len() / 512) * 512;
        let noise = round % 2 == 0;
        damaged[at..at + 512].fill_with(|| if noise { random.u8(..) } else { 0 });
        std::fs::write(&file, &damaged).unwrap();
        noticed(&file, true, &stored).await;
    }
}

/// Noise under a store that is open and keeps nothing in memory: what it gives
/// is right or an error, and no panic gets out, neither of readers nor of the
/// writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_under_an_open_store_does_not_get_out() {
    let (_folder, file, stored) = sound().await;
    let sound = std::fs::read(&file).unwrap();
    let mut random = fastrand::Rng::with_seed(14);
    let mut stopped = 0;
    for round in 0..rounds() / 3 {
        std::fs::write(&file, &sound).unwrap();
        let mut options = DurableOptions::default();
        options.cache_bytes = 0;
        let store = DurableBackend::open(&file, options).await.unwrap();
        let mut damaged = std::fs::read(&file).unwrap();
        // The head stays: it is not read again.
        for _ in 0..=(round % 8) {
            let at = random.usize(1..damaged.len() / 4096) * 4096;
            let length = random.usize(1..4096);
            damaged[at..at + length].fill_with(|| random.u8(..));
        }
        std::fs::write(&file, &damaged).unwrap();
        for resource in &stored {
            match store.read(Consistency::Strong, &id(resource)).await {
                Ok(read) => assert_eq!(read, *resource),
                // A key that is missing shows only when all is checked.
                Err(Error::NotFound) => {}
                Err(error) => {
                    assert!(error.to_string().contains("resources.redb"), "{error}");
                    stopped += usize::from(error.to_string().contains("is used no more"));
                }
            }
        }
        if let Ok(read) = store.snapshot().await.unwrap().try_collect::<Vec<_>>().await {
            assert!(read.iter().all(|resource| stored.contains(resource)));
        }
        for i in 0..3 {
            if let Err(error) = store.write_cas(artist(&format!("new-{i}"))).await {
                assert!(error.to_string().contains("resources.redb"), "{error}");
            }
        }
        // It ends, however; the file is free for the next round then.
        drop(store.close().await);
    }
    assert!(stopped > 0, "nothing ever failed within the storage");
}

#[tokio::test]
async fn what_is_no_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("resources.redb");
    for content in [&b""[..], b"hello", &vec![0; 65536], &vec![255; 65536]] {
        std::fs::write(&file, content).unwrap();
        let error = open_file(&file, SyncPolicy::EveryCommit).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("open failed: {}", file.display())), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), content, "it stays what it is");
    }
}
