//! Tests of decoding with answers that real Consuls gave.

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::client::ServiceHealth;

/// Says whether the bytes were understood.
type Decoder = fn(&[u8]) -> bool;

fn decodes<T: DeserializeOwned>(body: &[u8]) -> bool {
    serde_json::from_slice::<T>(body).is_ok()
}

macro_rules! captured {
    ($($name:literal as $type:ty,)+) => {
        &[$((
            $name,
            include_str!(concat!("../../tests/data/1.8.7/", $name, ".json")),
            decodes::<$type> as Decoder,
        ),)+]
    };
}

/// The captured answers of Consul 1.8.7, each with its decoder.
const CAPTURED: &[(&str, &str, Decoder)] = captured! {
    "acl-auth-method" as AclAuthMethod,
    "acl-auth-methods" as Vec<AclAuthMethod>,
    "acl-binding-rule" as AclBindingRule,
    "acl-binding-rules" as Vec<AclBindingRule>,
    "acl-bootstrap" as AclToken,
    "acl-login" as AclToken,
    "acl-policies" as Vec<AclPolicy>,
    "acl-policy" as AclPolicy,
    "acl-policy-read" as AclPolicy,
    "acl-replication" as AclReplication,
    "acl-role" as AclRole,
    "acl-roles" as Vec<AclRole>,
    "acl-token" as AclToken,
    "acl-token-clone" as AclToken,
    "acl-token-read" as AclTokenExpanded,
    "acl-token-self" as AclToken,
    "acl-tokens" as Vec<AclTokenEntry>,
    "agent-checks" as std::collections::BTreeMap<String, HealthCheck>,
    "agent-connect-authorize" as Authorization,
    "agent-connect-ca-leaf" as ConnectLeaf,
    "agent-connect-ca-roots" as CaRoots,
    "agent-health-service" as ServiceHealth,
    "agent-health-services" as Vec<ServiceHealth>,
    "agent-members" as Vec<AgentMember>,
    "agent-self" as AgentSelf,
    "agent-services" as std::collections::BTreeMap<String, AgentService>,
    "autopilot-health" as AutopilotHealth,
    "catalog-connect" as Vec<CatalogService>,
    "catalog-node" as Option<CatalogNode>,
    "catalog-nodes" as Vec<Node>,
    "catalog-service" as Vec<CatalogService>,
    "catalog-services" as std::collections::BTreeMap<String, Vec<String>>,
    "config-entry" as ConfigEntry,
    "config-list" as Vec<ConfigEntry>,
    "connect-ca-configuration" as CaConfiguration,
    "connect-ca-roots" as CaRoots,
    "coordinate-datacenters" as Vec<DatacenterCoordinates>,
    "coordinate-nodes" as Vec<NodeCoordinate>,
    "event-fired" as UserEvent,
    "event-list" as Vec<UserEvent>,
    "gateway-services" as Vec<GatewayService>,
    "health-ingress" as Vec<ServiceEntry>,
    "health-service" as Vec<ServiceEntry>,
    "health-state" as Vec<HealthCheck>,
    "intention" as Intention,
    "intention-match" as std::collections::BTreeMap<String, Vec<Intention>>,
    "intentions" as Vec<Intention>,
    "kv-list" as Vec<KvPair>,
    "queries" as Vec<PreparedQuery>,
    "query-execute" as PreparedQueryResult,
    "raft-configuration" as RaftConfiguration,
    "session-list" as Vec<Session>,
    "txn-committed" as TxnAnswer,
    "txn-read" as TxnAnswer,
    "txn-rolled-back" as TxnAnswer,
};

#[test]
fn every_captured_answer_is_understood() {
    for (name, text, decode) in CAPTURED {
        assert!(decode(text.as_bytes()), "{name}");
    }
}

/// Spec: CW43
#[test]
fn unknown_members_anywhere_change_nothing() {
    for (name, text, decode) in CAPTURED {
        let mut document: Value = serde_json::from_str(text).unwrap();
        add_unknown(&mut document, name.starts_with("catalog-services"));
        assert!(decode(document.to_string().as_bytes()), "{name}");
    }
}

/// Adds a member to every object that Consul defines. Maps by name (`Meta`, `Tags`, services by
/// id) have no unknown members, so only objects with members in `PascalCase` that are
/// not such maps are changed.
fn add_unknown(value: &mut Value, map: bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| add_unknown(item, map)),
        Value::Object(members) => {
            let defined = ["ID", "Name", "Node", "Key", "CreateIndex", "Healthy", "Results"];
            if !map && defined.iter().any(|name| members.contains_key(*name)) {
                members.insert("FromTheFuture".into(), serde_json::json!({ "a": [1, null] }));
            }
            for (name, member) in members {
                if name != "FromTheFuture" {
                    add_unknown(member, map);
                }
            }
        }
        _ => {}
    }
}

/// Changes the part of a document that the steps lead to.
fn mutate(value: &mut Value, steps: &[usize], what: &Value, remove: bool) {
    let Some((step, rest)) = steps.split_first() else {
        *value = what.clone();
        return;
    };
    match value {
        Value::Array(items) if !items.is_empty() => {
            let at = step % items.len();
            if remove && rest.is_empty() {
                items.remove(at);
            } else {
                mutate(&mut items[at], rest, what, remove);
            }
        }
        Value::Object(members) if !members.is_empty() => {
            let at = step % members.len();
            let name = members.keys().nth(at).unwrap().clone();
            if remove && rest.is_empty() {
                members.remove(&name);
            } else {
                mutate(&mut members[&name], rest, what, remove);
            }
        }
        _ => *value = what.clone(),
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(Value::Bool(true)),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
        "[0-9TZ:.-]{0,30}".prop_map(Value::from),
        "-?[0-9]{1,25}(ns|us|ms|s|m|h)".prop_map(Value::from),
        Just(serde_json::json!([])),
        Just(serde_json::json!([null])),
        Just(serde_json::json!({})),
    ]
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
        for (_name, _text, decode) in CAPTURED {
            let _understood = decode(&body);
        }
    }

    #[test]
    fn no_changed_answer_makes_a_decoder_panic(
        which in 0..CAPTURED.len(),
        steps in proptest::collection::vec(0..40_usize, 0..7),
        what in scalar(),
        remove: bool,
        cut in 0..2000_usize,
    ) {
        let (_name, text, decode) = CAPTURED[which];
        let mut document: Value = serde_json::from_str(text).unwrap();
        mutate(&mut document, &steps, &what, remove);
        let body = document.to_string().into_bytes();
        let _understood = decode(&body);
        let _understood = decode(&body[..cut.min(body.len())]);
    }

    /// An event's id is what Consul's gossip says: anything.
    #[test]
    fn no_event_id_makes_its_index_panic(id in "[0-9a-fA-F-]{30,40}|\\PC{0,40}") {
        let text = serde_json::json!({ "ID": id, "Name": "x" }).to_string();
        let event: UserEvent = serde_json::from_str(&text).unwrap();
        prop_assert_ne!(event.index(), Some(0));
    }
}
