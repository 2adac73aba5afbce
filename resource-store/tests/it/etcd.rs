//! The etcd backend and what may happen to etcd.

pub(crate) mod server;
