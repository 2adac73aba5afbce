//! Sessions: how they are made, renewed and ended, and what that does to keys.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    QueryOptions, WriteOptions,
    client::{PutCondition, PutOptions},
    types::{
        AgentServiceRegistration, CatalogDeregistration, CatalogRegistration, CheckSpec,
        HealthStatus, KvPair, SessionBehavior, SessionId, SessionRequest,
    },
};
use cts_ha::{Consul, Elector as _, Error, KeptSession, Loss, SessionOptions, Timing, renew_until};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::place::{Place, cases, eventually};

cases!(
    ha13_a_ttl_out_of_range_is_refused,
    renewal_ends_when_the_session_is_destroyed,
    a_renewal_that_is_dropped_destroys_nothing,
    a_session_that_is_not_renewed_ends_between_one_and_two_ttls,
    a_kept_session_outlives_its_ttl,
    a_session_without_checks_survives_its_node,
    a_session_ends_with_what_it_is_bound_to,
    an_ended_session_releases_its_keys_after_the_lock_delay,
    an_ended_session_deletes_its_keys,
    a_holder_writes_again,
    equal_writes_of_the_holder_change_nothing,
    plain_writes_leave_the_session,
    a_release_by_another_changes_nothing,
    creation_is_tried_again_where_that_can_help,
    a_missing_key_is_no_error,
);

async fn create(place: &Place, change: impl FnOnce(&mut SessionRequest)) -> SessionId {
    let mut request = SessionRequest::default();
    change(&mut request);
    place.client.session_create(&request, &WriteOptions::default()).await.unwrap()
}

async fn alive(place: &Place, id: &SessionId) -> bool {
    let info = place.client.session_info(id, &QueryOptions::default()).await.unwrap();
    info.value.is_some()
}

async fn acquire(place: &Place, key: &str, id: &SessionId, value: &str) -> bool {
    let options = PutOptions::when(PutCondition::Acquire(id.clone()));
    place.client.kv_put(key, value.to_owned(), &options).await.unwrap()
}

async fn get(place: &Place, key: &str) -> Option<KvPair> {
    place.client.kv_get(key, &QueryOptions::default()).await.unwrap().value
}

async fn destroy(place: &Place, id: &SessionId) {
    place.client.session_destroy(id, &WriteOptions::default()).await.unwrap();
}

/// Case HA13: a TTL below the minimum or above 24 h is an error of the creation.
async fn ha13_a_ttl_out_of_range_is_refused(place: &Place) {
    let (client, trouble) = place.troubled();
    let consul = Consul::new(client);
    let make = async |ttl: Duration| {
        let mut options = SessionOptions::default();
        options.ttl = ttl;
        KeptSession::create(&consul, &options, Arc::clone(&place.clock)).await
    };
    let short = make(Duration::from_millis(10)).await.unwrap_err();
    assert!(std::error::Error::source(&short).unwrap().to_string().contains("Invalid Session TTL"));
    assert!(!short.is_retryable(), "{short}");
    let long = make(Duration::from_hours(25)).await.unwrap_err();
    assert!(matches!(long, Error::Setting { setting: "session_ttl", .. }), "{long}");
    // What this crate never sends: Consul itself refuses it, and the error says why.
    for (ttl, reason) in [("x", "Session TTL 'x' invalid"), ("25h", "Invalid Session TTL")] {
        trouble.create_with_ttl(ttl);
        let error = make(place.ttl).await.unwrap_err();
        let text = consul_watch::error_chain(&error);
        assert!(matches!(error, Error::Consul { .. }) && text.contains(reason), "{text}");
    }
}

