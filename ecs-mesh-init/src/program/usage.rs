//! What `-help` prints, for the binary and for each command.

use super::Program;

const LIST: &str = "Usage: consul-ecs <command> [<args>]

Available commands are:
    app-entrypoint      Runs an application, and delays its end
    control-plane       Does the work of mesh-init and health-sync, as of consul-ecs 0.7
    envoy-entrypoint    Runs the proxy until the applications have stopped
    health-sync         Copies the health of containers to Consul
    mesh-init           Brings the task into the mesh
    net-dial            Tells whether a port can be connected to
    version             Prints the version";

const MESH_INIT: &str = "Usage: consul-ecs mesh-init [OPTIONS]

Registers the task's service with its sidecar, or its gateway, and leaves in the shared volume what
the other containers need. Exits with 0 when that is done; what Consul refuses is tried again every
second, without an end.

Options, as of consul-ecs 0.1 and 0.2, instead of CONSUL_ECS_CONFIG_JSON:
    -envoy-bootstrap-dir PATH        Shared volume (required, or the next)
    -envoy-bootstrap-file PATH       As of 0.1: the bootstrap alone, without a copy of the program
    -port PORT                       Of the service
    -service-name NAME               Default: the task's family
    -tags A,B                        Tags of the service
    -meta JSON                       Its metadata, an object of texts
    -upstreams NAME:PORT,...         Services that it reaches on local ports
    -checks JSON                     A list of checks, as Consul's agent takes them
    -health-sync-containers A,B      Containers whose health health-sync copies

Variables:
    CONSUL_ECS_CONFIG_JSON           What the task is (required without options)
    ECS_CONTAINER_METADATA_URI_V4    Where ECS tells of the task (set by ECS)

With `consulServers` in the configuration:
    CONSUL_HTTP_TOKEN                ACL token, instead of a login
    CONSUL_HTTPS_CACERT_PEM          Authority of the servers' HTTP, as text
    CONSUL_GRPC_CACERT_PEM           Authority of the servers' gRPC, as text
    AWS_REGION                       With it, services state where they run
Without it, for the agent beside the task:
    CONSUL_HTTP_ADDR, CONSUL_HTTP_TOKEN, CONSUL_CACERT and the others that Consul knows
    CONSUL_GRPC_ADDR                 Where Envoy reaches the agent (default: localhost:8502)
    CONSUL_GRPC_CACERT, CONSUL_GRPC_CAPATH    Authority of that address";

const HEALTH_SYNC: &str = "Usage: consul-ecs health-sync [OPTIONS]

Copies the ECS health of containers to Consul, every second, until SIGTERM. Then makes all checks
critical; with `consulServers` in the configuration it also waits until consul-dataplane has stopped,
and takes the services out of the catalog. Gives the token of a login back.

Options, as of consul-ecs 0.2, instead of CONSUL_ECS_CONFIG_JSON:
    -health-sync-containers A,B      Containers whose health is copied (required)
    -service-name NAME               As of mesh-init

Variables: as of mesh-init.";

const CONTROL_PLANE: &str = "Usage: consul-ecs control-plane

As of consul-ecs 0.7: does what mesh-init does, then what health-sync does, with one login whose token
consul-dataplane uses, too. http://127.0.0.1:10000/consul-ecs/health answers 500 until the other
containers may start, then 200. Traffic is redirected only if `transparentProxy` asks for it.

Variables: as of mesh-init, with `consulServers` in the configuration.";

const ENVOY_ENTRYPOINT: &str =
    "Usage: consul-ecs envoy-entrypoint [-log-level LEVEL] [--] COMMAND [ARGS...]

Runs COMMAND. SIGTERM is kept from it until all applications of the task have stopped, which the
task's metadata tells; every other signal is passed on. Exits with the command's code.

    -log-level LEVEL    TRACE, DEBUG, INFO (default), WARN or ERROR";

const APP_ENTRYPOINT: &str = "Usage: consul-ecs app-entrypoint [-shutdown-delay TIME] [-log-level LEVEL] [--] COMMAND [ARGS...]

Runs COMMAND. The first SIGTERM is passed on after the delay, and without a delay not at all; every
other signal is passed on. Exits with the command's code.

    -shutdown-delay TIME    Such as 10s or 1m30s (default: 0s)
    -log-level LEVEL        TRACE, DEBUG, INFO (default), WARN or ERROR";

const NET_DIAL: &str = "Usage: consul-ecs net-dial HOST:PORT

Exits with 0 when the port can be connected to, with 2 when not.";

/// The help of the binary.
pub(crate) fn all(program: &Program) -> String {
    let more: String = program.more.iter().map(|more| more.list()).collect();
    format!("{LIST}{more}\n\n`consul-ecs <command> -help` tells more of each.")
}

/// Returns `true` if an argument asks for help.
pub(crate) fn is_asked_for(argument: &str) -> bool {
    ["-h", "-help", "--help"].contains(&argument)
}

/// The help of a command; `None` for one that has none.
pub(crate) fn of(program: &Program, command: &str) -> Option<&'static str> {
    match command {
        "mesh-init" => Some(MESH_INIT),
        "health-sync" => Some(HEALTH_SYNC),
        "control-plane" => Some(CONTROL_PLANE),
        "envoy-entrypoint" => Some(ENVOY_ENTRYPOINT),
        "app-entrypoint" => Some(APP_ENTRYPOINT),
        "net-dial" => Some(NET_DIAL),
        other => program.owner(other)?.help(other),
    }
}
