//! Locks and semaphores.

use std::{sync::Arc, time::Duration};

use consul_watch::{
    QueryOptions, WriteOptions,
    client::{DeleteOptions, PutOptions},
    types::SessionRequest,
};
use cts_ha::{
    Consul, Error, LOCK_FLAGS, Lease, Lock, LockOptions, Loss, SEMAPHORE_FLAGS, Semaphore,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::place::{Place, cases, eventually};

cases!(
    a_lock_not_held_cannot_be_unlocked,
    a_handle_holds_a_lock_once,
    unlocking_signals_the_loss,
    a_destroyed_session_is_noticed,
    a_deleted_key_is_noticed_every_time,
    contenders_take_turns,
    destroying_asks_who_holds,
    a_key_of_another_kind_is_left_alone,
    the_same_session_reclaims_its_lock,
    the_monitor_gets_over_a_few_failures,
    the_monitor_gives_up,
    ha12_trying_once_comes_back_in_time,
    a_handle_can_be_used_again_after_a_loss,
    a_lock_without_transactions,
    a_lock_that_was_lost_stays_closed_for_the_lock_delay,
    a_lock_that_nobody_waits_for_is_returned,
    trying_for_a_while_comes_back_in_time,
    a_place_that_was_lost_is_free_when_its_session_has_ended,
    a_place_that_nobody_waits_for_is_returned,
    a_semaphore_has_its_places,
    a_dead_holder_frees_its_place,
    a_semaphore_has_one_limit,
);

const SOON: Duration = Duration::from_secs(1);

async fn taken(lock: &Lock) -> Lease {
    lock.lock().await.unwrap().expect("held")
}

async fn lost_soon(lease: &Lease) -> Loss {
    timeout(SOON, lease.ended().cancelled()).await.expect("within a second");
    lease.loss().unwrap()
}

async fn holder(place: &Place, key: &str) -> Option<consul_watch::types::SessionId> {
    let read = place.client.kv_get(key, &QueryOptions::default()).await.unwrap();
    read.value.and_then(|pair| pair.session)
}

/// Case HA1: unlocking a lock that is not held is an error.
async fn a_lock_not_held_cannot_be_unlocked(place: &Place) {
    let lock = Lock::new(&place.consul(), place.name("lock"), place.lock());
    let error = lock.unlock().await.unwrap_err();
    assert!(matches!(error, Error::NotHeld));
    assert_eq!(error.to_string(), "Lock not held");
}

/// Case HA2: locking twice by one handle is an error.
async fn a_handle_holds_a_lock_once(place: &Place) {
    let lock = Lock::new(&place.consul(), place.name("lock"), place.lock());
    taken(&lock).await;
    let error = lock.lock().await.unwrap_err();
    assert!(matches!(error, Error::AlreadyHeld));
    assert_eq!(error.to_string(), "Lock already held");
    lock.unlock().await.unwrap();
}

/// Case HA3: unlocking ends the lease within a second; a second unlock is an error.
async fn unlocking_signals_the_loss(place: &Place) {
    let lock = Lock::new(&place.consul(), place.name("lock"), place.lock());
    let lease = taken(&lock).await;
    assert!(lease.check().is_ok());
    lock.unlock().await.unwrap();
    assert_eq!(lost_soon(&lease).await, Loss::Resigned);
    assert!(matches!(lock.unlock().await, Err(Error::NotHeld)));
}

/// Case HA4: a session that an operator destroys ends the lease within a second.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn a_destroyed_session_is_noticed(place: &Place) {
    let key = place.name("lock");
    let lock = Lock::new(&place.consul(), &key, place.lock());
    let lease = taken(&lock).await;
    let session = holder(place, &key).await.unwrap();
    place.client.session_destroy(&session, &WriteOptions::default()).await.unwrap();
    assert_eq!(lost_soon(&lease).await, Loss::Taken);
    assert!(lease.check().is_err());
}

/// Case HA5: a lock's key that an operator deletes ends the lease, every time.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn a_deleted_key_is_noticed_every_time(place: &Place) {
    let key = place.name("lock");
    for _round in 0..10 {
        let lock = Lock::new(&place.consul(), &key, place.lock());
        let lease = taken(&lock).await;
        place.client.kv_delete(&key, &DeleteOptions::default()).await.unwrap();
        assert_eq!(lost_soon(&lease).await, Loss::Taken);
    }
}

/// Case HA6: three contenders that release at once all get the lock within three times 5 s.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn contenders_take_turns(place: &Place) {
    let key = place.name("lock");
    let start = Instant::now();
    let mut contenders = JoinSet::new();
    for _contender in 0..3 {
        let lock = Lock::new(&place.consul(), &key, place.lock());
        contenders.spawn(async move {
            let lease = taken(&lock).await;
            assert!(lease.check().is_ok());
            lock.unlock().await.unwrap();
        });
    }
    while let Some(ended) = contenders.join_next().await {
        ended.unwrap();
    }
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

