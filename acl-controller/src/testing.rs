//! What tests of programs with a controller need.
//!
//! - [`MemoryTasks`]: tasks that a test sets.
//! - [`EnterpriseConsul`]: a Consul with partitions and namespaces, in this process.
//! - [`Moto`]: a server with AWS's APIs.
//! - [`secret_store`]: what every [`SecretStore`](crate::SecretStore) must do.

mod enterprise;
mod moto;
pub mod secret_store;
mod tasks;

pub use enterprise::EnterpriseConsul;
pub use moto::Moto;
pub use tasks::MemoryTasks;
