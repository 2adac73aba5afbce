//! Parity of user events.

use std::time::Duration;

use consul_watch::{Answer, QueryOptions, client::EventOptions, types::UserEvent};

use super::Env;

super::cases![cp49_events];

/// The list of events of this name, once it is as long as wanted.
async fn until(env: &Env, name: &str, length: usize) -> Answer<Vec<UserEvent>> {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_secs(30));
    loop {
        let answer = env.client.event_list(Some(name), &options).await.unwrap();
        if answer.value.len() == length {
            return answer;
        }
        options.index = answer.meta.index;
    }
}

/// Spec: CP49
async fn cp49_events(env: &Env) {
    let (name, other) = (env.name("deploy"), env.name("other"));
    let fire = |name: String, payload: &'static str| async move {
        env.client.event_fire(&name, payload, &EventOptions::default()).await.unwrap()
    };
    let none = env.client.event_list(Some(&name), &QueryOptions::default()).await.unwrap();
    assert!(none.value.is_empty());
    assert_eq!(none.meta.index, Some(1));
    let fired = fire(name.clone(), "first").await;
    assert_eq!((fired.version, fired.payload.as_ref()), (1, &b"first"[..]));
    let first = until(env, &name, 1).await;
    assert_eq!(
        (first.value[0].id.as_str(), first.value[0].name.as_str()),
        (fired.id.as_str(), name.as_str())
    );
    assert_eq!(first.meta.index, fired.index(), "the index is made of the newest id");

    // Any other index answers at once, also a larger one.
    let mut options = QueryOptions::default();
    (options.index, options.wait) = (Some(u64::MAX), Some(Duration::from_mins(10)));
    let at_once = env.client.event_list(Some(&name), &options).await.unwrap();
    assert_eq!(at_once.meta.index, first.meta.index);

    // The same index blocks, also past an event of another name.
    options.index = first.meta.index;
    let held = tokio::spawn({
        let (client, name) = (env.client.clone(), name.clone());
        async move { client.event_list(Some(&name), &options).await.unwrap() }
    });
    if let Some(double) = &env.double {
        double.wait_for_blocked(1).await;
    }
    fire(other.clone(), "").await;
    until(env, &other, 1).await;
    assert!(!held.is_finished());
    let second = fire(name.clone(), "").await;
    assert!(second.payload.is_empty());
    let woken = held.await.unwrap();
    let ids: Vec<&str> = woken.value.iter().map(|event| event.id.as_str()).collect();
    assert_eq!(ids, [fired.id.as_str(), second.id.as_str()]);
    assert_eq!(woken.meta.index, second.index());
}