/// Case HA7: destroying a lock: refused while held by this handle or another, done when free or
/// already gone.
async fn destroying_asks_who_holds(place: &Place) {
    let key = place.name("lock");
    let one = Lock::new(&place.consul(), &key, place.lock());
    let two = Lock::new(&place.consul(), &key, place.lock());
    taken(&one).await;
    assert!(matches!(one.destroy().await, Err(Error::AlreadyHeld)));
    let error = two.destroy().await.unwrap_err();
    assert!(matches!(error, Error::InUse));
    assert_eq!(error.to_string(), "Lock in use");
    one.unlock().await.unwrap();
    one.destroy().await.unwrap();
    let read = place.client.kv_get(&key, &QueryOptions::default()).await.unwrap();
    assert_eq!(read.value, None);
    two.destroy().await.unwrap();
}

/// Case HA8: a key with a semaphore's flags is never overwritten by a lock.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn a_key_of_another_kind_is_left_alone(place: &Place) {
    let key = place.name("lock");
    let mut options = PutOptions::default();
    options.flags = SEMAPHORE_FLAGS;
    place.client.kv_put(&key, "theirs", &options).await.unwrap();
    let lock = Lock::new(&place.consul(), &key, place.lock());
    let error = lock.lock().await.unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert!(error.to_string().starts_with("Existing key does not match lock use"));
    assert!(matches!(lock.destroy().await, Err(Error::Conflict { .. })));
    let read = place.client.kv_get(&key, &QueryOptions::default()).await.unwrap().value.unwrap();
    assert_eq!((read.text(), read.flags), (Some("theirs"), SEMAPHORE_FLAGS));
}

/// Case HA9: a second handle with the same session holds the lock at once; an unlock by one ends
/// both.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn the_same_session_reclaims_its_lock(place: &Place) {
    let key = place.name("lock");
    let mut request = SessionRequest::default();
    request.lock_delay = Some(place.delay);
    let session = place.client.session_create(&request, &WriteOptions::default()).await.unwrap();
    let mut options = place.lock();
    options.session = Some(session.clone());
    let one = Lock::new(&place.consul(), &key, options.clone());
    let two = Lock::new(&place.consul(), &key, options);
    let first = taken(&one).await;
    let second = timeout(SOON, taken(&two)).await.expect("within a second");
    assert!(first.check().is_ok() && second.check().is_ok());
    one.unlock().await.unwrap();
    assert_eq!(lost_soon(&first).await, Loss::Resigned);
    assert_eq!(lost_soon(&second).await, Loss::Taken);
    let info = place.client.session_info(&session, &QueryOptions::default()).await.unwrap();
    assert!(info.value.is_some(), "a session of the caller's stays");
}

/// A held lock whose reads can be troubled, and its lease.
async fn monitored(
    place: &Place,
    options: LockOptions,
) -> (Lock, Lease, crate::place::Trouble, String) {
    let (client, trouble) = place.troubled();
    let key = place.name("lock");
    let lock = Lock::new(&Consul::new(client), &key, options);
    let lease = taken(&lock).await;
    (lock, lease, trouble, key)
}

/// Wakes the monitor: the holder writes another value.
async fn wake(place: &Place, key: &str) {
    let session = holder(place, key).await.unwrap();
    let mut options = PutOptions::when(consul_watch::client::PutCondition::Acquire(session));
    options.flags = LOCK_FLAGS;
    assert!(place.client.kv_put(key, place.name("value"), &options).await.unwrap());
}

/// Case HA10: two failed reads of three that may fail keep the leader.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn the_monitor_gets_over_a_few_failures(place: &Place) {
    assert_eq!(LockOptions::default().monitor_retry_time, Duration::from_secs(2));
    let mut options = place.lock();
    options.monitor_retries = 3;
    options.monitor_retry_time = Duration::from_millis(100);
    let (lock, lease, trouble, key) = monitored(place, options).await;
    for _round in 0..2 {
        let before = trouble.count("GET /v1/kv");
        trouble.answer("GET /v1/kv", 2, 500, "trouble");
        wake(place, &key).await;
        // The retries are full again after a good read: two rounds are four failures.
        eventually("read after the failures", Duration::from_secs(5), async || {
            trouble.count("GET /v1/kv") >= before + 3
        })
        .await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(lease.loss(), None);
    }
    assert!(lease.check().is_ok());
    lock.unlock().await.unwrap();
}

