//! Upper bounds of what clients may take of this process: connections, requests
//! in flight, bytes and time.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};

/// Longest time in which a request's head, or a TLS handshake, has to arrive.
///
/// Deviation: upstream gives a whole request 15 s. A client that needs more than
/// this for some hundred bytes only holds a descriptor that the work may need.
pub(super) const HEAD: Duration = Duration::from_secs(5);

/// Longest time without a request after which a connection is closed.
///
/// Source: Consul-Terraform-Sync 0.9, idle timeout of the API.
pub(super) const IDLE: Duration = Duration::from_mins(1);

/// Longest time in which a request's body has to arrive.
///
/// Source: Consul-Terraform-Sync 0.9, read timeout of the API.
pub(super) const BODY: Duration = Duration::from_secs(15);

/// Largest head of a request, in bytes.
pub(super) const LARGEST_HEAD: usize = 64 * 1024;

/// Largest body of a request, in bytes.
pub(super) const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// Requests that are answered at once, without those for the health.
pub(super) const REQUESTS: usize = 256;

/// Of [`REQUESTS`], those that may change something, which also bounds what their
/// bodies take of memory.
pub(super) const WRITES: usize = 64;

/// Clients that follow events at once.
pub(super) const STREAMS: usize = 64;

/// Part of the descriptor limit that connections may use: one in four. The rest
/// belongs to the work, whose runs need descriptors for files, pipes and Consul.
const SHARE: u64 = 4;

/// Connections that are open at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionLimits {
    /// In all.
    pub(super) all: usize,
    /// Of one client, told by its address.
    pub(super) per_client: usize,
}

impl ConnectionLimits {
    /// Reads the process's soft limit of descriptors.
    pub(super) fn of_process() -> Self {
        // A system that does not tell has at least what POSIX calls usual.
        let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _hard)| soft);
        Self::within(soft)
    }

    fn within(descriptors: u64) -> Self {
        let all = usize::try_from(descriptors / SHARE).unwrap_or(usize::MAX).clamp(16, 1024);
        Self { all, per_client: all / 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_of_four_descriptors_are_left_to_the_work() {
        for (descriptors, all) in [(0, 16), (256, 64), (1024, 256), (4096, 1024), (1 << 30, 1024)] {
            let limits = ConnectionLimits::within(descriptors);
            assert_eq!((limits.all, limits.per_client), (all, all / 2), "{descriptors}");
        }
    }
}
