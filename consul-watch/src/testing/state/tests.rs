//! Tests of the double's state without HTTP.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::*;

fn state() -> State {
    State::new(Behaviour::Current, 1)
}

fn register(state: &mut State, body: serde_json::Value) {
    state.register(serde_json::from_value(body).unwrap(), Instant::now()).unwrap();
}

#[test]
fn ids_of_checks_are_looked_up_without_regard_to_case() {
    let mut state = state();
    let check = |id: &str, status: &str| {
        json!({ "Node": "n", "Address": "10.0.0.1",
            "Check": { "CheckID": id, "Name": "c", "Status": status } })
    };
    register(&mut state, check("Disk", "passing"));
    register(&mut state, check("DISK", "critical"));
    let (found, _) = state.checks(Checks::OfNode("n"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].check_id.as_str(), found[0].status.as_str()), ("DISK", "critical"));
    let body = json!({ "Node": "n", "CheckID": "disk" });
    state.deregister(&serde_json::from_value(body).unwrap(), Instant::now());
    assert!(state.checks(Checks::OfNode("n")).0.is_empty());
}

#[test]
fn lock_delays_that_are_over_are_not_kept() {
    let mut state = state();
    let mut now = Instant::now();
    for round in 0..20 {
        let session = serde_json::from_value(json!({ "LockDelay": "1s" })).unwrap();
        let session = state.session_create(&session, now).unwrap();
        let condition = KvCondition { acquire: Some(session.clone()), ..KvCondition::default() };
        let key = format!("lock-{round}");
        assert_eq!(state.kv_put(&key, Bytes::new(), 0, &condition, now), Ok(true));
        state.session_destroy(&session, now);
        assert!(state.lock_delays.contains_key(&key));
        assert_eq!(state.lock_delays.len(), 1, "round {round}");
        now += Duration::from_secs(2);
    }
}

#[test]
fn only_reads_of_health_count_the_checks_index() {
    let mut state = state();
    register(&mut state, json!({ "Node": "n", "Address": "10.0.0.1" }));
    let index = |state: &State, health| state.instances("none", false, health).1.index;
    let before = (index(&state, true), index(&state, false));
    let check = json!({ "CheckID": "c", "Name": "c", "Status": "passing" });
    register(&mut state, json!({ "Node": "n", "Address": "10.0.0.1", "Check": check }));
    assert!(index(&state, true) > before.0);
    assert_eq!(index(&state, false), before.1);
}
