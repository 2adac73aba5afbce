use std::fmt;

use chrono::Local;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

/// Writes log lines as upstream does:
/// `2022-08-23T09:25:09.501-0700 [INFO]  tasksmanager: executing task: task_name=foo`.
///
/// Values of several lines follow below, each line after a `|`.
pub(crate) struct Upstream;

impl<S, N> FormatEvent<S, N> for Upstream
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        let metadata = event.metadata();
        let time = Local::now().format("%Y-%m-%dT%H:%M:%S%.3f%z");
        let (level, name) = (level(*metadata.level()), name(metadata.target()));
        write!(writer, "{time} {level} {name}: {}", line.message)?;
        if !(line.fields.is_empty() && line.blocks.is_empty()) {
            writer.write_char(':')?;
        }
        for (key, value) in &line.fields {
            let quoted = value.is_empty()
                || value.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
            if quoted {
                write!(writer, " {key}={value:?}")?;
            } else {
                write!(writer, " {key}={value}")?;
            }
        }
        for (key, block) in &line.blocks {
            write!(writer, "\n  {key}=")?;
            for line in block.lines() {
                write!(writer, "\n  | {line}")?;
            }
        }
        writeln!(writer)
    }
}

fn level(level: Level) -> &'static str {
    match level {
        Level::TRACE => "[TRACE]",
        Level::DEBUG => "[DEBUG]",
        Level::INFO => "[INFO] ",
        Level::WARN => "[WARN] ",
        Level::ERROR => "[ERROR]",
    }
}

/// Upstream's name for the part of the program that logs.
fn name(target: &str) -> &str {
    const NAMES: [(&str, &str); 9] = [
        ("cts_tasks::engine", "tasksmanager"),
        ("cts_tasks::api", "api"),
        ("cts_tasks::config", "config"),
        ("cts_tasks::registration", "registration"),
        ("cts_tasks", "ctrl"),
        ("cts_driver_terraform::cli", "client.terraformcli"),
        ("cts_driver_terraform", "driver.terraform"),
        ("consul_watch", "hcat"),
        ("consul_terraform_sync", "cli"),
    ];
    NAMES.iter().find(|(prefix, _)| target.starts_with(prefix)).map_or(target, |(_, name)| name)
}

/// The parts of one line.
#[derive(Default)]
struct Line {
    message: String,
    fields: Vec<(String, String)>,
    blocks: Vec<(String, String)>,
}

impl Line {
    fn add(&mut self, field: &Field, value: String) {
        if field.name() == "message" {
            self.message = value;
            return;
        }
        let part = if value.contains('\n') { &mut self.blocks } else { &mut self.fields };
        part.push((field.name().replace('.', "_"), value));
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        self.add(field, text);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What is logged, without the time.
    fn logged(log: impl FnOnce()) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .event_format(Upstream)
            .with_writer(move || writer.clone())
            .with_max_level(Level::TRACE)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        let (time, rest) = text.split_once(' ').unwrap();
        assert!(
            chrono::DateTime::parse_from_str(time, "%Y-%m-%dT%H:%M:%S%.3f%z").is_ok(),
            "{time}"
        );
        rest.to_owned()
    }

    #[test]
    fn a_line_has_level_name_message_and_fields() {
        let line = logged(|| {
            let name = "foo";
            tracing::info!(target: "cts_tasks::engine::worker", { task.name = name }, "executing task");
        });
        assert_eq!(line, "[INFO]  tasksmanager: executing task: task_name=foo\n");
    }

    #[test]
    fn values_are_quoted_when_they_need_it() {
        let line =
            logged(|| tracing::warn!(target: "cts_tasks::api", { a = "b c", n = 3 }, "slow"));
        assert_eq!(line, "[WARN]  api: slow: a=\"b c\" n=3\n");
    }

    #[test]
    fn several_lines_follow_below() {
        let line = logged(|| tracing::error!(target: "cts_tasks", { plan = "one\ntwo" }, "plan"));
        assert_eq!(line, "[ERROR] ctrl: plan:\n  plan=\n  | one\n  | two\n");
    }

    #[test]
    fn an_error_brings_its_causes() {
        let error = cts_tasks::Error::Other {
            operation: "storing",
            retryable: false,
            source: "the disk is full".into(),
        };
        let line = logged(|| {
            tracing::error!(target: "cts_tasks", { error = &error as &dyn std::error::Error }, "sorry");
        });
        assert_eq!(line, "[ERROR] ctrl: sorry: error=\"storing failed: the disk is full\"\n");
    }
}
