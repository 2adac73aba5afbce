//! Parity of sessions.

use std::time::Duration;

use consul_watch::{
    QueryOptions, WriteOptions,
    client::{DeleteOptions, PutCondition, PutOptions},
    types::{
        AgentServiceRegistration, CatalogDeregistration, CatalogRegistration, CheckSpec,
        HealthCheck, HealthStatus, KvPair, SessionBehavior, SessionId, SessionRequest,
    },
};

use super::Env;

super::cases![
    cp15_acquire_with_an_unknown_session,
    cp16_acquire_and_release,
    cp17_lock_delay_after_the_holder_is_destroyed,
    cp18_no_lock_delay,
    cp19_behaviour_delete,
    cp20_no_delay_after_a_release,
    cp21a_plain_write_of_a_locked_key,
    cp21b_lock_delay_belongs_to_the_name,
    cp21_plain_delete_of_a_locked_key,
    cp22_ttl_expires,
    cp23_renew_of_an_unknown_session,
    cp24_ttl_out_of_range,
    cp25_failing_service_check_ends_the_session,
    cp26_sessions_that_cannot_be_created,
    cp27_unknown_session,
    cp39_node_takes_everything_along,
];

async fn acquire(env: &Env, key: &str, session: &SessionId) -> bool {
    let options = PutOptions::when(PutCondition::Acquire(session.clone()));
    env.client.kv_put(key, "x", &options).await.unwrap()
}

async fn release(env: &Env, key: &str, session: &SessionId) -> bool {
    let options = PutOptions::when(PutCondition::Release(session.clone()));
    env.client.kv_put(key, "x", &options).await.unwrap()
}

async fn get(env: &Env, key: &str) -> Option<KvPair> {
    env.client.kv_get(key, &QueryOptions::default()).await.unwrap().value
}

async fn is_alive(env: &Env, session: &SessionId) -> bool {
    env.client.session_info(session, &QueryOptions::default()).await.unwrap().value.is_some()
}

/// Waits until a session is gone, by blocking on it.
async fn until_gone(env: &Env, session: &SessionId) {
    let mut options = QueryOptions::default();
    options.wait = Some(Duration::from_secs(30));
    loop {
        let answer = env.client.session_info(session, &options).await.unwrap();
        if answer.value.is_none() {
            return;
        }
        options.index = answer.meta.index;
    }
}

/// Tries to acquire until it succeeds, and tells how long that took.
async fn acquired_after(env: &Env, key: &str, session: &SessionId) -> Duration {
    let start = tokio::time::Instant::now();
    while !acquire(env, key, session).await {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    start.elapsed()
}

/// Spec: CP15
async fn cp15_acquire_with_an_unknown_session(env: &Env) {
    let unknown: SessionId = "2ed3ed2e-d75f-41c6-9d69-a9b1b3ae6fb1".parse().unwrap();
    let options = PutOptions::when(PutCondition::Acquire(unknown));
    let error = env.client.kv_put(&env.name("a"), "x", &options).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(500));
    assert!(error.to_string().contains("invalid session"), "{error}");
}

/// Spec: CP16
async fn cp16_acquire_and_release(env: &Env) {
    let key = env.name("lock");
    let (one, other) = (env.session(|_| ()).await, env.session(|_| ()).await);
    assert!(acquire(env, &key, &one).await);
    assert!(acquire(env, &key, &one).await, "the holder may again");
    let pair = get(env, &key).await.unwrap();
    assert_eq!((pair.lock_index, pair.session.as_ref()), (1, Some(&one)));
    assert!(!acquire(env, &key, &other).await);
    assert!(!release(env, &key, &other).await);
    assert!(release(env, &key, &one).await);
    let pair = get(env, &key).await.unwrap();
    assert_eq!((pair.lock_index, pair.session), (1, None));
    env.destroy(&one).await;
    env.destroy(&other).await;
}

/// Spec: CP17
async fn cp17_lock_delay_after_the_holder_is_destroyed(env: &Env) {
    let key = env.name("lock");
    let one = env.session(|request| request.lock_delay = Some(Duration::from_secs(1))).await;
    let other = env.session(|_| ()).await;
    assert!(acquire(env, &key, &one).await);
    env.destroy(&one).await;
    assert_eq!(get(env, &key).await.unwrap().session, None);
    assert!(!acquire(env, &key, &other).await);
    let took = acquired_after(env, &key, &other).await;
    assert!(took > Duration::from_millis(500) && took < Duration::from_secs(5), "{took:?}");
}

