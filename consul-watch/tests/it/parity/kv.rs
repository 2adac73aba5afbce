//! Parity of the KV store.

use bytes::Bytes;
use consul_watch::{
    Answer, Client, QueryOptions, Result,
    client::{DeleteOptions, PutCondition, PutOptions, Request},
    types::KvPair,
};

use super::Env;

super::cases![
    cp1_missing_key,
    cp2_missing_key_and_an_unrelated_write,
    cp3_missing_key_is_created,
    cp4_key_is_deleted,
    cp5_same_value_twice,
    cp6_other_flags,
    cp7_write_outside_the_prefix,
    cp8_delete_under_the_prefix,
    cp9_last_key_of_the_prefix_goes,
    cp10_tree_above_the_prefix_is_deleted,
    cp11_tree_without_keys_is_deleted,
    cp13_keys_with_a_separator,
    cp14_check_and_set,
    cp57_values_are_bytes,
    cp58_odd_keys,
];

async fn put(env: &Env, key: &str, value: &str) {
    assert!(env.client.kv_put(key, value.to_owned(), &PutOptions::default()).await.unwrap());
}

async fn delete(env: &Env, key: &str) {
    assert!(env.client.kv_delete(key, &DeleteOptions::default()).await.unwrap());
}

async fn get(env: &Env, key: &str) -> Option<KvPair> {
    env.client.kv_get(key, &QueryOptions::default()).await.unwrap().value
}

fn getter(
    key: &str,
) -> impl Fn(Client, QueryOptions) -> futures::future::BoxFuture<'static, Result<Answer<Option<KvPair>>>>
{
    let key = key.to_owned();
    move |client, options| {
        let key = key.clone();
        Box::pin(async move { client.kv_get(&key, &options).await })
    }
}

fn lister(
    prefix: &str,
) -> impl Fn(Client, QueryOptions) -> futures::future::BoxFuture<'static, Result<Answer<Vec<KvPair>>>>
{
    let prefix = prefix.to_owned();
    move |client, options| {
        let prefix = prefix.clone();
        Box::pin(async move { client.kv_list(&prefix, &options).await })
    }
}

/// Spec: CP1
async fn cp1_missing_key(env: &Env) {
    let answer = env.client.kv_get(&env.name("a"), &QueryOptions::default()).await.unwrap();
    assert_eq!(answer.value, None);
    assert!(answer.meta.index.is_some_and(|index| index >= 1));
}

/// Spec: CP2, CW5
async fn cp2_missing_key_and_an_unrelated_write(env: &Env) {
    let (key, other) = (env.name("a"), env.name("b"));
    let seen = env.observe(getter(&key), put(env, &other, "x")).await;
    assert_eq!(seen.last, None);
    if env.is_1_8 {
        seen.assert_woken();
    } else {
        assert!(!seen.woken);
    }
}

/// Spec: CP3, CW7
async fn cp3_missing_key_is_created(env: &Env) {
    let key = env.name("a");
    let seen = env.observe(getter(&key), put(env, &key, "x")).await;
    seen.assert_woken();
    assert_eq!(
        (seen.first, seen.last.and_then(|pair| pair.text().map(str::to_owned))),
        (None, Some("x".into()))
    );
}

/// Spec: CP4, CW6
async fn cp4_key_is_deleted(env: &Env) {
    let key = env.name("a");
    put(env, &key, "x").await;
    let seen = env.observe(getter(&key), delete(env, &key)).await;
    seen.assert_woken();
    assert_eq!(seen.last, None);
}

/// Spec: CP5
async fn cp5_same_value_twice(env: &Env) {
    let key = env.name("a");
    put(env, &key, "x").await;
    let before = get(env, &key).await;
    env.observe(getter(&key), put(env, &key, "x")).await.assert_quiet();
    assert_eq!(get(env, &key).await, before);
}

/// Spec: CP6
async fn cp6_other_flags(env: &Env) {
    let key = env.name("a");
    put(env, &key, "x").await;
    let mut options = PutOptions::default();
    options.flags = 42;
    let seen = env.observe(getter(&key), env.client.kv_put(&key, "x", &options)).await;
    seen.assert_woken();
    assert_eq!(seen.last.map(|pair| pair.flags), Some(42));
}

/// Spec: CP7
async fn cp7_write_outside_the_prefix(env: &Env) {
    let prefix = env.name("p/");
    put(env, &format!("{prefix}a"), "x").await;
    env.observe(lister(&prefix), put(env, &env.name("q/a"), "x")).await.assert_quiet();
}

/// Spec: CP8
async fn cp8_delete_under_the_prefix(env: &Env) {
    let prefix = env.name("p/");
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    put(env, &a, "x").await;
    put(env, &b, "x").await;
    let seen = env.observe(lister(&prefix), delete(env, &a)).await;
    seen.assert_woken();
    assert_eq!(seen.last.iter().map(|pair| &pair.key).collect::<Vec<_>>(), [&b]);
}

