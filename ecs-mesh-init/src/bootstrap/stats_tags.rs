//! Tags that Envoy takes out of the names of its metrics, and the fixed tags that say whose metrics
//! they are.

use super::{BootstrapOptions, options::non_empty};
use crate::json::{Json, object};

/// Current tags, each with the expression that finds its value in a metric's name. The outer group
/// is removed from the name, the inner one is the value.
const TAGS: &[(&str, &str)] = &[
    (
        "consul.destination.custom_hash",
        r"^cluster\.(?:passthrough~)?((?:([^.]+)~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.service_subset",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:([^.]+)\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.service",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:[^.]+\.)?([^.]+)\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.namespace",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.([^.]+)\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.partition",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:([^.]+)\.)?[^.]+\.internal[^.]*\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.datacenter",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?([^.]+)\.internal[^.]*\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.peer",
        r"^cluster\.([^.]+\.(?:[^.]+\.)?([^.]+)\.external\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.routing_type",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.([^.]+)\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.trust_domain",
        r"^cluster\.(?:passthrough~)?((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.([^.]+)\.consul\.)",
    ),
    (
        "consul.destination.target",
        r"^cluster\.(?:passthrough~)?(((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+)\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.destination.full_target",
        r"^cluster\.(?:passthrough~)?(((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+)\.consul\.)",
    ),
    (
        "consul.upstream.service",
        r"^(?:tcp|http)\.upstream(?:_peered)?\.(([^.]+)(?:\.[^.]+)?(?:\.[^.]+)?\.[^.]+\.)",
    ),
    (
        "consul.upstream.datacenter",
        r"^(?:tcp|http)\.upstream\.([^.]+(?:\.[^.]+)?(?:\.[^.]+)?\.([^.]+)\.)",
    ),
    ("consul.upstream.peer", r"^(?:tcp|http)\.upstream_peered\.([^.]+(?:\.[^.]+)?\.([^.]+)\.)"),
    (
        "consul.upstream.namespace",
        r"^(?:tcp|http)\.upstream(?:_peered)?\.([^.]+(?:\.([^.]+))?(?:\.[^.]+)?\.[^.]+\.)",
    ),
    (
        "consul.upstream.partition",
        r"^(?:tcp|http)\.upstream\.([^.]+(?:\.[^.]+)?(?:\.([^.]+))?\.[^.]+\.)",
    ),
];

/// Tags of versions before 1.9, which Consul still writes unless `omit_deprecated_tags` is set.
const DEPRECATED_TAGS: &[(&str, &str)] = &[
    (
        "consul.custom_hash",
        r"^cluster\.((?:([^.]+)~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.service_subset",
        r"^cluster\.((?:[^.]+~)?(?:([^.]+)\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.service",
        r"^cluster\.((?:[^.]+~)?(?:[^.]+\.)?([^.]+)\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.namespace",
        r"^cluster\.((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.([^.]+)\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.datacenter",
        r"^cluster\.((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?([^.]+)\.internal[^.]*\.[^.]+\.consul\.)",
    ),
    (
        "consul.routing_type",
        r"^cluster\.((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.([^.]+)\.[^.]+\.consul\.)",
    ),
    (
        "consul.trust_domain",
        r"^cluster\.((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.([^.]+)\.consul\.)",
    ),
    (
        "consul.target",
        r"^cluster\.(((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+)\.[^.]+\.[^.]+\.consul\.)",
    ),
    (
        "consul.full_target",
        r"^cluster\.(((?:[^.]+~)?(?:[^.]+\.)?[^.]+\.[^.]+\.(?:[^.]+\.)?[^.]+\.[^.]+\.[^.]+)\.consul\.)",
    ),
];

/// Builds `stats_config`: the user's tags, those of Consul, and those that say whose metrics they
/// are.
pub(super) fn config(options: &BootstrapOptions) -> Json {
    let mut tags: Vec<(String, Json)> = Vec::new();
    for tag in &options.settings.stats_tags {
        let (name, value) = tag.split_once('=').unwrap_or((tag, "1"));
        // Lower case, as upstream, so that it replaces a default tag whatever its case.
        let name = name.to_lowercase();
        tags.push((name.clone(), fixed(&name, value)));
    }
    let deprecated = if options.omit_deprecated_tags { &[][..] } else { DEPRECATED_TAGS };
    for (name, regex) in TAGS.iter().chain(deprecated) {
        // A tag of the user's with the same name wins: Envoy refuses two of one name.
        add(&mut tags, name, || object! { "regex" => *regex, "tag_name" => *name });
    }
    let whose = [
        ("local_cluster", options.cluster.as_str()),
        ("consul.source.service", options.source_service()),
        ("consul.source.namespace", options.namespace()),
        ("consul.source.partition", options.partition()),
        ("consul.source.datacenter", options.datacenter.as_deref().unwrap_or_default()),
    ];
    for (name, value) in whose {
        if let Some(value) = non_empty(Some(value)) {
            add(&mut tags, name, || fixed(name, value));
        }
    }
    let tags: Vec<Json> = tags.into_iter().map(|(_name, tag)| tag).collect();
    object! { "stats_tags" => tags, "use_all_default_tags" => true }
}