/// Case HA14: a renewal after the destruction reports that the session has expired, and ends.
/// Case CW40: renewing a destroyed session reports its expiry, and a cancelled renewal ends.
async fn renewal_ends_when_the_session_is_destroyed(place: &Place) {
    let id = create(place, |request| request.ttl = Some(place.ttl)).await;
    let timing = Timing::new(place.ttl, place.delay).unwrap();
    let done = CancellationToken::new();
    let consul = place.consul();
    let renewing = renew_until(&consul, id.clone(), timing, Arc::clone(&place.clock), &done);
    destroy(place, &id).await;
    let error = timeout(place.ttl, renewing).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::SessionExpired), "{error}");
    assert_eq!(error.to_string(), "session expired");
}

/// Case HA15: a cancelled renewal does not destroy the session.
/// Case CW40: renewing a destroyed session reports its expiry, and a cancelled renewal ends.
async fn a_renewal_that_is_dropped_destroys_nothing(place: &Place) {
    let (client, trouble) = place.troubled();
    let id = create(place, |request| request.ttl = Some(place.ttl)).await;
    let timing = Timing::new(place.ttl, place.delay).unwrap();
    let consul = Consul::new(client);
    let done = CancellationToken::new();
    let renewing = renew_until(&consul, id.clone(), timing, Arc::clone(&place.clock), &done);
    assert!(timeout(place.ttl, renewing).await.is_err(), "it goes on");
    assert!(trouble.count("PUT /v1/session/renew") >= 1);
    assert_eq!(trouble.count("PUT /v1/session/destroy"), 0);
    assert!(alive(place, &id).await);
    // Told to end instead, it destroys the session.
    done.cancel();
    renew_until(&consul, id.clone(), timing, Arc::clone(&place.clock), &done).await.unwrap();
    assert!(!alive(place, &id).await);
}

/// Case HA16: a session that is not renewed lives for one TTL, and is gone after two.
async fn a_session_that_is_not_renewed_ends_between_one_and_two_ttls(place: &Place) {
    let start = Instant::now();
    let id = create(place, |request| request.ttl = Some(place.ttl)).await;
    sleep(place.ttl).await;
    assert!(alive(place, &id).await);
    eventually("it ends", place.ttl * 2, async || !alive(place, &id).await).await;
    let took = start.elapsed();
    // The double has no clock but this one; a server's timer and this process may be late.
    let late = Duration::from_millis(if place.double.is_some() { 50 } else { 1_000 });
    assert!(took <= place.ttl * 2 + late, "{took:?}");
}

async fn a_kept_session_outlives_its_ttl(place: &Place) {
    let consul = place.consul();
    let kept =
        KeptSession::create(&consul, &place.session(), Arc::clone(&place.clock)).await.unwrap();
    sleep(place.ttl * 3).await;
    assert!(kept.lease().check().is_ok() && alive(place, kept.id()).await);
    let (id, lease) = (kept.id().clone(), kept.lease().clone());
    kept.close().await;
    assert_eq!(lease.check(), Err(Loss::Resigned));
    assert!(!alive(place, &id).await);
}

/// A node of its own that this process can take for failed.
async fn node(place: &Place, status: HealthStatus) -> String {
    let name = place.name("node").replace('/', "-");
    set_check(place, &name, status).await;
    name
}

async fn set_check(place: &Place, name: &str, status: HealthStatus) {
    let mut registration = CatalogRegistration::new(name, "10.9.8.7");
    let body = serde_json::json!({
        "Node": name, "CheckID": "alive", "Name": "alive", "Status": status,
    });
    registration.checks.push(serde_json::from_value(body).unwrap());
    place.client.catalog_register(&registration).await.unwrap();
}

/// Case HA18: a session without checks survives the failure of its node.
async fn a_session_without_checks_survives_its_node(place: &Place) {
    let name = node(place, HealthStatus::Passing).await;
    let bound = create(place, |request| {
        request.node = Some(name.clone());
        request.node_checks = Some(vec!["alive".into()]);
    })
    .await;
    let free = create(place, |request| {
        request.node = Some(name.clone());
        request.node_checks = Some(Vec::new());
    })
    .await;
    set_check(place, &name, HealthStatus::Critical).await;
    assert!(!alive(place, &bound).await, "the check counts where it is named");
    assert!(alive(place, &free).await);
    let info = place.client.session_info(&free, &QueryOptions::default()).await.unwrap();
    assert_eq!(info.value.unwrap().node_checks, Vec::<String>::new());
}

