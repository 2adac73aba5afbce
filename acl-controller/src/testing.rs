//! What tests of programs with a controller need.
//!
//! - [`MemoryTasks`]: tasks that a test sets.
//! - [`EnterpriseConsul`]: a Consul with partitions and namespaces, in this process.
//! - [`secret_store`]: what every [`SecretStore`](crate::SecretStore) must do.

mod enterprise;
pub mod secret_store;
mod tasks;

pub use enterprise::EnterpriseConsul;
pub use tasks::MemoryTasks;
