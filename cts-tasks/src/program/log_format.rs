//! The two formats of log lines, upstream's text and JSON, and the spans' fields that
//! both need.

use std::fmt;

use chrono::Local;
use serde_json::{Map, Value};
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
    span,
};
use tracing_subscriber::{
    Layer,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::Context,
    registry::{LookupSpan, Scope},
};

/// Keeps the fields of spans, for the lines that are logged within them. Both formats need
/// it beside them.
pub(crate) struct SpanFields;

impl<S> Layer<S> for SpanFields
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, all: Context<'_, S>) {
        if let Some(span) = all.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().replace(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, all: Context<'_, S>) {
        if let Some(span) = all.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }
}

/// Returns the fields of the spans around an event: which watch, task or request it is
/// about. The innermost span has the last word.
fn surroundings<S, N>(context: &FmtContext<'_, S, N>) -> Map<String, Value>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    let mut found = Map::new();
    for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
        if let Some(fields) = span.extensions().get::<Fields>() {
            found.extend(fields.0.clone());
        }
    }
    found
}

/// Form of log lines.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogFormat {
    /// As upstream writes them:
    /// `2022-08-23T09:25:09.501-0700 [INFO]  tasksmanager: executing task: task_name=foo`.
    ///
    /// Values of several lines follow below, each line after a `|`.
    Hclog,
    /// A JSON object a line, with the keys that upstream's logging library uses:
    /// `@timestamp`, `@level`, `@module`, `@message`, and the fields.
    Json,
}

impl<S, N> FormatEvent<S, N> for LogFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let around = surroundings(context);
        match self {
            Self::Hclog => write_hclog(around, writer, event),
            Self::Json => write_json(around, writer, event),
        }
    }
}

