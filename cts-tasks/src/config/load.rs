//! Reads, merges, completes and checks a configuration.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Config,
    decode::{Decoder, Field as _, Findings, decode_body},
    dynamic,
    environment::Environment,
    files, finalize, hcl, json,
    raw::RawConfig,
    registry::Registry,
    rules::TaskRules,
    unknown,
    value::{ConfigValue, ValueKind},
};
use crate::{Diagnostic, DriverFactory, Severity, Source, Task};

/// Reads configuration: files and directories, merged in order, completed
/// from the environment, and checked.
///
/// ```
/// use cts_tasks::config::{Loader, Registry};
///
/// let loader = Loader::new(Registry::new()).environment(|_| None);
/// let errors = loader.load(&["no-such-file.hcl".into()]).unwrap_err();
/// assert!(errors[0].message.contains("no-such-file.hcl"));
/// ```
#[derive(Debug, Default)]
pub struct Loader {
    registry: Registry,
    environment: Environment,
}

/// A configuration that can be run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// The factory that the driver's kind made of its block.
    pub driver: Arc<dyn DriverFactory>,
    /// Rules that a task added later must fulfil.
    pub rules: TaskRules,
}

impl Loader {
    /// A loader for blocks of these kinds, with the environment, the hostname
    /// and the working directory of the process.
    pub fn new(registry: Registry) -> Self {
        Self { registry, environment: Environment::default() }
    }

    /// Takes environment variables from `variables` instead of the process.
    #[must_use]
    pub fn environment(
        mut self,
        variables: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.environment.variables = Box::new(variables);
        self
    }

    /// Takes the hostname, for the default of `id`, from `hostname` instead of the system.
    #[must_use]
    pub fn hostname(
        mut self,
        hostname: impl Fn() -> io::Result<String> + Send + Sync + 'static,
    ) -> Self {
        self.environment.hostname = Box::new(hostname);
        self
    }