/// Spec: CP9
async fn cp9_last_key_of_the_prefix_goes(env: &Env) {
    let prefix = env.name("p/");
    let key = format!("{prefix}a");
    put(env, &key, "x").await;
    let seen = env.observe(lister(&prefix), delete(env, &key)).await;
    seen.assert_woken();
    assert!(seen.last.is_empty());
    let seen = env.observe(lister(&prefix), put(env, &key, "y")).await;
    seen.assert_woken();
    assert_eq!(seen.last.len(), 1);
}

/// Spec: CP10
async fn cp10_tree_above_the_prefix_is_deleted(env: &Env) {
    let tree = env.name("foo");
    let prefix = format!("{tree}/bar/baz");
    put(env, &prefix, "x").await;
    let options = DeleteOptions::recurse();
    let seen = env.observe(lister(&prefix), env.client.kv_delete(&tree, &options)).await;
    seen.assert_woken();
    assert!(seen.last.is_empty());
}

/// Spec: CP11
async fn cp11_tree_without_keys_is_deleted(env: &Env) {
    let prefix = env.name("p/");
    put(env, &format!("{prefix}a"), "x").await;
    let (missing, options) = (env.name("none/"), DeleteOptions::recurse());
    env.observe(lister(""), env.client.kv_delete(&missing, &options)).await.assert_quiet();
}

/// Spec: CP13
async fn cp13_keys_with_a_separator(env: &Env) {
    let prefix = env.name("p/");
    for key in ["a", "b/c", "b/d", "b2/x", "c"] {
        put(env, &format!("{prefix}{key}"), "x").await;
    }
    let read = |separator| async move {
        let keys =
            env.client.kv_keys(&prefix, separator, &QueryOptions::default()).await.unwrap().value;
        keys.iter().map(|key| key.trim_start_matches(&prefix).to_owned()).collect::<Vec<_>>()
    };
    let with = read.clone();
    assert_eq!(with(Some("/")).await, ["a", "b/", "b2/", "c"]);
    assert_eq!(read(None).await, ["a", "b/c", "b/d", "b2/x", "c"]);
}

/// Spec: CP14
async fn cp14_check_and_set(env: &Env) {
    let key = env.name("a");
    let cas = |index| PutOptions::when(PutCondition::Index(index));
    let client = &env.client;
    assert!(!client.kv_put(&key, "x", &cas(7)).await.unwrap(), "absent, with an index");
    assert!(client.kv_put(&key, "x", &cas(0)).await.unwrap(), "absent, without");
    assert!(!client.kv_put(&key, "y", &cas(0)).await.unwrap(), "present, without");
    let index = get(env, &key).await.unwrap().modify_index;
    assert!(client.kv_put(&key, "y", &cas(index)).await.unwrap());
    assert!(!client.kv_put(&key, "z", &cas(index)).await.unwrap(), "stale");
    assert!(!client.kv_delete(&key, &DeleteOptions::at(index)).await.unwrap(), "stale");
    assert!(!client.kv_delete(&key, &DeleteOptions::at(0)).await.unwrap(), "present, with 0");
    let index = get(env, &key).await.unwrap().modify_index;
    assert!(client.kv_delete(&key, &DeleteOptions::at(index)).await.unwrap());
    assert!(
        client.kv_delete(&key, &DeleteOptions::at(index)).await.unwrap(),
        "absent counts as deleted"
    );
}

/// Spec: CP57
async fn cp57_values_are_bytes(env: &Env) {
    let key = env.name("a");
    let binary: Vec<u8> = (0..=255).collect();
    for value in [Vec::new(), binary, vec![7; 512 * 1024]] {
        let value = Bytes::from(value);
        assert!(env.client.kv_put(&key, value.clone(), &PutOptions::default()).await.unwrap());
        assert_eq!(get(env, &key).await.unwrap().value, value);
        let raw = env.client.kv_raw(&key, &QueryOptions::default()).await.unwrap().value;
        assert_eq!(raw, Some(value));
    }
    let large = vec![7; 512 * 1024 + 1];
    let error = env.client.kv_put(&key, large, &PutOptions::default()).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(413));
    assert!(!error.is_retryable());
}

/// Spec: CP58
async fn cp58_odd_keys(env: &Env) {
    for odd in [
        "a b",
        "100%",
        "what?",
        "#1",
        "a+b",
        "gr\u{fc}n/\u{1f600}",
        "a&b=c",
        "a;b",
        "%2F",
        "~-._",
        "x/",
    ] {
        let key = env.name(odd);
        put(env, &key, "x").await;
        assert_eq!(get(env, &key).await.map(|pair| pair.key), Some(key.clone()), "{key}");
    }
    for refused in ["a//b", "a/./b", "a/../b"] {
        let error = env.client.kv_get(refused, &QueryOptions::default()).await.unwrap_err();
        assert!(matches!(error, consul_watch::Error::Input { .. }), "{error:?}");
    }
    // Servers of old answer with the cleaned path, also when it is encoded.
    let request = Request::get("kv.get", "/v1/kv/a%2F%2Fb");
    let error = env.client.send(request).await.unwrap_err();
    assert_eq!(
        error.status().map(|status| status.as_u16()),
        Some(if env.is_1_8 { 301 } else { 404 })
    );
    let error = env.client.kv_put("a\u{1}b", "x", &PutOptions::default()).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(400));
}
