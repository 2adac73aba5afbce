//! A task on ECS from its first container to its last, with a real Envoy.

mod ads;
pub(crate) mod task;
mod timeline;
mod wire;
