//! The log of a server.

use crate::service::AUDIT;
use tracing_subscriber::{
    Layer as _,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

/// Sends the log to standard error. Libraries below have their say only when
/// something is wrong; that of Raft, which repeats itself while a node is away,
/// only where details are asked for. Calls are logged only if they are to be.
pub(crate) fn start(program: &str, level: LevelFilter, audit: bool) {
    let program = program.replace('-', "_");
    let ours = [program.as_str(), "resource_store"];
    let raft = if level >= LevelFilter::DEBUG { level } else { LevelFilter::OFF };
    let targets = Targets::new()
        .with_default(level.min(LevelFilter::WARN))
        .with_target("openraft", raft)
        .with_targets(ours.map(|target| (target, level)))
        .with_target(AUDIT, if audit { LevelFilter::INFO } else { LevelFilter::OFF });
    let lines = fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
}