/// Case HA19: a critical check, and a deregistered check, service or node, end the session and free
/// the lock.
async fn a_session_ends_with_what_it_is_bound_to(place: &Place) {
    for end in ["critical", "check", "node"] {
        let name = node(place, HealthStatus::Passing).await;
        let id = create(place, |request| {
            request.node = Some(name.clone());
            request.node_checks = Some(vec!["alive".into()]);
        })
        .await;
        let key = place.name("lock");
        assert!(acquire(place, &key, &id, "x").await);
        match end {
            "critical" => set_check(place, &name, HealthStatus::Critical).await,
            other => {
                let mut body = CatalogDeregistration::node(&name);
                if other == "check" {
                    body.check_id = Some("alive".to_owned());
                }
                place.client.catalog_deregister(&body).await.unwrap();
            }
        }
        assert!(!alive(place, &id).await, "{end}");
        assert_eq!(get(place, &key).await.unwrap().session, None, "{end}");
    }
    // A service of the agent, with the check that the session names.
    let service = place.name("svc").replace('/', "-");
    let mut registration = AgentServiceRegistration::new(&service);
    let mut check = CheckSpec::default();
    check.check_id = format!("{service}-check");
    check.ttl = Some(Duration::from_mins(10));
    check.status = Some(HealthStatus::Passing);
    registration.checks.push(check);
    place.client.agent_register_service(&registration).await.unwrap();
    let bind = |request: &mut SessionRequest| {
        request.node_checks = Some(vec![format!("{service}-check")]);
    };
    let mut id = None;
    eventually("the agent has told the catalog", Duration::from_secs(10), async || {
        let mut request = SessionRequest::default();
        bind(&mut request);
        id = place.client.session_create(&request, &WriteOptions::default()).await.ok();
        id.is_some()
    })
    .await;
    let (key, id) = (place.name("lock"), id.unwrap());
    assert!(acquire(place, &key, &id, "x").await);
    place.client.agent_deregister_service(&service, None).await.unwrap();
    eventually("the lock is free", Duration::from_secs(10), async || {
        get(place, &key).await.unwrap().session.is_none()
    })
    .await;
    assert!(!alive(place, &id).await);
}

/// Case HA20: an ended session with behaviour `release` keeps its keys, which cannot be acquired
/// during the lock-delay.
async fn an_ended_session_releases_its_keys_after_the_lock_delay(place: &Place) {
    let delay = Duration::from_millis(800);
    let key = place.name("lock");
    let one = create(place, |request| request.lock_delay = Some(delay)).await;
    let two = create(place, |_request| ()).await;
    assert!(acquire(place, &key, &one, "x").await);
    let held = get(place, &key).await.unwrap();
    // The delay begins at the server, no earlier than here.
    let ended = Instant::now();
    destroy(place, &one).await;
    assert!(!acquire(place, &key, &two, "y").await);
    let free = get(place, &key).await.unwrap();
    assert_eq!((free.session, free.lock_index), (None, held.lock_index));
    assert_eq!(free.value, held.value);
    eventually("the delay is over", delay * 10, async || acquire(place, &key, &two, "y").await)
        .await;
    assert!(ended.elapsed() >= delay, "{:?}", ended.elapsed());
    let again = get(place, &key).await.unwrap();
    assert_eq!((again.session, again.lock_index), (Some(two), held.lock_index + 1));
}

