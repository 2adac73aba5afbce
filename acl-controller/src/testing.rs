//! What tests of controllers need.

mod moto;

pub use moto::Moto;
