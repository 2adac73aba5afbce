//! Test doubles and suites for programs with a controller.
//!
//! - [`MemoryTasks`]: tasks that a test sets.
//! - [`EnterpriseConsul`]: a Consul with partitions and namespaces, in this process.
//! - [`Moto`]: a server with AWS's APIs.
//! - [`secret_store`]: the contract of every [`SecretStore`](crate::SecretStore).

mod enterprise;
mod moto;
pub mod secret_store;
mod tasks;

pub use enterprise::EnterpriseConsul;
pub use moto::Moto;
pub use tasks::MemoryTasks;
