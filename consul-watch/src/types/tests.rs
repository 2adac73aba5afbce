//! Tests of types: what is left out, kept and redacted.

use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::*;

/// What Consul 1.8.7 and 1.21 answer, shortened.
const DOCUMENTS: &[&str] = &[
    r#"[{"Node":{"ID":"6c0f","Node":"n1","Address":"10.0.0.1","Datacenter":"dc1","TaggedAddresses":{"lan":"10.0.0.1"},"Meta":{"a":""},"CreateIndex":12,"ModifyIndex":14},"Service":{"ID":"web-1","Service":"web","Tags":["v1"],"Address":"","TaggedAddresses":{"wan":{"Address":"1.2.3.4","Port":80}},"Meta":null,"Port":80,"Weights":{"Passing":1,"Warning":1},"EnableTagOverride":false,"Proxy":{"Mode":"","MeshGateway":{},"Expose":{}},"Connect":{},"PeerName":"","CreateIndex":20,"ModifyIndex":20},"Checks":[{"Node":"n1","CheckID":"serfHealth","Name":"Serf Health Status","Status":"passing","Notes":"","Output":"x","ServiceID":"","ServiceName":"","ServiceTags":[],"Type":"","Interval":"","ExposedPort":0,"Definition":{},"CreateIndex":12,"ModifyIndex":12}]}]"#,
    r#"[{"LockIndex":1,"Key":"a/b","Flags":42,"Value":"dGVzdA==","Session":"adf4238a-882b-9ddc-4a9d-5b6758e4159e","CreateIndex":5,"ModifyIndex":9}]"#,
    r#"[{"ID":"6c0f","Node":"n1","Address":"10.0.0.1","Datacenter":"dc1","TaggedAddresses":null,"NodeMeta":{},"ServiceKind":"","ServiceID":"web","ServiceName":"web","ServiceTags":["a"],"ServiceAddress":"","ServiceWeights":{"Passing":1,"Warning":1},"ServiceMeta":{},"ServicePort":80,"ServiceEnableTagOverride":false,"ServiceProxy":{"MeshGateway":{},"Expose":{}},"ServiceConnect":{},"CreateIndex":5,"ModifyIndex":5}]"#,
    r#"{"Node":{"ID":"6c0f","Node":"n1","Address":"10.0.0.1","Meta":null},"Services":{"web":{"ID":"web","Service":"web","Port":80}}}"#,
    r#"[{"ID":"adf4238a-882b-9ddc-4a9d-5b6758e4159e","Name":"n","Node":"n1","LockDelay":15000000000,"Behavior":"release","TTL":"10s","NodeChecks":["serfHealth"],"ServiceChecks":null,"CreateIndex":5,"ModifyIndex":5}]"#,
    r#"{"Config":{"Datacenter":"dc1","NodeName":"n1","NodeID":"6c0f","Revision":"","Server":true,"Version":"1.8.7"},"Member":{"Name":"n1","Addr":"127.0.0.1","Port":8301,"Tags":{"role":"consul"},"Status":1},"Meta":{},"xDS":{"SupportedProxies":{"envoy":["1.14.4"]}}}"#,
    r#"{"web":{"ID":"web","Service":"web","Tags":[],"Meta":{},"Port":80,"Address":"","ContentHash":"5b","Datacenter":"dc1"}}"#,
];

/// Reads a document with every decoder; none may panic.
fn read_with_all(document: &[u8]) {
    fn read<T: DeserializeOwned>(document: &[u8]) {
        drop(serde_json::from_slice::<Option<T>>(document));
    }
    read::<Vec<ServiceEntry>>(document);
    read::<Vec<KvPair>>(document);
    read::<Vec<CatalogService>>(document);
    read::<CatalogNode>(document);
    read::<Vec<Session>>(document);
    read::<AgentSelf>(document);
    read::<std::collections::BTreeMap<String, AgentService>>(document);
    read::<Vec<HealthCheck>>(document);
    read::<Vec<Node>>(document);
    read::<Vec<AgentMember>>(document);
}

#[test]
fn each_document_is_read_by_its_decoder() {
    fn read<T: DeserializeOwned>(at: usize) -> T {
        serde_json::from_str(DOCUMENTS[at]).unwrap()
    }
    assert_eq!(read::<Vec<ServiceEntry>>(0)[0].checks.len(), 1);
    assert_eq!(read::<Vec<KvPair>>(1)[0].text(), Some("test"));
    assert_eq!(read::<Vec<CatalogService>>(2)[0].reachable_address(), "10.0.0.1");
    assert_eq!(read::<CatalogNode>(3).services.len(), 1);
    assert_eq!(read::<Vec<Session>>(4)[0].ttl, Some(Duration::from_secs(10)));
    assert_eq!(read::<AgentSelf>(5).config.version, "1.8.7");
    let services: std::collections::BTreeMap<String, AgentService> = read(6);
    assert_eq!(services["web"].content_hash, "5b");
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_with_all(&bytes);
    }

    #[test]
    fn no_mutated_document_makes_a_decoder_panic(
        which in 0..DOCUMENTS.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 1..8),
    ) {
        let mut document = DOCUMENTS[which].as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let at = at.index(document.len());
            match kind {
                0 => document[at] = byte,
                1 => { document.remove(at); }
                _ => document.insert(at, byte),
            }
            if document.is_empty() {
                break;
            }
        }
        read_with_all(&document);
    }

    /// Dropping members, or making them null, must be an error or a default.
    #[test]
    fn no_missing_member_makes_a_decoder_panic(which in 0..DOCUMENTS.len(), keep in any::<u64>(), null in any::<u64>()) {
        fn prune(value: &mut serde_json::Value, keep: &mut u64, null: &mut u64) {
            match value {
                serde_json::Value::Object(members) => {
                    for member in members.values_mut() {
                        *null = null.rotate_left(1);
                        if *null & 3 == 3 {
                            *member = serde_json::Value::Null;
                        }
                        prune(member, keep, null);
                    }
                    members.retain(|_, _| {
                        *keep = keep.rotate_left(1);
                        *keep & 7 != 7
                    });
                }
                serde_json::Value::Array(items) => items.iter_mut().for_each(|item| prune(item, keep, null)),
                _ => {}
            }
        }
        let mut value: serde_json::Value = serde_json::from_str(DOCUMENTS[which]).unwrap();
        let (mut keep, mut null) = (keep, null);
        prune(&mut value, &mut keep, &mut null);
        read_with_all(value.to_string().as_bytes());
    }
}