/// Case HA11: ten failed reads in a row end the lease.
async fn the_monitor_gives_up(place: &Place) {
    let mut options = place.lock();
    options.monitor_retries = 3;
    options.monitor_retry_time = Duration::from_millis(50);
    let (_lock, lease, trouble, key) = monitored(place, options).await;
    trouble.answer("GET /v1/kv", 10, 500, "trouble");
    wake(place, &key).await;
    timeout(SOON * 2, lease.ended().cancelled()).await.expect("given up");
    assert_eq!(lease.loss(), Some(Loss::Unwatched));
    eventually("the lock is given up", Duration::from_secs(5), async || {
        holder(place, &key).await.is_none()
    })
    .await;
}

/// Case HA12: a lock that is tried once gives up after its time, and succeeds after a release.
/// Case CW39: contended locks have one holder; losses, conflicts and reclaims show as in Consul's
/// own client.
async fn ha12_trying_once_comes_back_in_time(place: &Place) {
    let key = place.name("lock");
    let one = Lock::new(&place.consul(), &key, place.lock());
    taken(&one).await;
    let mut options = place.lock();
    let wait = Duration::from_millis(250);
    (options.try_once, options.wait) = (true, wait);
    let two = Lock::new(&place.consul(), &key, options);
    // A machine that is busy may add to one try; what the lock itself adds is in all of them.
    let mut least = Duration::MAX;
    for _try in 0..if place.double.is_some() { 1 } else { 10 } {
        let start = Instant::now();
        assert!(two.lock().await.unwrap().is_none());
        let took = start.elapsed();
        assert!(took >= wait, "{took:?}");
        least = least.min(took);
        if least <= wait * 2 {
            break;
        }
    }
    assert!(least <= wait * 2, "{least:?}");
    one.unlock().await.unwrap();
    assert!(two.lock().await.unwrap().is_some());
    two.unlock().await.unwrap();
}

async fn a_handle_can_be_used_again_after_a_loss(place: &Place) {
    let key = place.name("lock");
    let mut options = place.lock();
    options.session_options.lock_delay = Duration::ZERO;
    let lock = Lock::new(&place.consul(), &key, options);
    let first = taken(&lock).await;
    let session = holder(place, &key).await.unwrap();
    place.client.session_destroy(&session, &WriteOptions::default()).await.unwrap();
    lost_soon(&first).await;
    let second = timeout(place.failover(), taken(&lock)).await.unwrap();
    assert!(second.check().is_ok() && first.check().is_err());
    assert_ne!(holder(place, &key).await, Some(session), "a session is used once");
    lock.unlock().await.unwrap();
}

async fn a_lock_without_transactions(place: &Place) {
    let (client, trouble) = place.troubled();
    trouble.answer("PUT /v1/txn", 100, 405, "not here");
    let key = place.name("lock");
    let lock = Lock::new(&Consul::new(client), &key, place.lock());
    let lease = taken(&lock).await;
    assert!(lease.check().is_ok() && holder(place, &key).await.is_some());
    lock.unlock().await.unwrap();
    assert_eq!(holder(place, &key).await, None);
}

/// The holder cannot see its lock any more, and its work may still be under way.
async fn a_lock_that_was_lost_stays_closed_for_the_lock_delay(place: &Place) {
    let mut options = place.lock();
    (options.monitor_retries, options.wait) = (0, Duration::from_millis(500));
    let (_lock, lease, trouble, key) = monitored(place, options).await;
    let mut next = place.lock();
    next.delayed = Duration::from_millis(50);
    let next = Lock::new(&place.consul(), &key, next);
    trouble.answer("GET /v1/kv", 10, 500, "trouble");
    timeout(SOON * 5, lease.ended().cancelled()).await.expect("given up");
    let lost = Instant::now();
    assert_eq!(lease.loss(), Some(Loss::Unwatched));
    timeout(place.failover(), taken(&next)).await.unwrap();
    assert!(lost.elapsed() + SOON / 2 > place.delay, "free after {:?}", lost.elapsed());
    next.unlock().await.unwrap();
}

/// The future is dropped when Consul has granted the lock, and before the
/// contender has the answer.
async fn a_lock_that_nobody_waits_for_is_returned(place: &Place) {
    let key = place.name("lock");
    let (client, trouble) = place.troubled();
    let leaving = Lock::new(&Consul::new(client), &key, place.lock());
    trouble.hold_answers("PUT /v1/txn");
    tokio::select! {
        _held = leaving.lock() => unreachable!("it has no answer"),
        () = eventually("it has the lock", SOON * 5, async || trouble.held_back() > 0) => {}
    }
    let next = Lock::new(&place.consul(), &key, place.lock());
    timeout(SOON, taken(&next)).await.expect("no TTL and no lock-delay passes");
    next.unlock().await.unwrap();
}

