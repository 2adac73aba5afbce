//! Configuration: every case of the specification, and bad input of every kind.

mod deserialize;
mod limits;
mod loading;
mod mistakes;
mod properties;
mod rendering;
mod secrets;
mod settings;
mod shapes;
mod storage;
pub(crate) mod support;
mod tasks;
mod triggers;
mod weak;
