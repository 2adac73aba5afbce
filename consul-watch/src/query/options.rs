//! The options that every read takes: their setters, and when broad queries cover them.

use crate::QueryOptions;

/// Returns `true` if a read stays within what broad queries of the client see.
pub(super) fn is_local(options: &QueryOptions) -> bool {
    options.datacenter.is_none()
        && options.namespace.is_none()
        && options.partition.is_none()
        && options.peer.is_none()
        && options.sameness_group.is_none()
        && !options.merge_central_config
}

/// Setters for what every read takes.
macro_rules! common_setters {
    () => {
        /// Asks another datacenter.
        pub fn datacenter(mut self, name: impl Into<String>) -> Self {
            self.options.datacenter = Some(name.into());
            self
        }

        /// Asks in an Enterprise namespace.
        pub fn namespace(mut self, name: impl Into<String>) -> Self {
            self.options.namespace = Some(name.into());
            self
        }

        /// Asks in an Enterprise partition.
        pub fn partition(mut self, name: impl Into<String>) -> Self {
            self.options.partition = Some(name.into());
            self
        }

        /// Asks for what was imported from a cluster peer (Consul 1.13).
        pub fn peer(mut self, name: impl Into<String>) -> Self {
            self.options.peer = Some(name.into());
            self
        }

        /// Sets everything that reads take; what earlier setters set is lost.
        pub fn options(mut self, options: $crate::QueryOptions) -> Self {
            self.options = options;
            self
        }
    };
}
pub(super) use common_setters;
