//! What `-help` prints for the controllers.

/// Lines of the list of commands.
pub(crate) const LIST: &str = "
    acl-controller      Makes tokens for services, or sets up logins, as of consul-ecs 0.2 to 0.6
    cleanup             Removes all that a controller made, for a cluster that is taken down
    controller          Sets up logins and cleans up after them, as of consul-ecs 0.7 and later
    dry-run             Prints what a controller would change";

const ACL_CONTROLLER: &str = "Usage: consul-ecs acl-controller [OPTIONS]

Keeps Consul's tokens and policies in line with the tasks that run, until SIGTERM. With a prefix of
secrets it makes tokens for services, as of consul-ecs 0.2 to 0.4; else it sets up logins with AWS
IAM and removes the tokens of tasks that are gone, as of 0.5 and 0.6.

    -secret-name-prefix PREFIX        Of the secrets that tokens of services are put into
    -consul-client-secret-arn ARN     Secret for the token that all Consul clients share
    -service-identities               Tokens get their rights by a service identity, without a policy,
                                      as of 0.2 and 0.3
    -iam-role-path PATH               Of the roles that may log in (default: /consul-ecs/)
    -partitions-enabled               Consul Enterprise: partitions and namespaces
    -partition NAME                   The partition (default: default)
    -log-level LEVEL                  TRACE, DEBUG, INFO (default), WARN or ERROR

Variables: CONSUL_HTTP_ADDR and the others that Consul knows; those of the AWS SDK; and
    CONSUL_ECS_INTERVAL               From one pass to the next (default: 10s)
    CONSUL_ECS_CHECK_INTERVAL         From one slower check to the next (default: 10m)
    CONSUL_ECS_LEADER_KEY             Key in Consul: of all controllers with it, one works
    CONSUL_ECS_METRICS_ADDRESS        Serves metrics for Prometheus there, such as 127.0.0.1:9102
    CONSUL_ECS_CLUSTER                The cluster, for a run outside ECS";

const CONTROLLER: &str = "Usage: consul-ecs controller

Sets up logins with AWS IAM, and removes the tokens and services of tasks that are gone, until
SIGTERM, as of consul-ecs 0.7 and later.

Variables:
    CONSUL_ECS_CONFIG_JSON            What it works for (required)
    CONSUL_HTTP_TOKEN                 ACL token that may do it
and those of the AWS SDK, and CONSUL_ECS_INTERVAL and the others of `acl-controller`.";

const DRY_RUN: &str = "Usage: consul-ecs dry-run acl-controller|controller [OPTIONS]

Prints what a pass of that controller, with its options, would change, and changes nothing.";

const CLEANUP: &str =
    "Usage: consul-ecs cleanup [-force] [-dry-run] acl-controller|controller [OPTIONS]

Removes all that the controller with these options has made in Consul, once.

    -force      Also while tasks run
    -dry-run    Only prints it";

/// The help of a controller's command.
pub(crate) fn of(command: &str) -> Option<&'static str> {
    match command {
        "acl-controller" => Some(ACL_CONTROLLER),
        "controller" => Some(CONTROLLER),
        "dry-run" => Some(DRY_RUN),
        "cleanup" => Some(CLEANUP),
        _ => None,
    }
}