/// Spec: CP18
async fn cp18_no_lock_delay(env: &Env) {
    let key = env.name("lock");
    let one = env.session(|request| request.lock_delay = Some(Duration::ZERO)).await;
    let other = env.session(|_| ()).await;
    assert!(acquire(env, &key, &one).await);
    env.destroy(&one).await;
    assert!(acquire(env, &key, &other).await);
}

/// Spec: CP19
async fn cp19_behaviour_delete(env: &Env) {
    let key = env.name("lock");
    let session = env.session(|request| request.behavior = SessionBehavior::Delete).await;
    assert!(acquire(env, &key, &session).await);
    let read = {
        let key = key.clone();
        move |client: consul_watch::Client, options: QueryOptions| {
            let key = key.clone();
            async move { client.kv_get(&key, &options).await }
        }
    };
    let seen = env.observe(read, env.destroy(&session)).await;
    seen.assert_woken();
    assert_eq!(seen.last, None);
}

/// Spec: CP20
async fn cp20_no_delay_after_a_release(env: &Env) {
    let key = env.name("lock");
    let (one, other) = (env.session(|_| ()).await, env.session(|_| ()).await);
    assert!(acquire(env, &key, &one).await && release(env, &key, &one).await);
    assert!(acquire(env, &key, &other).await);
}

/// Spec: `CP21a`
async fn cp21a_plain_write_of_a_locked_key(env: &Env) {
    let key = env.name("lock");
    let (one, other) = (env.session(|_| ()).await, env.session(|_| ()).await);
    assert!(acquire(env, &key, &one).await);
    let before = get(env, &key).await.unwrap();
    assert!(env.client.kv_put(&key, "x", &PutOptions::default()).await.unwrap());
    let after = get(env, &key).await.unwrap();
    assert!(after.modify_index > before.modify_index);
    assert_eq!((after.lock_index, after.session), (0, Some(one.clone())));
    assert!(acquire(env, &key, &one).await);
    assert_eq!(get(env, &key).await.unwrap().lock_index, 0);
    assert!(release(env, &key, &one).await && acquire(env, &key, &other).await);
    assert_eq!(get(env, &key).await.unwrap().lock_index, 1);
}

/// Spec: `CP21b`
async fn cp21b_lock_delay_belongs_to_the_name(env: &Env) {
    let key = env.name("lock");
    let (one, other) = (env.session(|_| ()).await, env.session(|_| ()).await);
    assert!(acquire(env, &key, &one).await);
    env.destroy(&one).await;
    assert!(env.client.kv_delete(&key, &DeleteOptions::default()).await.unwrap());
    assert!(!acquire(env, &key, &other).await);
}

/// Spec: CP21
async fn cp21_plain_delete_of_a_locked_key(env: &Env) {
    let key = env.name("lock");
    let session = env.session(|_| ()).await;
    assert!(acquire(env, &key, &session).await);
    assert!(env.client.kv_delete(&key, &DeleteOptions::default()).await.unwrap());
    assert!(is_alive(env, &session).await);
    assert_eq!(get(env, &key).await, None);
    assert!(acquire(env, &key, &session).await);
}

