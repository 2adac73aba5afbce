//! Contract of every [`SecretStore`]: one function for each sentence of it.
//!
//! Each takes a store and the name of a secret in it that has no value yet, or `{}`.

#![expect(clippy::expect_used, clippy::panic, reason = "a suite tells what is wrong by panicking")]

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use crate::{
    SecretStore,
    secret_store::{Replaced, SecretVersion},
};

async fn version(store: &dyn SecretStore, name: &str) -> SecretVersion {
    store.get(name).await.expect("it can be read").expect("it is there").version
}

async fn value(store: &dyn SecretStore, name: &str) -> String {
    let stored = store.get(name).await.expect("it can be read").expect("it is there");
    stored.value.expect("it has a value").expose_secret().to_owned()
}

/// Checks that a written value can be read, under a version that changes with each write.
///
/// # Panics
///
/// If the store breaks the contract.
pub async fn what_is_written_can_be_read(store: &dyn SecretStore, name: &str) {
    let mut last = version(store, name).await;
    for text in ["one", "two", "two"] {
        let written = store.replace(name, &last, &text.into()).await.expect("it can be written");
        let Replaced::Done(now) = written else { panic!("nobody else writes") };
        assert_ne!(now, last, "each write makes another version");
        assert_eq!(version(store, name).await, now);
        assert_eq!(value(store, name).await, text);
        last = now;
    }
}

/// Checks that a writer that expects an older version changes nothing.
///
/// # Panics
///
/// If the store breaks the contract.
pub async fn an_older_version_is_a_conflict(store: &dyn SecretStore, name: &str) {
    let old = version(store, name).await;
    let first = store.replace(name, &old, &"first".into()).await.expect("it can be written");
    assert!(matches!(first, Replaced::Done(_)));
    let second = store.replace(name, &old, &"second".into()).await.expect("it is compared");
    assert_eq!(second, Replaced::Conflict);
    assert_eq!(value(store, name).await, "first");
}

/// Checks that of many writers that expect the same version exactly one succeeds.
///
/// # Panics
///
/// If the store breaks the contract.
pub async fn one_of_many_writers_gets_through(store: Arc<dyn SecretStore>, name: &str) {
    for _ in 0..5 {
        let expected = version(&store, name).await;
        let mut writers = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (store, name, expected) = (Arc::clone(&store), name.to_owned(), expected.clone());
            writers.spawn(async move {
                let value = SecretString::from(format!("writer {number}"));
                let replaced = store.replace(&name, &expected, &value).await;
                (number, replaced.expect("it is compared"))
            });
        }
        let mut winners = Vec::new();
        while let Some(ended) = writers.join_next().await {
            let (number, replaced) = ended.expect("no writer panics");
            if matches!(replaced, Replaced::Done(_)) {
                winners.push(number);
            }
        }
        let [winner] = winners.as_slice() else { panic!("{} writers got through", winners.len()) };
        assert_eq!(value(&store, name).await, format!("writer {winner}"));
    }
}

/// Checks that a list shows the version that a read shows, if the store can list.
///
/// # Panics
///
/// If the store breaks the contract.
pub async fn a_list_tells_the_same_versions(store: &dyn SecretStore, name: &str) {
    let old = version(store, name).await;
    store.replace(name, &old, &"x".into()).await.map(drop).expect("it can be written");
    let half = name.get(..name.len() / 2).unwrap_or(name);
    if let Some(versions) = store.versions(half).await.expect("they can be listed") {
        assert_eq!(versions.get(name), Some(&version(store, name).await));
        let none = store.versions("no-such-prefix-").await.expect("they can be listed");
        assert_eq!(none.map(|versions| versions.len()), Some(0));
    }
}

/// Checks that no `Debug` shows a secret's value.
///
/// # Panics
///
/// If the store breaks the contract.
pub async fn nothing_shows_a_value(store: &dyn SecretStore, name: &str) {
    let old = version(store, name).await;
    let planted = "planted-in-a-secret";
    let written = store.replace(name, &old, &planted.into()).await.expect("it can be written");
    let stored = store.get(name).await.expect("it can be read");
    let shown = format!("{store:?} {stored:?} {written:?}");
    assert!(!shown.contains(planted), "{shown}");
    assert_eq!(value(store, name).await, planted, "the search would find it");
}
