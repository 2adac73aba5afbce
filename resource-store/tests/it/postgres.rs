//! The `PostgreSQL` backend and what may happen to `PostgreSQL`.

mod access;
mod breaking;
mod failover;
mod inspection;
mod kills;
mod restoring;
pub(crate) mod server;
mod several;
mod world;

pub(crate) use several::Several;