/// Adds a tag unless one of its name exists.
fn add(tags: &mut Vec<(String, Json)>, name: &str, tag: impl FnOnce() -> Json) {
    if !tags.iter().any(|(known, _tag)| known == name) {
        tags.push((name.to_owned(), tag()));
    }
}

fn fixed(name: &str, value: &str) -> Json {
    object! { "tag_name" => name, "fixed_value" => value }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use regex::Regex;

    use super::*;

    /// The values that the tags take from a metric, as Envoy does it.
    fn labels(metric: &str) -> BTreeMap<&'static str, String> {
        TAGS.iter()
            .filter_map(|(name, regex)| {
                let found = Regex::new(regex).unwrap().captures(metric)?;
                Some((*name, found.get(2)?.as_str().to_owned()))
            })
            .collect()
    }

    fn expect(
        metric: &str,
        prefix: &str,
        expected: &[(&str, &str)],
    ) -> BTreeMap<&'static str, String> {
        let labels = labels(metric);
        for (name, value) in expected {
            let name = format!("{prefix}{name}");
            assert_eq!(
                labels.get(name.as_str()).map(String::as_str),
                Some(*value),
                "{name} of {metric}"
            );
        }
        labels
    }

    const DOMAIN: &str = "dc391d6b-7a1b-11eb-9439-0242ac130002";

    /// Case MI49: tags of a destination with hash, subset, partition and datacenter.
    #[test]
    fn labels_of_a_destination() {
        let metric = format!(
            "cluster.f8f8f8f8~v2.pong.default.partA.dc2.internal-v1.{DOMAIN}.consul.bind_errors"
        );
        let labels = expect(
            &metric,
            "consul.destination.",
            &[
                ("custom_hash", "f8f8f8f8"),
                ("service_subset", "v2"),
                ("service", "pong"),
                ("namespace", "default"),
                ("partition", "partA"),
                ("datacenter", "dc2"),
                ("routing_type", "internal-v1"),
                ("trust_domain", DOMAIN),
                ("target", "f8f8f8f8~v2.pong.default.partA.dc2"),
            ],
        );
        assert!(!labels.contains_key("consul.destination.peer"));
    }

    /// Case MI50: tags of a destination in a cluster peer, which has no datacenter and no
    /// partition.
    #[test]
    fn labels_of_a_destination_in_a_peer() {
        let metric = format!("cluster.pong.default.cloudpeer.external.{DOMAIN}.consul.bind_errors");
        let labels =
            expect(&metric, "consul.destination.", &[("peer", "cloudpeer"), ("service", "pong")]);
        assert!(!labels.contains_key("consul.destination.datacenter"));
        assert!(!labels.contains_key("consul.destination.partition"));
    }

    /// Case MI51: tags of an upstream, local and in a cluster peer.
    #[test]
    fn labels_of_an_upstream() {
        expect(
            "tcp.upstream.db.frontend.west.dc1.downstream_cx_total",
            "consul.upstream.",
            &[
                ("service", "db"),
                ("namespace", "frontend"),
                ("partition", "west"),
                ("datacenter", "dc1"),
            ],
        );
        expect(
            "http.upstream_peered.web.cloudpeer.downstream_cx_total",
            "consul.upstream.",
            &[("service", "web"), ("peer", "cloudpeer")],
        );
    }

    #[test]
    fn own_tags_come_first_and_replace_those_of_their_name() {
        let mut options = BootstrapOptions::new("p", "web");
        options.settings.stats_tags =
            vec!["Env=prod=1".into(), "canary".into(), "local_cluster=mine".into()];
        let json = serde_json::to_value(config(&options)).unwrap();
        let tags = json["stats_tags"].as_array().unwrap();
        assert_eq!(tags[0], serde_json::json!({"tag_name": "env", "fixed_value": "prod=1"}));
        assert_eq!(tags[1], serde_json::json!({"tag_name": "canary", "fixed_value": "1"}));
        assert_eq!(tags.iter().filter(|tag| tag["tag_name"] == "local_cluster").count(), 1);
        assert_eq!(tags.len(), 3 + 25 + 3, "no datacenter is known");
        options.omit_deprecated_tags = true;
        let json = serde_json::to_value(config(&options)).unwrap();
        assert_eq!(json["stats_tags"].as_array().unwrap().len(), 3 + 16 + 3);
    }
}