async fn trying_for_a_while_comes_back_in_time(place: &Place) {
    let key = place.name("lock");
    let one = Lock::new(&place.consul(), &key, place.lock());
    let two = Lock::new(&place.consul(), &key, place.lock());
    let lease = one.try_lock_for(Duration::ZERO).await.unwrap().expect("it is free");
    let start = Instant::now();
    assert!(two.try_lock_for(Duration::from_millis(250)).await.unwrap().is_none());
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    assert!(lease.check().is_ok());
    one.unlock().await.unwrap();
    assert!(two.try_lock_for(SOON).await.unwrap().is_some());
    two.unlock().await.unwrap();
}

async fn a_place_that_was_lost_is_free_when_its_session_has_ended(place: &Place) {
    let prefix = place.name("places");
    let (client, trouble) = place.troubled();
    let mut options = place.lock();
    (options.monitor_retries, options.wait) = (0, Duration::from_millis(500));
    let one = Semaphore::new(&Consul::new(client), &prefix, 1, options).unwrap();
    let began = Instant::now();
    let lease = one.acquire().await.unwrap().unwrap();
    trouble.answer("GET /v1/kv", 10, 500, "trouble");
    timeout(SOON * 5, lease.ended().cancelled()).await.expect("given up");
    assert_eq!(lease.loss(), Some(Loss::Unwatched));
    let next = Semaphore::new(&place.consul(), &prefix, 1, place.lock()).unwrap();
    let taken = timeout(place.failover(), next.acquire()).await.unwrap().unwrap().unwrap();
    assert!(began.elapsed() >= place.ttl, "free after {:?}", began.elapsed());
    assert!(taken.check().is_ok());
    next.release().await.unwrap();
}

async fn a_place_that_nobody_waits_for_is_returned(place: &Place) {
    let prefix = place.name("places");
    let (client, trouble) = place.troubled();
    let leaving = Semaphore::new(&Consul::new(client), &prefix, 1, place.lock()).unwrap();
    // The contender's own key, and then the register.
    let register = async || {
        let key = format!("{prefix}/.lock");
        place.client.kv_get(&key, &QueryOptions::default()).await.unwrap().value.is_some()
    };
    tokio::select! {
        _held = async {
            trouble.hold_answers_of("PUT /v1/kv", "/.lock");
            leaving.acquire().await
        } => unreachable!("it has no answer"),
        () = eventually("it has the place", SOON * 5, register) => {}
    }
    trouble.let_answers_pass();
    let next = Semaphore::new(&place.consul(), &prefix, 1, place.lock()).unwrap();
    timeout(SOON, next.acquire()).await.expect("no TTL passes").unwrap().unwrap();
    next.release().await.unwrap();
}

async fn a_semaphore_has_its_places(place: &Place) {
    let prefix = place.name("places");
    let make = || Semaphore::new(&place.consul(), &prefix, 2, place.lock()).unwrap();
    let (one, two, three) = (make(), make(), Arc::new(make()));
    let first = one.acquire().await.unwrap().unwrap();
    let second = two.acquire().await.unwrap().unwrap();
    assert!(matches!(one.acquire().await, Err(Error::AlreadyHeld)));
    let waiting = tokio::spawn({
        let three = Arc::clone(&three);
        async move { three.acquire().await }
    });
    sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    assert!(first.check().is_ok() && second.check().is_ok());
    one.release().await.unwrap();
    assert_eq!(lost_soon(&first).await, Loss::Resigned);
    let third = timeout(SOON, waiting).await.unwrap().unwrap().unwrap().unwrap();
    assert!(third.check().is_ok() && second.check().is_ok());
    assert!(matches!(one.release().await, Err(Error::NotHeld)));
    two.release().await.unwrap();
    three.release().await.unwrap();
}

async fn a_dead_holder_frees_its_place(place: &Place) {
    let prefix = place.name("places");
    let (client, trouble) = place.troubled();
    let dead = Semaphore::new(&Consul::new(client), &prefix, 1, place.lock()).unwrap();
    let lease = dead.acquire().await.unwrap().unwrap();
    trouble.cut(true);
    let next = Semaphore::new(&place.consul(), &prefix, 1, place.lock()).unwrap();
    let taken = timeout(place.failover(), next.acquire()).await.unwrap().unwrap().unwrap();
    assert!(lease.loss().is_some() && taken.check().is_ok());
    next.release().await.unwrap();
}

async fn a_semaphore_has_one_limit(place: &Place) {
    let prefix = place.name("places");
    let one = Semaphore::new(&place.consul(), &prefix, 2, place.lock()).unwrap();
    one.acquire().await.unwrap().unwrap();
    let other = Semaphore::new(&place.consul(), &prefix, 3, place.lock()).unwrap();
    let error = other.acquire().await.unwrap_err();
    assert!(matches!(error, Error::LimitConflict { found: 2, asked: 3, .. }), "{error}");
    one.release().await.unwrap();
    assert!(Semaphore::new(&place.consul(), &prefix, 0, place.lock()).is_err());
}
