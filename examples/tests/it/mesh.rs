//! A task on ECS from its first container to its last, with a real Envoy.

mod ads;
mod task;
mod timeline;
mod wire;
