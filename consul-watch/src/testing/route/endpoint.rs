//! What every group of endpoints is made of: the request with the caller, and a path of the table.

use tokio::time::Instant;

use super::Call;
use crate::testing::{acl::Authorizer, answer::Reply};

/// A request with the state that it is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) call: &'a Call,
    pub(super) who: &'a Authorizer,
    pub(super) now: Instant,
}

/// A path of the API, without `/v1/`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// With a slash at its end it stands for all that follow it.
    pub(super) pattern: &'static str,
    /// Methods, as the header `Allow` lists them.
    pub(super) methods: &'static str,
    /// Servers of Consul 1.8 do not have it.
    pub(super) newer: bool,
}

impl Path {
    pub(super) const fn new(pattern: &'static str, methods: &'static str) -> Self {
        Self { pattern, methods, newer: false }
    }

    pub(super) const fn newer(self) -> Self {
        Self { newer: true, ..self }
    }

    pub(super) fn covers(&self, path: &str) -> bool {
        if self.pattern.ends_with('/') {
            path.starts_with(self.pattern)
        } else {
            path == self.pattern
        }
    }
}

/// Tells that the double has no answer: not a refusal of Consul's.
pub(in crate::testing) fn unserved(call: &Call) -> Reply {
    let text = format!(
        "consul-watch's test double does not serve {} /{}; use a real Consul for it",
        call.method, call.path
    );
    Reply::text(501, text)
}
