//! The generations of the format, and which one a configuration follows: told from its keys, since no
//! version is written in it.

use serde_json::Value;

/// Generation of upstream's format that a configuration follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Generation {
    /// consul-ecs 0.3 to 0.6: an agent runs in the task, and mesh-init writes Envoy's bootstrap.
    Early,
    /// consul-ecs 0.7 and later: the task talks to the servers, and consul-dataplane runs Envoy.
    #[default]
    Current,
}

/// JSON pointers of keys that only the current generation has.
const CURRENT: &[&str] = &[
    "/consulServers",
    "/controller",
    "/transparentProxy",
    "/consulLogin/datacenter",
    "/service/networkResilienceConfig",
    "/proxy/healthCheckPort",
    "/proxy/localServiceAddress",
    "/gateway/healthCheckPort",
];
/// JSON pointers of keys that only the early generation has, and of those that describe the task:
/// with one of them a configuration without `consulServers` can be an early one.
const EARLY: &[&str] =
    &["/consulHTTPAddr", "/consulCACertFile", "/service/checks", "/service", "/gateway"];

/// Returns the generation of a document, which may be wrong in other ways.
pub(super) fn of(document: &Value) -> Generation {
    let has = |path: &&str| document.pointer(path).is_some();
    // The current keys decide first: a forgotten `consulServers` beside them is an error of that
    // generation, and falling back would start the task against an agent that is not there.
    if CURRENT.iter().any(&has) || has_later_gateway(document) || has_peer(document) {
        Generation::Current
    } else if EARLY.iter().any(&has) {
        Generation::Early
    } else {
        Generation::Current
    }
}

fn has_later_gateway(document: &Value) -> bool {
    let kind = document.pointer("/gateway/kind").and_then(Value::as_str);
    matches!(kind, Some("terminating-gateway" | "api-gateway"))
}

fn has_peer(document: &Value) -> bool {
    let upstreams = document.pointer("/proxy/upstreams").and_then(Value::as_array);
    upstreams.into_iter().flatten().any(|upstream| upstream.get("destinationPeer").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_generation_decide() {
        let of = |text: &str| of(&serde_json::from_str(text).unwrap());
        for text in [
            r#"{"service":{"port":1}}"#,
            r#"{"gateway":{"kind":"mesh-gateway"}}"#,
            r#"{"consulHTTPAddr":"http://consul"}"#,
            r#"{"service":{"checks":[]},"consulLogin":{"enabled":true}}"#,
        ] {
            assert_eq!(of(text), Generation::Early, "{text}");
        }
        for text in [
            "{}",
            "[]",
            r#"{"bootstrapDir":"/x"}"#,
            r#"{"consulServers":null,"service":{"port":1}}"#,
            r#"{"service":{"port":1},"transparentProxy":{"enabled":false}}"#,
            r#"{"service":{"port":1},"proxy":{"healthCheckPort":22000}}"#,
            r#"{"service":{"port":1},"proxy":{"upstreams":[{},{"destinationPeer":"p"}]}}"#,
            r#"{"gateway":{"kind":"api-gateway"}}"#,
            r#"{"controller":{}}"#,
        ] {
            assert_eq!(of(text), Generation::Current, "{text}");
        }
    }
}