/// Case HA21: an ended session with behaviour `delete` deletes its keys; the lock-delay holds for
/// their names.
async fn an_ended_session_deletes_its_keys(place: &Place) {
    let delay = Duration::from_millis(800);
    let key = place.name("lock");
    let one = create(place, |request| {
        request.behavior = SessionBehavior::Delete;
        request.lock_delay = Some(delay);
    })
    .await;
    let two = create(place, |_request| ()).await;
    assert!(acquire(place, &key, &one, "x").await);
    let ended = Instant::now();
    destroy(place, &one).await;
    assert_eq!(get(place, &key).await, None);
    assert!(!acquire(place, &key, &two, "y").await, "the delay belongs to the name");
    eventually("the delay is over", delay * 10, async || acquire(place, &key, &two, "y").await)
        .await;
    assert!(ended.elapsed() >= delay, "{:?}", ended.elapsed());
    assert_eq!(get(place, &key).await.unwrap().lock_index, 1);
}

/// Case HA22: a new value from the holder keeps the lock index.
async fn a_holder_writes_again(place: &Place) {
    let (key, one) = (place.name("lock"), create(place, |_request| ()).await);
    assert!(acquire(place, &key, &one, "x").await);
    let before = get(place, &key).await.unwrap();
    assert!(acquire(place, &key, &one, "y").await);
    let after = get(place, &key).await.unwrap();
    assert_eq!(after.lock_index, before.lock_index);
    assert!(after.modify_index > before.modify_index);
    assert_eq!(after.text(), Some("y"));
}

/// Case `HA22a`: an equal value from the holder changes no index and wakes no blocked reader.
async fn equal_writes_of_the_holder_change_nothing(place: &Place) {
    let (key, one) = (place.name("lock"), create(place, |_request| ()).await);
    assert!(acquire(place, &key, &one, "x").await);
    let before = place.client.kv_get(&key, &QueryOptions::default()).await.unwrap();
    let mut options = QueryOptions::default();
    (options.index, options.wait) = (before.meta.index, Some(Duration::from_secs(1)));
    let start = Instant::now();
    let ((reader, trouble), watched) = (place.troubled(), key.clone());
    let blocked = tokio::spawn(async move { reader.kv_get(&watched, &options).await.unwrap() });
    if let Some(double) = &place.double {
        double.wait_for_blocked(1).await;
    }
    // A real server does not say who waits; a write takes another connection and a commit.
    eventually("the reader has asked", Duration::from_secs(5), async || {
        trouble.count("GET /v1/kv") == 1
    })
    .await;
    assert!(acquire(place, &key, &one, "x").await);
    let after = blocked.await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "it was woken");
    assert_eq!(after.value, before.value);
}

/// Case `HA22b`: a plain write keeps the session of a locked key, which still passes its check.
/// Case HA24: a plain or compare-and-set write changes a locked key's value and keeps its session.
async fn plain_writes_leave_the_session(place: &Place) {
    use consul_watch::types::KvOp;
    let (key, one) = (place.name("lock"), create(place, |_request| ()).await);
    assert!(acquire(place, &key, &one, "x").await);
    assert!(place.client.kv_put(&key, "y", &PutOptions::default()).await.unwrap());
    let plain = get(place, &key).await.unwrap();
    assert_eq!((plain.text(), plain.lock_index), (Some("y"), 0));
    assert_eq!(plain.session.as_ref(), Some(&one));
    let cas = PutOptions::when(PutCondition::Index(plain.modify_index));
    assert!(place.client.kv_put(&key, "z", &cas).await.unwrap());
    let cas = get(place, &key).await.unwrap();
    assert_eq!((cas.text(), &cas.session), (Some("z"), &Some(one.clone())));
    let check = [KvOp::check_session(&key, one)];
    let outcome = place.client.kv_transact(&check, &WriteOptions::default()).await.unwrap();
    assert!(outcome.is_committed(), "{outcome:?}");
}

