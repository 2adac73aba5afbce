//! The decision what a service needs, computed from lists alone, so that a pass over a cluster in
//! order costs only its listings.

use super::{
    TokenRights,
    listing::ServiceState,
    memory::{Memory, Verified},
};
use crate::{service_name::ServiceName, tenancy::CROSS_NAMESPACE_READ, token_ids::Stage};

/// Work that a service needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    Nothing,
    /// Compare secret, token and rules with what they have to be.
    Check,
    /// Create or correct: something is missing.
    Upsert,
    /// Delete: none of its tasks runs any more.
    Delete,
}

/// Decides what a service needs, from lists alone.
///
/// `current` is the version of its secret, as far as known without reading it; `check` also demands
/// what lists do not show.
pub(super) fn decide(
    state: &ServiceState,
    verified: Option<&Verified>,
    current: Option<&crate::secret_store::SecretVersion>,
    check: bool,
    (rights, service): (TokenRights, &ServiceName),
) -> Need {
    let is_wanted = !state.tasks.is_empty();
    let is_there = !state.tokens.is_empty() || !state.policies.is_empty();
    match (is_wanted, is_there) {
        (false, false) => return Need::Nothing,
        (false, true) => return Need::Delete,
        (true, _) => {}
    }
    let by_policy = rights == TokenRights::Policy;
    if by_policy && state.policies.is_empty() {
        return Need::Upsert;
    }
    let own = match (state.tokens.as_slice(), verified) {
        ([], _) => None,
        ([only], None) => Some(only),
        (tokens, Some(verified)) => {
            tokens.iter().find(|token| token.object.accessor_id == verified.accessor)
        }
        // Only the secret tells which of them is the service's.
        (_, None) => None,
    };
    let Some(own) = own else { return Need::Upsert };
    let links = &own.object.policies;
    let linked = if by_policy {
        // By id: a policy that was deleted and created again has the same name and another id.
        links.iter().any(|link| state.policies.iter().any(|policy| policy.object.id == link.id))
    } else {
        own.object.service_identities.iter().any(|it| it.service_name == service.name)
    };
    let with_partitions = service.tenancy.is_some();
    let shared = !with_partitions || links.iter().any(|link| link.name == CROSS_NAMESPACE_READ);
    if !linked || !shared {
        return Need::Upsert;
    }
    // A pending stage is checked again, until the secret notes that its token exists.
    let known = verified.is_some_and(|verified| {
        current == Some(&verified.version) && verified.stage != Stage::Pending
    });
    if check && !known { Need::Check } else { Need::Nothing }
}

impl Memory {
    /// Returns `true` if the rules of all policies of a service are known to be right.
    pub(super) fn knows_rules(&self, state: &ServiceState) -> bool {
        state.policies.iter().all(|policy| {
            let hash = &policy.object.hash;
            !hash.is_empty() && self.rules.get(&policy.object.id) == Some(hash)
        })
    }

    pub(super) fn verified(&self, service: &ServiceName) -> Option<&Verified> {
        self.verified.get(service)
    }
}
