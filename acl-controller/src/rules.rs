//! Rules of the policies that the controllers create.
//!
//! The texts equal upstream's to the byte, so that a policy created by either is the same.
//!
//! Source: consul-ecs 0.4, 0.6 and 0.10 `controller/` and `subcommand/`.

use crate::service_name::ServiceName;

/// Returns the rules of all clients of a cluster that registers through agents.
pub(crate) fn client(partition: Option<&str>) -> String {
    match partition {
        None => r#"node_prefix "" { policy = "write" } service_prefix "" { policy = "read" }"#
            .to_owned(),
        Some(partition) => format!(
            "partition \"{partition}\" {{\n  node_prefix \"\" {{\n    policy = \"write\"\n  }}\n  namespace_prefix \"\" {{\n    service_prefix \"\" {{\n      policy = \"read\"\n    }}\n  }}\n}}"
        ),
    }
}

/// Returns the rules of a service's token.
pub(crate) fn service(service: &ServiceName) -> String {
    let name = &service.name;
    let blocks = [
        (format!("service \"{name}\""), "write"),
        (format!("service \"{name}-sidecar-proxy\""), "write"),
        ("service_prefix \"\"".to_owned(), "read"),
        ("node_prefix \"\"".to_owned(), "read"),
    ];
    // Indented within the partition's block, as upstream's template is.
    let indent = if service.tenancy.is_some() { "    " } else { "" };
    let blocks: Vec<String> = blocks
        .into_iter()
        .map(|(head, policy)| {
            format!("{indent}{head} {{\n{indent}  policy = \"{policy}\"\n{indent}}}")
        })
        .collect();
    let blocks = blocks.join("\n");
    match &service.tenancy {
        None => blocks,
        Some((partition, namespace)) => format!(
            "partition \"{partition}\" {{\n  namespace \"{namespace}\" {{\n{blocks}\n  }}\n}}"
        ),
    }
}

/// Returns the rules that let services of one namespace find those of the others.
pub(crate) fn cross_namespace_read(partition: &str) -> String {
    format!(
        "partition \"{partition}\" {{\n  namespace_prefix \"\" {{\n    service_prefix \"\" {{\n      policy = \"read\"\n    }}\n    node_prefix \"\" {{\n      policy = \"read\"\n    }}\n  }}\n}}"
    )
}

/// Returns the rules of API gateways.
pub(crate) fn api_gateway(partitions: bool) -> String {
    let blocks = "node_prefix \"\" {\n\t\tpolicy = \"read\"\n\t}\n\tservice_prefix \"\" {\n\t\tpolicy = \"read\"\n\t}";
    if partitions {
        let inner = blocks.replace('\n', "\n\t");
        format!("mesh = \"read\"\n\tnamespace_prefix \"\" {{\n\t\t{inner}\n\t}}")
    } else {
        format!("mesh = \"read\"\n\t{blocks}")
    }
}

/// Returns the rules of mesh gateways.
pub(crate) fn mesh_gateway(partition: Option<&str>) -> String {
    let base = "mesh = \"write\"\npeering = \"read\"";
    match partition {
        // Only the default partition may read the peerings of all partitions.
        Some("default") => format!("{base}\npartition_prefix \"\" {{\n\tpeering = \"read\"\n}}"),
        _ => base.to_owned(),
    }
}

/// Returns the rules of the anonymous token, equal to those of Consul on Kubernetes.
pub(crate) fn anonymous(partitions: bool) -> String {
    let blocks = "\n    node_prefix \"\" {\n      policy = \"read\"\n    }\n    service_prefix \"\" {\n      policy = \"read\"\n    }";
    if partitions {
        let inner = blocks.trim_start_matches('\n');
        format!("\npartition_prefix \"\" {{\n  namespace_prefix \"\" {{\n{inner}\n  }}\n}}")
    } else {
        blocks.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(tenancy: Option<(&str, &str)>) -> ServiceName {
        let tenancy =
            tenancy.map(|(partition, namespace)| (partition.to_owned(), namespace.to_owned()));
        ServiceName { name: "web".to_owned(), tenancy }
    }

    #[test]
    fn the_texts_are_upstreams() {
        let plain = "service \"web\" {\n  policy = \"write\"\n}\nservice \"web-sidecar-proxy\" {\n  policy = \"write\"\n}\nservice_prefix \"\" {\n  policy = \"read\"\n}\nnode_prefix \"\" {\n  policy = \"read\"\n}";
        assert_eq!(service(&named(None)), plain);
        let indented: Vec<String> = plain.lines().map(|line| format!("    {line}")).collect();
        assert_eq!(
            service(&named(Some(("p1", "n1")))),
            format!(
                "partition \"p1\" {{\n  namespace \"n1\" {{\n{}\n  }}\n}}",
                indented.join("\n")
            )
        );
        assert_eq!(
            client(None),
            r#"node_prefix "" { policy = "write" } service_prefix "" { policy = "read" }"#
        );
        assert!(client(Some("p1")).starts_with("partition \"p1\" {\n  node_prefix"));
        assert_eq!(
            cross_namespace_read("p1"),
            "partition \"p1\" {\n  namespace_prefix \"\" {\n    service_prefix \"\" {\n      policy = \"read\"\n    }\n    node_prefix \"\" {\n      policy = \"read\"\n    }\n  }\n}"
        );
        assert_eq!(
            api_gateway(false),
            "mesh = \"read\"\n\tnode_prefix \"\" {\n\t\tpolicy = \"read\"\n\t}\n\tservice_prefix \"\" {\n\t\tpolicy = \"read\"\n\t}"
        );
        assert_eq!(
            anonymous(false),
            "\n    node_prefix \"\" {\n      policy = \"read\"\n    }\n    service_prefix \"\" {\n      policy = \"read\"\n    }"
        );
        assert!(
            anonymous(true).starts_with(
                "\npartition_prefix \"\" {\n  namespace_prefix \"\" {\n    node_prefix"
            )
        );
        assert!(anonymous(true).ends_with("    }\n  }\n}"));
    }

    /// Case ACL42: mesh gateways outside the default partition get no rule about other partitions.
    #[test]
    fn only_the_default_partitions_mesh_gateways_see_the_peers_of_others() {
        let plain = "mesh = \"write\"\npeering = \"read\"";
        assert_eq!(mesh_gateway(None), plain);
        assert_eq!(mesh_gateway(Some("part-1")), plain);
        assert_eq!(
            mesh_gateway(Some("default")),
            format!("{plain}\npartition_prefix \"\" {{\n\tpeering = \"read\"\n}}")
        );
    }

    #[test]
    fn every_text_is_balanced() {
        let texts = [
            client(None),
            client(Some("p")),
            service(&named(None)),
            service(&named(Some(("p", "n")))),
            cross_namespace_read("p"),
            api_gateway(false),
            api_gateway(true),
            mesh_gateway(Some("default")),
            anonymous(false),
            anonymous(true),
        ];
        for text in texts {
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
            assert_eq!(text.matches('"').count() % 2, 0, "{text}");
        }
    }
}