/// Case HA23: a release by another session, or of a key that is missing or unlocked, changes
/// nothing.
async fn a_release_by_another_changes_nothing(place: &Place) {
    let key = place.name("lock");
    let (one, two) = (create(place, |_request| ()).await, create(place, |_request| ()).await);
    let release = async |id: &SessionId| {
        let options = PutOptions::when(PutCondition::Release(id.clone()));
        place.client.kv_put(&key, "z", &options).await.unwrap()
    };
    assert!(!release(&one).await, "no key");
    assert_eq!(get(place, &key).await, None);
    assert!(acquire(place, &key, &one, "x").await);
    let held = get(place, &key).await;
    assert!(!release(&two).await, "another session");
    assert_eq!(get(place, &key).await, held);
    assert!(release(&one).await);
    let free = get(place, &key).await;
    assert!(!release(&one).await, "not locked");
    assert_eq!(get(place, &key).await, free);
}

/// Case HA28: a session's creation is retried after 500 and 429, not after 400 and 403.
async fn creation_is_tried_again_where_that_can_help(place: &Place) {
    const CREATE: &str = "PUT /v1/session/create";
    for (faults, tries) in [(&[][..], 1), (&[500], 2), (&[429], 2), (&[500, 429, 503], 4)] {
        let (client, trouble) = place.troubled();
        for status in faults {
            trouble.answer(CREATE, 1, *status, "trouble");
        }
        let elector = place.elector(&Consul::new(client), &place.name("leader"), "one");
        let leadership = timeout(place.failover(), elector.campaign()).await.unwrap().unwrap();
        assert_eq!(trouble.count(CREATE), tries, "{faults:?}");
        leadership.resign().await;
    }
    let (client, trouble) = place.troubled();
    let elector = place.elector(&Consul::new(client), &place.name("leader"), "one");
    trouble.answer(CREATE, 1, 400, "bad request");
    let error = elector.campaign().await.unwrap_err();
    assert!(matches!(error, Error::Consul { .. }) && trouble.count(CREATE) == 1, "{error}");
    trouble.answer(CREATE, 1, 403, "Permission denied");
    let error = elector.campaign().await.unwrap_err();
    assert!(matches!(error, Error::Permission { .. }) && trouble.count(CREATE) == 2, "{error}");
    assert!(error.to_string().starts_with("missing required Consul ACL: session:write"), "{error}");
}

/// Case HA29: a missing key is none, and no error.
async fn a_missing_key_is_no_error(place: &Place) {
    let answer = place.client.kv_get(&place.name("none"), &QueryOptions::default()).await.unwrap();
    assert_eq!(answer.value, None);
    assert!(answer.meta.index.is_some());
}

/// Case HA17: a failover of Consul's leader keeps the session and restarts its timer.
#[tokio::test(start_paused = true)]
async fn a_session_survives_a_new_leader_of_consul() {
    let place = Place::double();
    let double = place.double.clone().unwrap();
    let id = create(&place, |request| request.ttl = Some(place.ttl)).await;
    sleep(place.ttl + place.ttl / 2).await;
    double.set_leader(false);
    double.set_leader(true);
    sleep(place.ttl + place.ttl / 2).await;
    assert!(alive(&place, &id).await, "its timer began anew");
    sleep(place.ttl).await;
    assert!(!alive(&place, &id).await);
}

/// Case HA17: a failover of Consul's leader keeps the session and restarts its timer.
#[tokio::test]
async fn a_session_survives_a_restart_of_consul() {
    let case = "sessions::a_session_survives_a_restart_of_consul";
    for part in crate::place::SUITE.parts("consul", case) {
        let quick = crate::place::quick();
        let mut consul =
            consul_watch::testing::real::Consul::start_with(&part.path, quick).await.unwrap();
        let place = Place::of(&consul);
        let ttl = Duration::from_secs(3);
        let id = create(&place, |request| request.ttl = Some(ttl)).await;
        sleep(ttl).await;
        consul.restart().await.unwrap();
        let restarted = Instant::now();
        assert!(alive(&place, &id).await);
        sleep(ttl).await;
        assert!(alive(&place, &id).await, "its timer started again");
        eventually("it ends", ttl * 3, async || !alive(&place, &id).await).await;
        assert!(restarted.elapsed() < ttl * 3, "Consul {}", part.version);
    }
}