    /// Takes `directory` instead of the process's working directory as the
    /// start of relative paths within the configuration.
    #[must_use]
    pub fn base_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.environment.set_base_dir(directory.into());
        self
    }

    /// Reads files and directories, in this order; later ones win.
    ///
    /// Of a directory the files ending in `.hcl` and `.json` are read, sorted
    /// by name; a file with another extension and an empty one are left out.
    ///
    /// # Errors
    ///
    /// Every mistake found in any file, sorted by file and place; then the
    /// warnings.
    pub fn load(&self, paths: &[PathBuf]) -> Result<Loaded, Vec<Diagnostic>> {
        let mut findings = Findings::default();
        let sources = files::read_all(paths, &mut findings.errors);
        for path in paths.iter().filter(|path| path.is_file() && !files::is_supported(path)) {
            findings.warn(
                format!("{} is left out", path.display()),
                None,
                "only files that end in .hcl or .json are read; upper case counts as another ending",
            );
        }
        self.build(&sources, findings)
    }

    /// As [`Loader::load`], from texts that are there already. The extension
    /// of a source's path says whether it is HCL or JSON.
    ///
    /// # Errors
    ///
    /// As [`Loader::load`].
    pub fn load_sources(&self, sources: Vec<Source>) -> Result<Loaded, Vec<Diagnostic>> {
        let sources: Vec<_> = sources
            .into_iter()
            .filter(|source| !source.text.is_empty() && files::is_supported(&source.path))
            .map(Arc::new)
            .collect();
        self.build(&sources, Findings::default())
    }

    /// Reads a file that holds exactly one task, as `task create` does.
    /// Variable files are read; deprecated names are errors.
    ///
    /// # Errors
    ///
    /// Every mistake found, as [`Loader::load`].
    pub fn load_task(&self, path: &Path) -> Result<Task, Vec<Diagnostic>> {
        let mut findings = Findings { refuse_deprecated: true, ..Findings::default() };
        let sources = files::read_all(&[path.to_owned()], &mut findings.errors);
        let raw = self.merge(&sources, &mut findings);
        let count = raw.tasks.as_ref().map_or(0, |tasks| tasks.0.len());
        if count != 1 {
            if findings.errors.is_empty() {
                findings.errors.push(wrong_count(path, count));
            }
            return Err(sorted(findings, &sources));
        }
        // The file names no driver; whoever runs the task checks what is the driver's.
        let task = finalize::only_task(&raw, &self.environment, &self.registry, &mut findings);
        match task {
            Some(task) if findings.errors.is_empty() => Ok(task),
            _ => Err(sorted(findings, &sources)),
        }
    }

    fn build(
        &self,
        sources: &[Arc<Source>],
        mut findings: Findings,
    ) -> Result<Loaded, Vec<Diagnostic>> {
        if sources.is_empty() && findings.errors.is_empty() {
            findings.errors.push(
                Diagnostic::error("no configuration files found")
                    .help("name a file that ends in .hcl or .json, or a directory that holds one"),
            );
        }
        let raw = self.merge(sources, &mut findings);
        if sources.is_empty() {
            return Err(sorted(findings, sources));
        }
        let finalized = finalize::finalize(&raw, &self.environment, &self.registry, &mut findings);
        match finalized {
            Some((mut config, driver)) if findings.errors.is_empty() => {
                config.warnings = sorted(findings, sources);
                let base_dir = self.environment.base_dir();
                let rules = TaskRules::new(&config, self.registry.clone(), base_dir);
                Ok(Loaded { config, driver, rules })
            }
            _ => Err(sorted(findings, sources)),
        }
    }

    /// Decodes all files and merges them in order.
    fn merge(&self, sources: &[Arc<Source>], findings: &mut Findings) -> RawConfig {
        let mut merged = RawConfig::default();
        for source in sources {
            match parse(source) {
                Ok(file) => merged.merge(self.decode(source, &file, findings)),
                Err(diagnostic) => {
                    findings.errors.push(diagnostic);
                    findings.incomplete = true;
                }
            }
        }
        merged
    }

    fn decode(
        &self,
        source: &Arc<Source>,
        file: &ConfigValue,
        findings: &mut Findings,
    ) -> RawConfig {
        dynamic::check_file(file, &self.registry, findings);
        let mut decoder = Decoder::new(&self.registry, findings);
        let raw = decode_body("", file, &mut decoder);
        let unknown = decoder.unknown;
        if !unknown.is_empty() {
            let name = source.path.file_name().unwrap_or(source.path.as_os_str());
            findings.errors.push(unknown::diagnostic(&name.to_string_lossy(), &unknown));
        }
        raw
    }
}

fn wrong_count(path: &Path, count: usize) -> Diagnostic {
    let file = path.display();
    let message = if count == 0 {
        format!("task file '{file}' does not contain a task, must contain at least one task")
    } else {
        format!("task file '{file}' cannot contain more than 1 task, contains {count} tasks")
    };
    Diagnostic::error(message).help("write one task { … } block")
}

fn parse(source: &Arc<Source>) -> Result<ConfigValue, Diagnostic> {
    if source.path.extension().is_none_or(|extension| extension != "json") {
        return hcl::parse(source).map(ConfigValue::fold_labels);
    }
    let value = json::parse(source)?;
    match value.kind {
        ValueKind::Object(_) => Ok(value),
        _ => Err(Diagnostic::error(format!("expected an object, found {}", value.describe()))
            .at(value.place)
            .help("a configuration file in JSON is one object: { \"task\": [ … ] }")),
    }
}

/// Errors, then warnings, each by file and place.
fn sorted(findings: Findings, sources: &[Arc<Source>]) -> Vec<Diagnostic> {
    let mut all = findings.errors;
    all.extend(findings.warnings);
    all.sort_by_key(|diagnostic| {
        let place = diagnostic.place.as_ref().map(|place| {
            let file = sources.iter().position(|source| Arc::ptr_eq(source, place.source()));
            (file.unwrap_or(usize::MAX), place.range().start)
        });
        (diagnostic.severity == Severity::Warning, place.is_none(), place)
    });
    all
}