fn write_hclog(
    around: Map<String, Value>,
    mut writer: Writer<'_>,
    event: &Event<'_>,
) -> fmt::Result {
    let mut line = Line::default();
    event.record(&mut line);
    line.surround(around);
    let metadata = event.metadata();
    let time = Local::now().format("%Y-%m-%dT%H:%M:%S%.3f%z");
    let (level, name) = (level(*metadata.level()), name(metadata.target()));
    write!(writer, "{time} {level} {name}:")?;
    if !line.message.is_empty() {
        write!(writer, " {}", line.message)?;
        if !(line.fields.is_empty() && line.blocks.is_empty()) {
            writer.write_char(':')?;
        }
    }
    for (key, value) in &line.fields {
        let quoted =
            value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '"' || c == '=');
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

fn write_json(
    around: Map<String, Value>,
    mut writer: Writer<'_>,
    event: &Event<'_>,
) -> fmt::Result {
    // The event's own fields win over those of the spans around it.
    let mut fields = Fields(around);
    event.record(&mut fields);
    let metadata = event.metadata();
    let time = Local::now().format("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string();
    let mut object = fields.0;
    let message = object.remove("message").unwrap_or_default();
    object.insert("@message".to_owned(), message);
    object.insert("@timestamp".to_owned(), time.into());
    object.insert("@level".to_owned(), metadata.level().to_string().to_lowercase().into());
    object.insert("@module".to_owned(), name(metadata.target()).into());
    writeln!(writer, "{}", Value::Object(object))
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
    const NAMES: [(&str, &str); 11] = [
        ("cts_tasks::engine", "tasksmanager"),
        ("cts_tasks::api", "api"),
        ("cts_tasks::config", "config"),
        ("cts_tasks::registration", "registration"),
        ("cts_tasks::program", "cli"),
        ("cts_tasks", "ctrl"),
        ("cts_driver_terraform::cli", "client.terraformcli"),
        ("cts_driver_terraform", "driver.terraform"),
        ("cts_driver_tfc", "driver.tfc"),
        ("cts_ha", "ha"),
        ("consul_watch", "hcat"),
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
        self.put(field.name().replace('.', "_"), value);
    }

    fn put(&mut self, key: String, value: String) {
        let part = if value.contains('\n') { &mut self.blocks } else { &mut self.fields };
        part.push((key, value));
    }

    /// Appends what the event does not say itself.
    fn surround(&mut self, surroundings: Map<String, Value>) {
        for (key, value) in surroundings {
            let said = self.fields.iter().chain(&self.blocks).any(|(said, _)| *said == key);
            if !said {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                self.put(key, text);
            }
        }
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
        self.add(field, consul_watch::error_chain(value));
    }
}

/// The fields of one line, with their types.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().replace('.', "_"), value.into());
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, consul_watch::error_chain(value));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::{fmt::format::DefaultFields, layer::SubscriberExt as _};

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

    fn written<F>(format: F, log: impl FnOnce()) -> String
    where
        F: FormatEvent<tracing_subscriber::Registry, DefaultFields> + Send + Sync + 'static,
    {
        let sink = Sink::default();
        let writer = sink.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(format)
            .with_writer(move || writer.clone());
        let registry = tracing_subscriber::registry().with(layer).with(SpanFields);
        tracing::subscriber::with_default(registry, log);
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    /// Returns the logged text, without the time.
    fn logged(log: impl FnOnce()) -> String {
        let text = written(LogFormat::Hclog, log);
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
        let error = crate::Error::Other {
            operation: "storing",
            retryable: false,
            source: "the disk is full".into(),
        };
        let line = logged(|| {
            tracing::error!(target: "cts_tasks", { error = &error as &dyn std::error::Error }, "sorry");
        });
        assert_eq!(line, "[ERROR] ctrl: sorry: error=\"storing failed: the disk is full\"\n");
    }

    #[test]
    fn a_line_says_what_is_around_it_and_its_own_word_wins() {
        let log = || {
            let outer = tracing::info_span!("task", task.name = "web", attempt = 1);
            let _outer = outer.enter();
            let inner = tracing::info_span!("read", attempt = 2, late = tracing::field::Empty);
            let _inner = inner.enter();
            inner.record("late", "a b");
            tracing::info!(target: "cts_tasks", { task.name = "own" }, "hello");
        };
        assert_eq!(logged(log), "[INFO]  ctrl: hello: task_name=own attempt=2 late=\"a b\"\n");
        let line: Value = serde_json::from_str(&written(LogFormat::Json, log)).unwrap();
        assert_eq!((&line["task_name"], &line["attempt"]), (&"own".into(), &2.into()));
    }

    /// Follows a service and a key that nobody answers for, until both watches say so.
    fn follow_nobody() {
        use consul_watch::{
            Client, ClientConfig, Watcher,
            query::{HealthService, KvGet},
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut config = ClientConfig::default();
            config.address = "127.0.0.1:1".to_owned();
            let watcher = Watcher::new(Client::new(config).unwrap());
            let mut service = watcher.watch(HealthService::new("web").datacenter("dc2"));
            let mut key = watcher.watch(KvGet::new("app/color"));
            let error = service.changed().await.unwrap_err().to_string();
            assert!(error.contains("health.service") && error.contains("web"), "{error}");
            assert!(key.changed().await.unwrap_err().to_string().contains("app/color"));
            watcher.shutdown().await;
        });
    }

    #[test]
    fn each_line_about_a_watch_says_which_one() {
        let text = written(LogFormat::Hclog, follow_nobody);
        let lines: Vec<_> = text.lines().filter(|line| line.contains(" hcat: ")).collect();
        assert!(lines.iter().any(|line| line.contains("[WARN]")), "{text}");
        for line in lines {
            let service = line.contains("service_name=web")
                && line.contains("consul_datacenter=dc2")
                && line.contains("consul_operation=health.service");
            let path =
                line.contains("kv_path=app/color") && line.contains("consul_operation=kv.get");
            assert!(line.contains("watch_key=") && (service || path), "{line}");
        }
        let text = written(LogFormat::Json, follow_nobody);
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let lines: Vec<_> = lines.filter(|line| line["@module"] == "hcat").collect();
        assert!(lines.iter().any(|line| line["@level"] == "warn"), "{text}");
        for line in lines {
            let service = line["service_name"] == "web"
                && line["consul_datacenter"] == "dc2"
                && line["consul_operation"] == "health.service";
            let path = line["kv_path"] == "app/color" && line["consul_operation"] == "kv.get";
            assert!(line["watch_key"].is_string() && (service || path), "{line}");
        }
    }

    #[test]
    fn json_has_one_object_on_each_line_and_keeps_types() {
        let text = written(LogFormat::Json, || {
            tracing::warn!(
                target: "cts_tasks::api",
                { task.name = "web", attempt = 3, retried = true, plan = "a\nb\"c" },
                "slow"
            );
            tracing::info!(target: "cts_tasks", "next");
        });
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [first, second] = lines.as_slice() else { panic!("{text}") };
        let time = first["@timestamp"].as_str().unwrap();
        assert!(chrono::DateTime::parse_from_rfc3339(time).is_ok(), "{time}");
        let mut rest = first.clone();
        rest.as_object_mut().unwrap().remove("@timestamp");
        let expected = serde_json::json!({
            "@level": "warn", "@module": "api", "@message": "slow",
            "task_name": "web", "attempt": 3, "retried": true, "plan": "a\nb\"c",
        });
        assert_eq!(rest, expected);
        assert_eq!(second["@message"], "next");
    }
}
