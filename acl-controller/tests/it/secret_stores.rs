//! The stores of this crate against what every store must do.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use acl_controller::{
    FileSecrets, MemorySecrets, SecretStore, secret_store::Replaced, testing::secret_store as suite,
};

fn memory() -> (Arc<dyn SecretStore>, ()) {
    let store = MemorySecrets::new();
    store.create("app-web");
    (Arc::new(store), ())
}

fn files() -> (Arc<dyn SecretStore>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (Arc::new(FileSecrets::new(folder.path())), folder)
}

macro_rules! suite {
    ($($store:ident),+) => {$(
        mod $store {
            use super::suite;

            #[tokio::test]
            async fn what_is_written_can_be_read() {
                let (store, _guard) = super::$store();
                suite::what_is_written_can_be_read(&store, "app-web").await;
            }

            #[tokio::test]
            async fn an_older_version_is_a_conflict() {
                let (store, _guard) = super::$store();
                suite::an_older_version_is_a_conflict(&store, "app-web").await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn one_of_many_writers_gets_through() {
                let (store, _guard) = super::$store();
                suite::one_of_many_writers_gets_through(store, "app-web").await;
            }

            #[tokio::test]
            async fn a_list_tells_the_same_versions() {
                let (store, _guard) = super::$store();
                suite::a_list_tells_the_same_versions(&store, "app-web").await;
            }

            #[tokio::test]
            async fn nothing_shows_a_value() {
                let (store, _guard) = super::$store();
                suite::nothing_shows_a_value(&store, "app-web").await;
            }
        }
    )+};
}

suite!(memory, files);

#[tokio::test]
async fn files_are_for_their_owner_alone_and_nothing_stays_beside_them() {
    let (store, folder) = files();
    let empty = store.get("app-web").await.unwrap().unwrap();
    assert!(empty.value.is_none());
    let written = store.replace("app-web", &empty.version, &"x".into()).await.unwrap();
    assert!(matches!(written, Replaced::Done(_)));
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(names, [".lock", "app-web"]);
    assert_eq!(store.versions("").await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_file_that_was_changed_in_place_is_another_version() {
    let (store, folder) = files();
    fs::write(folder.path().join("app-web"), "{}").unwrap();
    let before = store.get("app-web").await.unwrap().unwrap();
    fs::write(folder.path().join("app-web"), "{ }").unwrap();
    let outcome = store.replace("app-web", &before.version, &"x".into()).await.unwrap();
    assert_eq!(outcome, Replaced::Conflict);
}

#[tokio::test]
async fn names_stay_in_the_folder_and_odd_files_are_refused() {
    let (store, folder) = files();
    for name in ["", "..", ".lock", "a/b", "/etc/passwd", "a\0b"] {
        assert!(store.get(name).await.is_err(), "{name:?}");
    }
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link")).unwrap();
    assert!(store.get("link").await.is_err());
    fs::create_dir(folder.path().join("dir")).unwrap();
    assert!(store.get("dir").await.is_err());
    fs::write(folder.path().join("large"), vec![b'x'; 70_000]).unwrap();
    assert!(store.get("large").await.is_err());
    fs::write(folder.path().join("bytes"), [0xff, 0xfe]).unwrap();
    assert!(store.get("bytes").await.is_err());
    let missing = FileSecrets::new(folder.path().join("missing"));
    let empty = missing.get("x").await.unwrap().unwrap();
    let error = missing.replace("x", &empty.version, &"planted".into()).await.unwrap_err();
    let text = consul_watch::error_chain(&error);
    assert!(text.contains("missing/x") && !text.contains("planted"), "{text}");
}
