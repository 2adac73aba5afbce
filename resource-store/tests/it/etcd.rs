//! The etcd backend and what may happen to etcd.

mod access;
mod breaking;
mod restoring;
pub(crate) mod server;
mod world;
