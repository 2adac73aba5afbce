//! ECS and Secrets Manager: on moto, and on stubs for what moto cannot do.

mod burst;
mod on_moto;
mod scale;
mod secrets;
mod secrets_stub;
mod stub;
mod tasks;
