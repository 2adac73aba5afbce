//! The parts of a configuration file that no message may show.
//!
//! A diagnostic shows the line that it is about. This reads a file by its
//! characters alone, so that it also works where the file does not parse, and finds
//! everything that may be a secret. A value is shown only under a key of the schema
//! that is no secret's: a value under an unknown key may be a secret whose key has a
//! typing error. Comments and heredocs are never shown.

use std::ops::Range;

use super::{
    decode::Body as _,
    raw::{
        RawApiTls, RawAuth, RawAutoRetrieval, RawBufferPeriod, RawCatalogCondition, RawConfig,
        RawConsul, RawDefaultCheck, RawKvCondition, RawLicense, RawRegistration, RawSchedule,
        RawService, RawServicesCondition, RawSyslog, RawTask, RawTls, RawTransport, RawVault,
    },
    redact::is_secret_name,
};

/// Keys of blocks that drivers and clusters claim, whose values are no secrets.
const CLAIMED: &[&str] = &[
    "agent_pool_id",
    "agent_pool_name",
    "cluster",
    "execution_mode",
    "high_availability",
    "hostname",
    "install",
    "instance",
    "log",
    "organization",
    "parent_path",
    "persist_log",
    "prefix",
    "session_ttl",
    "storage",
    "tags",
    "tags_allowlist",
    "tags_denylist",
    "terraform_cloud_workspace",
    "terraform_version",
    "workspace_prefix",
    "workspaces",
];

/// Keys of the schema below which every value may be a secret.
const SECRET_BLOCKS: &[&str] = &["terraform_provider", "variables", "task_env", "backend"];

/// Keys whose blocks have labels, which are keys in JSON.
const LABELLED: &[&str] =
    &["driver", "condition", "module_input", "source_input", "terraform_provider", "storage"];

/// Keys below which the operator chooses the keys, and values are no secrets.
const CHOSEN: &[&str] = &["cts_user_defined_meta", "node_meta", "required_providers"];

/// The schema's own keys.
const SCHEMA: &[&[&str]] = &[
    RawConfig::KEYS,
    RawSyslog::KEYS,
    RawBufferPeriod::KEYS,
    RawConsul::KEYS,
    RawAuth::KEYS,
    RawTls::KEYS,
    RawTransport::KEYS,
    RawRegistration::KEYS,
    RawDefaultCheck::KEYS,
    RawVault::KEYS,
    RawApiTls::KEYS,
    RawLicense::KEYS,
    RawAutoRetrieval::KEYS,
    RawService::KEYS,
    RawTask::KEYS,
    RawServicesCondition::KEYS,
    RawCatalogCondition::KEYS,
    RawKvCondition::KEYS,
    RawSchedule::KEYS,
    CLAIMED,
];

/// Returns `true` for a key that the schema has.
pub(super) fn is_known(key: &str) -> bool {
    SCHEMA.iter().any(|keys| has(keys, key)) || has(SECRET_BLOCKS, key) || has(CHOSEN, key)
}

fn has(keys: &[&str], key: &str) -> bool {
    keys.iter().any(|known| known.eq_ignore_ascii_case(key))
}

/// The ranges of `text` that must not be shown, in order. Of a file of `variables`
/// no value is shown.
pub(crate) fn masked(text: &str, variables: bool) -> Vec<Range<usize>> {
    let start = if variables { Within::Secret } else { Within::File };
    let found = Scan::new(text, start).run();
    // Where braces do not match, nothing tells which block a value belongs to.
    if found.balanced { found.ranges } else { Scan::new(text, Within::Secret).run().ranges }
}

/// What may be shown of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// As [`Within::Schema`], of the keys at the top: what has lost its block is not shown.
    File,
    /// Values under known keys.
    Schema,
    /// Nothing but what stands below the next key, which is a label.
    Label,
    /// Values under any key that does not sound secret.
    Chosen,
    /// No value.
    Secret,
}

impl Within {
    /// What may be shown of the value of `key`.
    fn below(self, key: &str) -> Self {
        let path = has(&["api_token_file", "vault_agent_token_file"], key);
        match self {
            Self::Secret => Self::Secret,
            Self::Label => Self::Schema,
            _ if is_secret_name(key) && !path => Self::Secret,
            Self::Chosen => Self::Chosen,
            Self::File if !has(RawConfig::KEYS, key) && key != "high_availability" => Self::Secret,
            Self::File => Self::Schema.below(key),
            Self::Schema if has(SECRET_BLOCKS, key) || !is_known(key) => Self::Secret,
            Self::Schema if has(CHOSEN, key) => Self::Chosen,
            Self::Schema if has(LABELLED, key) => Self::Label,
            Self::Schema => Self::Schema,
        }
    }
}

/// An object or a list that is open.
#[derive(Debug, Clone, Copy)]
struct Frame {
    within: Within,
    /// Closes it; `None` for the file.
    end: Option<char>,
}

