//! The log of the process, on standard error, where ECS collects it.

use crate::config::LogLevel;
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Sends the log to standard error, where ECS collects it.
pub fn start(level: LogLevel) {
    let level = match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    // Libraries below have their say only when something is wrong: that of AWS traces requests,
    // and they hold secrets.
    let ours = ["acl_controller", "consul_ecs", "consul_watch", "cts_ha", "ecs_mesh_init", "ha"];
    let targets = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_targets(ours.map(|target| (target, level)));
    let lines = fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
}
