//! Paths that Consul keeps for its own UI and other servers. The double knows
//! that they are there, and serves none.

use super::{Ask, Path};
use crate::testing::{answer::Reply, state::State};

pub(super) const PATHS: &[Path] = &[
    Path::new("internal/federation-states", "GET"),
    Path::new("internal/federation-states/mesh-gateways", "GET"),
    Path::new("internal/federation-state/", "GET"),
    Path::new("internal/ui/metrics-proxy/", "GET").newer(),
    Path::new("internal/ui/nodes", "GET"),
    Path::new("internal/ui/node/", "GET"),
    Path::new("internal/ui/services", "GET"),
    Path::new("internal/ui/exported-services", "GET").newer(),
    Path::new("internal/ui/catalog-overview", "GET").newer(),
    Path::new("internal/ui/gateway-services-nodes/", "GET"),
    Path::new("internal/ui/gateway-intentions/", "GET").newer(),
    Path::new("internal/ui/service-topology/", "GET").newer(),
    Path::new("internal/acl/authorize", "POST"),
    Path::new("internal/service-virtual-ip", "PUT").newer(),
];

pub(super) fn answer(_state: &mut State, _ask: Ask<'_>, _rest: &str) -> Option<Reply> {
    None
}
