//! Wrong calls of the controllers say why.

use super::process::Launch;

const CLUSTER: (&str, &str) =
    ("CONSUL_ECS_CLUSTER", "arn:aws:ecs:us-east-1:123456789012:cluster/prod");

async fn complaint(arguments: &[&str], vars: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut launch = Launch::new(arguments, "/dev/null".into());
    for &(name, value) in vars {
        launch.var(name, value);
    }
    let (code, printed, log) = launch.run(&[]).await;
    assert_eq!(printed, "");
    (code, log.trim().to_owned())
}

/// Spec: ACL44
#[tokio::test]
async fn an_argument_is_named() {
    for command in ["controller", "acl-controller"] {
        let (code, text) = complaint(&[command, "x"], &[]).await;
        assert_eq!((code, text.as_str()), (Some(1), "unexpected argument: x"));
    }
    let (code, text) = complaint(&["cleanup", "-force", "mesh-init"], &[]).await;
    assert_eq!(code, Some(1));
    assert_eq!(text, r#""mesh-init" is no controller; acl-controller or controller is"#);
    let (code, text) = complaint(&["dry-run"], &[]).await;
    assert_eq!(code, Some(1));
    assert_eq!(text, "which controller? acl-controller or controller");
}

/// Spec: ACL43
#[tokio::test]
async fn a_partition_has_to_be_enabled() {
    for generation in ["-secret-name-prefix=prod", "-iam-role-path=/x/"] {
        let call = ["acl-controller", generation, "-partition", "team"];
        let (code, text) = complaint(&call, &[]).await;
        let expected = "partition flag provided without partitions-enabled flag";
        assert_eq!((code, text.as_str()), (Some(1), expected));
    }
    let config = r#"{"bootstrapDir":"/consul","consulServers":{"hosts":"127.0.0.1"},
        "controller":{"iamRolePath":"/x/","partition":"team"}}"#;
    let (code, text) = complaint(&["controller"], &[("CONSUL_ECS_CONFIG_JSON", config)]).await;
    let expected = "`config.controller.partition` provided without setting \
                    `config.controller.partitionEnabled = true`";
    assert_eq!((code, text.as_str()), (Some(1), expected));
}

#[tokio::test]
async fn what_the_environment_lacks_is_named() {
    let call = ["acl-controller", "-secret-name-prefix=prod"];
    for (vars, expected) in [
        (
            &[][..],
            "ECS_CONTAINER_METADATA_URI_V4 env var not set; outside ECS, give the cluster's ARN in CONSUL_ECS_CLUSTER",
        ),
        (
            &[CLUSTER, ("CONSUL_ECS_INTERVAL", "soon")][..],
            r#"CONSUL_ECS_INTERVAL: "soon" is not a duration such as 10s"#,
        ),
        (
            &[CLUSTER, ("CONSUL_ECS_CHECK_INTERVAL", "0s")][..],
            r#"CONSUL_ECS_CHECK_INTERVAL: "0s" is not a duration such as 10s"#,
        ),
        (
            &[CLUSTER, ("CONSUL_ECS_METRICS_ADDRESS", "here")][..],
            r#"CONSUL_ECS_METRICS_ADDRESS: "here" is not an address such as 127.0.0.1:9102"#,
        ),
    ] {
        let (code, text) = complaint(&call, vars).await;
        assert_eq!(code, Some(1));
        assert!(text.contains("ERROR") && text.ends_with(expected), "{text}");
    }
}
