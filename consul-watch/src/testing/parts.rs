//! Real programs that suites run against, and the report of what was used.
//!
//! Suites prefer the real thing and must say when they ran without it. Every
//! fact becomes one line, with tabs between its fields, in the file that the
//! variable `REAL_PARTS_REPORT` names:
//!
//! | line | meaning |
//! |---|---|
//! | `used PART VERSION SUITE` | the suite ran against the real program |
//! | `double PART SUITE` | the suite ran against a double |
//! | `missing PART SUITE CASE REASON` | a case did not run for want of it |
//! | `notapplicable PART SUITE CASE REASON` | a case makes no sense with this version |
//!
//! With `REAL_PARTS=required` a missing program fails the test instead.

use std::{
    collections::HashSet,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// A real program on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Name of the program, such as `consul`.
    pub name: String,
    /// Path of the program.
    pub path: PathBuf,
    /// Version, such as `1.8.7`; empty if the program does not report it.
    pub version: String,
}

impl Part {
    /// The version's first numbers, to compare: `1.8.7` is `(1, 8)`.
    pub fn major_minor(&self) -> (u32, u32) {
        major_minor(&self.version)
    }
}

/// Looks for a program: first in `.tools/bin` of the current folder or one above it, where
/// `scripts/setup-tools` puts what is new enough, then on the path.
pub fn find(name: &str) -> Option<Part> {
    let path = tools(name).or_else(|| which::which(name).ok())?;
    let version = version(&path);
    Some(Part { name: name.to_owned(), path, version })
}

/// Looks for every version of a program that is there, the oldest first: the one that
/// [`find`] gives, and those beside it in `.tools/bin` whose name ends with their version,
/// such as `consul-1.19`. Each has the plain name as its own.
pub fn find_all(name: &str) -> Vec<Part> {
    let mut found: Vec<Part> = find(name).into_iter().collect();
    let folder = tools(name).and_then(|path| path.parent().map(Path::to_owned));
    let beside = folder.and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten();
    let newer = beside.filter_map(Result::ok).filter_map(|entry| {
        let file = entry.file_name().into_string().ok()?;
        let suffix = file.strip_prefix(name)?.strip_prefix('-')?;
        let path = entry.path();
        let is_version = suffix.starts_with(|c: char| c.is_ascii_digit());
        (is_version && path.is_file()).then_some(path)
    });
    found.extend(newer.map(|path| {
        let version = version(&path);
        Part { name: name.to_owned(), path, version }
    }));
    found.sort_by_key(|part| (part.major_minor(), part.version.clone()));
    found.dedup_by(|later, earlier| later.version == earlier.version);
    found
}

/// The program of this name in the nearest `.tools/bin`.
fn tools(name: &str) -> Option<PathBuf> {
    env::current_dir().ok()?.ancestors().find_map(|folder| {
        let path = folder.join(".tools/bin").join(name);
        path.is_file().then_some(path)
    })
}

/// First two numbers of the version of the program at `path`; zeros if it names none.
pub(super) fn version_of(path: &Path) -> (u32, u32) {
    major_minor(&version(path))
}

fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The first thing that looks like a version in what the program says of itself.
fn version(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // A browser would open a page of that name, and its driver serve until it is ended.
    let of_browser = ["chromium", "chromedriver"].contains(&name);
    let arguments: &[&str] = if of_browser { &["--version"] } else { &["version", "--version"] };
    for argument in arguments {
        let Ok(output) = Command::new(path).arg(argument).env_remove("TF_CLI_CONFIG_FILE").output()
        else {
            continue;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut words = text.split_whitespace().map(|word| word.trim_start_matches('v'));
        let found =
            words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
        if let Some(found) = found.filter(|_| output.status.success()) {
            return found.trim_end_matches([',', ';', ')']).to_owned();
        }
    }
    String::new()
}

const NOT_THERE: &str = "not on PATH and not in .tools/bin; scripts/setup-tools brings it";

/// A named group of tests, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suite(pub &'static str);

impl Suite {
    /// The program, with the fact that this suite uses it; without it, the
    /// fact that `case` does not run.
    ///
    /// # Panics
    ///
    /// Without the program, when `REAL_PARTS=required`.
    pub fn part(self, name: &str, case: &str) -> Option<Part> {
        let part = find(name);
        match &part {
            Some(part) => self.uses(part),
            None => self.missing(name, case, NOT_THERE),
        }
        part
    }

    /// Every version of the program that is there, the oldest first, with the fact that
    /// this suite uses each; without any, the fact that `case` does not run.
    ///
    /// # Panics
    ///
    /// Without the program, when `REAL_PARTS=required`.
    pub fn parts(self, name: &str, case: &str) -> Vec<Part> {
        let parts = find_all(name);
        for part in &parts {
            self.uses(part);
        }
        if parts.is_empty() {
            self.missing(name, case, NOT_THERE);
        }
        parts
    }

    /// Returns one version of the program, another one from test to test: for suites of many tests,
    /// which so run on every version in the time of one. The name of the test decides, so that a
    /// test has the same version each time; it is taken from the thread.
    ///
    /// # Panics
    ///
    /// Without the program, when `REAL_PARTS=required`.
    pub fn part_in_turn(self, name: &str, case: &str) -> Option<Part> {
        let mut parts = find_all(name);
        if parts.is_empty() {
            self.missing(name, case, NOT_THERE);
            return None;
        }
        let thread = std::thread::current();
        let test = thread.name().unwrap_or(case);
        let turn = test.bytes().fold(0_usize, |sum, byte| sum.wrapping_add(byte.into()));
        let part = parts.swap_remove(turn % parts.len());
        self.uses(&part);
        Some(part)
    }

    fn uses(self, part: &Part) {
        let version = if part.version.is_empty() { "unknown" } else { &part.version };
        record(&["used", &part.name, version, self.0]);
    }

    /// The suite runs against a double of the program.
    pub fn double(self, name: &str) {
        record(&["double", name, self.0]);
    }

    /// A case does not run because the program is missing.
    ///
    /// # Panics
    ///
    /// When `REAL_PARTS=required`.
    pub fn missing(self, name: &str, case: &str, reason: &str) {
        record(&["missing", name, self.0, case, reason]);
        let required = env::var("REAL_PARTS").is_ok_and(|value| value == "required");
        assert!(!required, "{case} needs {name}: {reason}");
    }

    /// A case makes no sense with the version of the program that is there.
    pub fn not_applicable(self, name: &str, case: &str, reason: &str) {
        record(&["notapplicable", name, self.0, case, reason]);
    }
}

/// Facts that this process has reported already.
static REPORTED: Mutex<Option<HashSet<String>>> = Mutex::new(None);

fn record(fields: &[&str]) {
    let clean: Vec<String> =
        fields.iter().map(|field| field.replace(['\t', '\n', '\r'], " ")).collect();
    let line = clean.join("\t");
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.get_or_insert_default().insert(line.clone()) {
        return;
    }
    tracing::info!(fact = line, "real parts");
    if let Some(path) = env::var_os("REAL_PARTS_REPORT")
        && let Ok(mut file) = fs::OpenOptions::new().create(true).append(true).open(path)
        && let Err(error) = writeln!(file, "{line}")
    {
        tracing::warn!(error = &error as &dyn std::error::Error, "the report cannot be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_with_their_version() {
        assert_eq!(find("surely-no-such-program"), None);
        let cargo = find("cargo").expect("the tests run under cargo");
        assert!(cargo.major_minor() >= (1, 95), "{cargo:?}");
        assert_eq!(find_all("surely-no-such-program"), []);
    }

    #[test]
    fn every_version_of_a_program_is_found_once_and_the_oldest_first() {
        for name in ["consul", "tofu", "etcd"] {
            let found = find_all(name);
            assert!(found.iter().all(|part| part.name == name), "{found:?}");
            let versions: Vec<_> = found.iter().map(Part::major_minor).collect();
            assert!(versions.is_sorted(), "{found:?}");
            assert_eq!(found.is_empty(), find(name).is_none(), "{found:?}");
        }
    }
}
