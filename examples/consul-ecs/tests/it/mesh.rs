//! A task on ECS from its first container to its last, with a real Envoy, and what may go wrong for it.

mod ads;
pub(crate) mod task;
mod timeline;
mod traffic;
mod trouble;
mod wire;
