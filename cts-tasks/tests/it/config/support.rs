//! A driver kind that takes every body, and short ways to load texts.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cts_tasks::{
    Config, ConfigValue, Diagnostic, Driver, DriverFactory, DriverKind, DriverSettings, Error,
    Result, Source, Task,
    config::{BlockKind, Loaded, Loader, Registry},
};

/// Takes any body, and remembers what it was given.
#[derive(Debug)]
pub(crate) struct AnyDriver {
    label: &'static str,
    task_blocks: &'static [&'static str],
    required: &'static [&'static str],
    seen: Mutex<Seen>,
}

/// What a kind was given to check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) body: Option<ConfigValue>,
    pub(crate) task_blocks: Vec<(String, String)>,
}

impl AnyDriver {
    pub(crate) fn new(label: &'static str, task_blocks: &'static [&'static str]) -> Arc<Self> {
        Self::requiring(label, task_blocks, &["module"])
    }

    pub(crate) fn requiring(
        label: &'static str,
        task_blocks: &'static [&'static str],
        required: &'static [&'static str],
    ) -> Arc<Self> {
        Arc::new(Self { label, task_blocks, required, seen: Mutex::default() })
    }

    pub(crate) fn seen(&self) -> Seen {
        self.seen.lock().map(|seen| seen.clone()).unwrap_or_default()
    }
}

impl DriverKind for AnyDriver {
    fn label(&self) -> &'static str {
        self.label
    }

    fn task_blocks(&self) -> &'static [&'static str] {
        self.task_blocks
    }

    fn refused_env(&self, name: &str, _body: Option<&ConfigValue>) -> Option<String> {
        name.starts_with("OWN_").then(|| "the driver sets it".to_owned())
    }

    fn required_in_tasks(&self) -> &'static [&'static str] {
        self.required
    }

    fn secret_fields(&self) -> &'static [&'static str] {
        &["hidden", "backend.*.sas"]
    }

    fn configure(
        &self,
        settings: DriverSettings<'_>,
        warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        if let Ok(mut seen) = self.seen.lock() {
            seen.body = settings.body.cloned();
            seen.task_blocks = settings
                .task_blocks
                .iter()
                .map(|block| (block.task.to_string(), block.name.clone()))
                .collect();
        }
        let has = |key: &str| {
            settings.body.is_some_and(|body| format!("{:?}", body.to_literal()).contains(key))
        };
        if has("\"refused\"") {
            let place = settings.body.and_then(|body| body.place.clone());
            return Err(vec![Diagnostic::error("refused by the driver").at(place)]);
        }
        if has("\"odd\"") {
            warnings.push(Diagnostic::warning("odd, says the driver"));
        }
        Ok(Arc::new(NoDriver))
    }
}

#[derive(Debug)]
struct NoDriver;

#[async_trait]
impl DriverFactory for NoDriver {
    async fn start(&self) -> Result<()> {
        Ok(())
    }

    fn driver(&self, task: &Task) -> Result<Arc<dyn Driver>> {
        Err(Error::NoSuchTask { task: task.name.to_string() })
    }
}

/// Takes a block at the top that has a cluster.
#[derive(Debug)]
pub(crate) struct HighAvailability;

impl BlockKind for HighAvailability {
    fn name(&self) -> &'static str {
        "high_availability"
    }

    fn check(&self, body: &ConfigValue) -> Vec<Diagnostic> {
        if format!("{:?}", body.to_literal()).contains("cluster") {
            Vec::new()
        } else {
            vec![Diagnostic::error("a cluster is required").at(body.place.clone())]
        }
    }
}

/// A loader that sees nothing of this machine.
pub(crate) fn loader() -> Loader {
    loader_of(Registry::new().driver(AnyDriver::new("terraform", &[])))
}

pub(crate) fn loader_of(registry: Registry) -> Loader {
    Loader::new(registry)
        .environment(|_| None)
        .hostname(|| Ok("host".to_owned()))
        .base_dir(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.to_owned() }
}

/// Loads one text as `test.hcl`.
pub(crate) fn try_load(text: &str) -> Result<Loaded, Vec<Diagnostic>> {
    loader().load_sources(vec![source("test.hcl", text)])
}

/// Loads one text that is right.
#[track_caller]
pub(crate) fn load(text: &str) -> Config {
    match try_load(text) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{}", show(&errors)),
    }
}

/// Loads one text that is wrong.
#[track_caller]
pub(crate) fn errors(text: &str) -> Vec<Diagnostic> {
    match try_load(text) {
        Ok(loaded) => panic!("no error in {:?}", loaded.config),
        Err(errors) => errors,
    }
}

/// The only error of a text that is wrong, as `file:line:column: message`.
#[track_caller]
pub(crate) fn error(text: &str) -> String {
    let errors = errors(text);
    let mut errors: Vec<_> = errors
        .iter()
        .filter(|diagnostic| diagnostic.severity == cts_tasks::Severity::Error)
        .collect();
    assert_eq!(
        errors.len(),
        1,
        "{}",
        show(&errors.iter().map(|e| (*e).clone()).collect::<Vec<_>>())
    );
    errors.pop().map(short).unwrap_or_default()
}

/// The diagnostic without its help.
pub(crate) fn short(diagnostic: &Diagnostic) -> String {
    match &diagnostic.place {
        Some(place) => format!("{place}: {}", diagnostic.message),
        None => diagnostic.message.clone(),
    }
}

pub(crate) fn show(diagnostics: &[Diagnostic]) -> String {
    diagnostics.iter().map(Diagnostic::render).collect::<Vec<_>>().join("\n")
}

/// The only task of a text, around the lines of `body`.
#[track_caller]
pub(crate) fn task(body: &str) -> Task {
    let config = load(&task_text(body));
    config.tasks.into_iter().next().unwrap_or_else(|| panic!("no task"))
}

/// A task that lacks nothing but what `body` says.
pub(crate) fn task_text(body: &str) -> String {
    format!("task {{\nname = \"t\"\nmodule = \"./m\"\n{body}\n}}\n")
}
