//! Parity of transactions.

use consul_watch::{
    QueryOptions, WriteOptions,
    types::{KvOp, SessionId, TxnOutcome},
};

use super::Env;

super::cases![cp44_one_failing_step, cp45_too_many_steps, reads_and_checks, locks];

fn set(key: &str, value: &'static str) -> KvOp {
    KvOp::set(key, value).with_flags(7)
}

async fn run(env: &Env, ops: &[KvOp]) -> TxnOutcome {
    env.client.kv_transact(ops, &WriteOptions::default()).await.unwrap()
}

/// The steps that failed, with Consul's words.
async fn refused(env: &Env, ops: &[KvOp]) -> Vec<(usize, String)> {
    match run(env, ops).await {
        TxnOutcome::RolledBack(failures) => {
            failures.into_iter().map(|failure| (failure.op_index, failure.what)).collect()
        }
        TxnOutcome::Committed(results) => panic!("committed: {results:?}"),
    }
}

/// Spec: CP44
async fn cp44_one_failing_step(env: &Env) {
    let (a, b) = (env.name("a"), env.name("b"));
    let ops = [set(&a, "x"), KvOp::cas(b, "x", 99), KvOp::get(env.name("none"))];
    let failed = refused(env, &ops).await;
    assert_eq!(failed.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [1, 2]);
    assert!(failed[0].1.contains("index is stale"), "{failed:?}");
    assert!(failed[1].1.contains("doesn't exist"), "{failed:?}");
    assert_eq!(env.client.kv_get(&a, &QueryOptions::default()).await.unwrap().value, None);
}

/// Spec: CP45
async fn cp45_too_many_steps(env: &Env) {
    let key = env.name("a");
    let limit = if env.is_1_8 { 64 } else { 128 };
    let steps = vec![set(&key, "x"); limit + 1];
    let error = env.client.kv_transact(&steps, &WriteOptions::default()).await.unwrap_err();
    assert_eq!(error.status().map(|status| status.as_u16()), Some(413));
    assert!(run(env, &steps[..limit]).await.is_committed());
}

async fn reads_and_checks(env: &Env) {
    let prefix = env.name("p//");
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let outcome = run(env, &[set(&a, "1"), set(&b, "2")]).await;
    let written: Vec<_> = outcome.pairs().collect();
    let shown: Vec<_> = written.iter().map(|pair| (pair.flags, pair.value.len())).collect();
    assert_eq!(shown, [(7, 0), (7, 0)]);
    let index = written[0].modify_index;
    assert_eq!(written[1].modify_index, index, "one index for all");
    let read = [KvOp::get_tree(&prefix), KvOp::check_index(&a, index)];
    let outcome = run(env, &read).await;
    let found: Vec<_> = outcome.pairs().filter_map(|pair| pair.text()).take(2).collect();
    assert_eq!(found, ["1", "2"]);
    let failed = refused(
        env,
        &[
            KvOp::check_index(&a, index + 1),
            KvOp::check_not_exists(&a),
            KvOp::delete_cas(&a, index + 1),
        ],
    )
    .await;
    assert!(failed[0].1.contains("current modify index"), "{failed:?}");
    assert!(failed[1].1.contains("exists"), "{failed:?}");
    assert!(failed[2].1.contains("failed to delete key"), "{failed:?}");
    let gone = [KvOp::delete_tree(prefix), KvOp::check_not_exists(a), KvOp::check_not_exists(b)];
    assert_eq!(run(env, &gone).await, TxnOutcome::Committed(Vec::new()));
}

async fn locks(env: &Env) {
    let key = env.name("lock");
    let (one, other) = (env.session(|_| ()).await, env.session(|_| ()).await);
    let lock = |session: &SessionId| KvOp::lock(&key, "x", session.clone());
    let check = |session: &SessionId| KvOp::check_session(&key, session.clone());
    assert!(run(env, &[lock(&one), check(&one)]).await.is_committed());
    let failed = refused(env, &[lock(&other)]).await;
    assert!(failed[0].1.contains("lock is already held"), "{failed:?}");
    // A fenced write: it takes effect only while the session holds the lock.
    let fenced = env.name("state");
    let failed = refused(env, &[check(&other), set(&fenced, "stolen")]).await;
    assert!(failed[0].1.contains("failed session check"), "{failed:?}");
    assert!(run(env, &[check(&one), set(&fenced, "mine")]).await.is_committed());
    assert!(run(env, &[KvOp::unlock(&key, "x", one)]).await.is_committed());
    assert!(run(env, &[lock(&other)]).await.is_committed());
}
