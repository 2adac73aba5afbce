//! The etcd backend and what may happen to etcd.

mod access;
mod breaking;
mod inspection;
mod operation;
mod restoring;
pub(crate) mod server;
mod world;