/// Spec: CP22
async fn cp22_ttl_expires(env: &Env) {
    let start = tokio::time::Instant::now();
    let session = env.session(|request| request.ttl = Some(Duration::from_secs(10))).await;
    assert!(env.client.session_renew(&session, &WriteOptions::default()).await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(is_alive(env, &session).await);
    until_gone(env, &session).await;
    let took = start.elapsed();
    assert!(took > Duration::from_secs(10) && took < Duration::from_secs(25), "{took:?}");
}

/// Spec: CP23, CW40
async fn cp23_renew_of_an_unknown_session(env: &Env) {
    let session = env.session(|_| ()).await;
    env.destroy(&session).await;
    env.destroy(&session).await;
    assert_eq!(env.client.session_renew(&session, &WriteOptions::default()).await.unwrap(), None);
}

/// Spec: CP24
async fn cp24_ttl_out_of_range(env: &Env) {
    for seconds in [9, 25 * 3600] {
        let mut request = SessionRequest::default();
        request.ttl = Some(Duration::from_secs(seconds));
        let error =
            env.client.session_create(&request, &WriteOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("Invalid Session TTL"), "{error}");
        assert!(!error.is_retryable(), "it answers 500, but no retry cures it");
    }
}

/// Spec: CP25
async fn cp25_failing_service_check_ends_the_session(env: &Env) {
    let (service, check, key) = (env.name("service"), env.name("check"), env.name("lock"));
    let mut registration = AgentServiceRegistration::new(&service);
    let mut spec = CheckSpec::ttl(&check, Duration::from_mins(5));
    spec.status = Some(HealthStatus::Passing);
    registration.checks.push(spec);
    env.client.agent_register_service(&registration).await.unwrap();
    until_in_catalog(env, &service).await;
    let session = env
        .session(|request| {
            request.service_checks = vec![check.clone()];
            request.lock_delay = Some(Duration::ZERO);
        })
        .await;
    assert!(acquire(env, &key, &session).await);
    let read = {
        let key = key.clone();
        move |client: consul_watch::Client, options: QueryOptions| {
            let key = key.clone();
            async move { client.kv_get(&key, &options).await }
        }
    };
    let seen = env.observe(read, env.client.agent_fail_check(&check, "gone")).await;
    seen.assert_woken();
    assert_eq!(seen.last.unwrap().session, None);
    until_gone(env, &session).await;
    env.client.agent_deregister_service(&service, None).await.unwrap();
}

/// An agent brings the catalog in line a moment later.
async fn until_in_catalog(env: &Env, service: &str) {
    let mut options = consul_watch::client::HealthOptions::default();
    options.passing = true;
    options.query.wait = Some(Duration::from_secs(30));
    loop {
        let answer = env.client.health_service(service, &options).await.unwrap();
        if answer
            .value
            .iter()
            .any(|entry| entry.checks.iter().any(|check| !check.service_id.is_empty()))
        {
            return;
        }
        options.query.index = answer.meta.index;
    }
}

/// Spec: CP26
async fn cp26_sessions_that_cannot_be_created(env: &Env) {
    let (node, check) = (env.name("node"), env.name("check"));
    let critical = HealthCheck::of_node(&check, HealthStatus::Critical);
    let registration = CatalogRegistration::new(&node, "10.0.0.1").with_check(critical);
    env.client.catalog_register(&registration).await.unwrap();
    for (on, checks, text) in [
        (env.name("nobody"), vec![], "Missing node registration".to_owned()),
        (node.clone(), vec!["none".to_owned()], "Missing check 'none' registration".to_owned()),
        (node.clone(), vec![check.clone()], format!("Check '{check}' is in critical state")),
    ] {
        let mut request = SessionRequest::default();
        (request.node, request.node_checks) = (Some(on), Some(checks));
        let error =
            env.client.session_create(&request, &WriteOptions::default()).await.unwrap_err();
        assert_eq!(error.status().map(|status| status.as_u16()), Some(500));
        assert!(error.to_string().contains(&text), "{error}");
    }
}

/// Spec: CP27
async fn cp27_unknown_session(env: &Env) {
    let unknown: SessionId = "2ed3ed2e-d75f-41c6-9d69-a9b1b3ae6fb1".parse().unwrap();
    assert!(!is_alive(env, &unknown).await);
}

/// Spec: CP39
async fn cp39_node_takes_everything_along(env: &Env) {
    let (service, node) = (env.name("service"), env.name("node"));
    env.instance(&service, &node, "passing").await;
    let session = env
        .session(|request| {
            request.node = Some(node.clone());
            request.node_checks = Some(Vec::new());
        })
        .await;
    env.client.catalog_deregister(&CatalogDeregistration::node(&node)).await.unwrap();
    assert!(!is_alive(env, &session).await);
    let options = QueryOptions::default();
    assert!(
        env.client
            .health_service(&service, &options.clone().into())
            .await
            .unwrap()
            .value
            .is_empty()
    );
    assert!(env.client.health_node(&node, &options).await.unwrap().value.is_empty());
    assert_eq!(env.client.catalog_node(&node, &options).await.unwrap().value, None);
    // All of it is gone at one index; a second time nothing happens.
    env.client.catalog_deregister(&CatalogDeregistration::node(&node)).await.unwrap();
}
