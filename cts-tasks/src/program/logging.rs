//! Where the log goes, and how its lines look.

use crate::config::{LogLevel, SyslogConfig};
use tracing_subscriber::{
    Layer, Registry,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::program::{
    log_format::{LogFormat, SpanFields},
    syslog::Syslog,
};

/// The level, format and destinations of the log.
pub(crate) struct LogOptions<'a> {
    pub(crate) level: LogLevel,
    /// The crates whose lines of that level are written.
    pub(crate) targets: &'a [String],
    /// `true` for one JSON object on each line, rather than upstream's lines.
    pub(crate) json: bool,
    /// Lines go there too, always in upstream's form.
    pub(crate) syslog: Option<&'a SyslogConfig>,
}

/// Starts the log of this process.
///
/// # Errors
///
/// When there is no syslog where one is configured.
pub(crate) fn start(options: &LogOptions<'_>) -> Result<(), String> {
    let mut layers: Vec<Box<dyn Layer<Registry> + Send + Sync>> = Vec::new();
    let lines = fmt::layer().with_writer(std::io::stderr);
    let targets = targets(options.level, options.targets);
    layers.push(SpanFields.with_filter(targets.clone()).boxed());
    let format = if options.json { LogFormat::Json } else { LogFormat::Hclog };
    layers.push(lines.event_format(format).with_filter(targets.clone()).boxed());
    if let Some(config) = options.syslog {
        let syslog = Syslog::open(config)?;
        let lines =
            fmt::layer().with_ansi(false).event_format(LogFormat::Hclog).with_writer(syslog);
        layers.push(lines.with_filter(targets).boxed());
    }
    tracing_subscriber::registry().with(layers).init();
    Ok(())
}

/// Libraries below have their say only when something is wrong.
fn targets(level: LogLevel, ours: &[String]) -> Targets {
    let level = match level {
        LogLevel::Trace => LevelFilter::TRACE,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    let ours = ours.iter().map(|target| (target.as_str(), level));
    Targets::new().with_default(LevelFilter::WARN).with_targets(ours)
}