struct Scan<'a> {
    text: &'a str,
    position: usize,
    frames: Vec<Frame>,
    ranges: Vec<Range<usize>>,
    balanced: bool,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str, within: Within) -> Self {
        let frames = vec![Frame { within, end: None }];
        Self { text, position: 0, frames, ranges: Vec::new(), balanced: true }
    }

    fn run(mut self) -> Self {
        while let Some(next) = self.skip() {
            let frame = self.frames.last().copied();
            let Frame { within, end } =
                frame.unwrap_or(Frame { within: Within::Secret, end: None });
            match next {
                ',' | ';' => self.position += 1,
                '}' | ']' => {
                    self.balanced &= end == Some(next);
                    if self.frames.len() > 1 {
                        self.frames.pop();
                    }
                    self.position += 1;
                }
                _ if end == Some(']') => self.value(within),
                // A file in JSON is one object.
                '{' if end.is_none() => self.open(within, '}'),
                _ => self.entry(within),
            }
        }
        self.balanced &= self.frames.len() == 1;
        self
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }

    /// Masks from `start` to the end of the line.
    fn mask_line(&mut self, start: usize) {
        self.position = start;
        let length = self.rest().find('\n').unwrap_or(self.rest().len());
        self.position += length;
        self.mask(start);
    }

    /// Masks from `start` to here.
    fn mask(&mut self, start: usize) {
        if start < self.position {
            self.ranges.push(start..self.position);
        }
    }

    fn open(&mut self, within: Within, end: char) {
        self.frames.push(Frame { within, end: Some(end) });
        self.position += 1;
    }

    /// Moves over space and comments; the character that comes next.
    fn skip(&mut self) -> Option<char> {
        loop {
            let rest = self.rest();
            let next = rest.chars().next()?;
            if next.is_whitespace() {
                self.position += next.len_utf8();
            } else if next == '#' || rest.starts_with("//") {
                self.mask_line(self.position);
            } else if rest.starts_with("/*") {
                let start = self.position;
                self.position += rest.find("*/").map_or(rest.len(), |end| end + 2);
                self.mask(start);
            } else {
                return Some(next);
            }
        }
    }

    /// Moves over spaces within the line; the character that comes next.
    fn same_line(&mut self) -> Option<char> {
        let rest = self.rest();
        self.position += rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
        self.rest().chars().next()
    }

    /// A key with its labels, and how its value begins.
    fn entry(&mut self, within: Within) {
        let start = self.position;
        let Some(key) = self.word() else { return self.mask_line(start) };
        let after_key = self.position;
        let labelled = matches!(within, Within::File | Within::Schema) && has(LABELLED, key)
            || has(&["backend"], key);
        let mut below = within.below(key);
        loop {
            match self.same_line() {
                Some('=' | ':') => {
                    self.position += 1;
                    self.same_line();
                    return self.value(below);
                }
                Some('{') => return self.open(below, '}'),
                Some(_) if labelled && self.word().is_some() => {
                    if below == Within::Label {
                        below = Within::Schema;
                    }
                }
                // No key at all, perhaps a part of a value.
                _ => return self.mask_line(if is_known(key) { after_key } else { start }),
            }
        }
    }

    /// Reads a name, or a string on one line.
    fn word(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        if rest.starts_with('"') {
            let length = string_length(rest)?;
            self.position += length;
            return rest.get(1..length - 1);
        }
        let end = rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
        let length = end.unwrap_or(rest.len());
        self.position += length;
        rest.get(..length).filter(|word| !word.is_empty())
    }

    fn value(&mut self, within: Within) {
        let (start, rest) = (self.position, self.rest());
        match rest.chars().next() {
            Some('{') => return self.open(within, '}'),
            Some('[') => return self.open(within, ']'),
            Some('<') if rest.starts_with("<<") => return self.heredoc(),
            _ => {}
        }
        let length = scalar_length(rest);
        let text = length.and_then(|length| rest.get(..length));
        let after = length.and_then(|length| rest.get(length..)).unwrap_or_default();
        let whole = after.chars().next().is_none_or(|c| c.is_whitespace() || ",;]}#/".contains(c));
        let (Some(length), Some(text), true) = (length, text, whole) else {
            return self.mask_line(start);
        };
        self.position += length;
        let address_with_user = text.contains("://") && text.contains('@');
        if !matches!(within, Within::Schema | Within::Chosen) || address_with_user {
            self.mask(start);
        }
    }

    fn heredoc(&mut self) {
        let start = self.position;
        let rest = self.rest();
        let (first, body) = rest.split_once('\n').unwrap_or((rest, ""));
        let mark = first.trim_start_matches('<').trim_start_matches('-').trim();
        self.position += first.len();
        let mut length = 0;
        for line in body.split_inclusive('\n') {
            length += line.len();
            if line.trim() == mark {
                break;
            }
        }
        self.position = (self.position + 1 + length).min(self.text.len());
        self.mask(start);
    }
}

/// The length of the string that `text` begins with, if it ends on its line.
fn string_length(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return None,
            '"' if !escaped => return Some(at + 1),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
}

/// The length of the string, number or word of a value that `text` begins with.
fn scalar_length(text: &str) -> Option<usize> {
    if text.starts_with('"') {
        // A template may hold quotes.
        return string_length(text)
            .filter(|length| text.get(..*length).is_some_and(|s| !s.contains("${")));
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    let word = text.get(..end.unwrap_or(text.len()))?;
    let plain = ["true", "false", "null"].contains(&word) || word.parse::<f64>().is_ok();
    plain.then_some(word.len())
}
