//! The parts of a configuration file that no message may show.
//!
//! A diagnostic shows the line that it is about. This reads a file by its
//! characters alone, so that it also works where the file does not parse, and finds
//! everything that may be a secret. A value is shown only under a key of its block
//! that is no secret's: a value under another key may be a secret whose key has a
//! typing error, or which has lost its block. Comments and heredocs are never shown.

mod blocks;

use std::ops::Range;

use blocks::{Block, CHOSEN, FILE, LABELLED, SECRET_BLOCKS, has};

use super::redact::is_secret_name;
pub(super) use blocks::is_known;

/// The ranges of `text` that must not be shown, in order. Of a file of `variables`
/// no value is shown.
pub(crate) fn masked(text: &str, variables: bool) -> Vec<Range<usize>> {
    let start = if variables { Within::Secret } else { Within::Block(&FILE) };
    let found = Scan::new(text, start).run();
    // Otherwise nothing tells which block a value belongs to, nor what is a value.
    if found.sound { found.ranges } else { Scan::strict(text).run().ranges }
}

/// The rule for showing an object's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    /// Values under the keys of a block.
    Block(&'static Block),
    /// Nothing but what stands below the next key, which is a label.
    Label(&'static Block),
    /// Values under any key that does not sound secret.
    Chosen,
    /// No value.
    Secret,
}

impl Within {
    /// Returns the rule for the value of `key`.
    fn below(self, key: &str) -> Self {
        let path = has(&["api_token_file", "token_file", "vault_agent_token_file"], key);
        match self {
            Self::Secret => Self::Secret,
            Self::Label(block) => Self::Block(block),
            _ if is_secret_name(key) && !path => Self::Secret,
            Self::Chosen => Self::Chosen,
            Self::Block(_) if has(SECRET_BLOCKS, key) => Self::Secret,
            Self::Block(_) if has(CHOSEN, key) => Self::Chosen,
            Self::Block(block) if !block.knows(key) => Self::Secret,
            Self::Block(block) if has(LABELLED, key) => Self::Label(block.below(key)),
            Self::Block(block) => Self::Block(block.below(key)),
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
    /// Braces match, each key has a value or opens a block, and each value is one.
    sound: bool,
    /// Keys and labels are shown only if the schema has them.
    strict: bool,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str, within: Within) -> Self {
        let frames = vec![Frame { within, end: None }];
        Self { text, position: 0, frames, ranges: Vec::new(), sound: true, strict: false }
    }

    /// Shows no more than keys of the schema.
    fn strict(text: &'a str) -> Self {
        Self { strict: true, ..Self::new(text, Within::Secret) }
    }

    fn run(mut self) -> Self {
        while let Some(next) = self.skip() {
            let frame = self.frames.last().copied();
            let Frame { within, end } =
                frame.unwrap_or(Frame { within: Within::Secret, end: None });
            match next {
                ',' | ';' => self.position += 1,
                '}' | ']' => {
                    self.sound &= end == Some(next);
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
        self.sound &= self.frames.len() == 1;
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
        let labelled =
            matches!(within, Within::Block(_)) && has(LABELLED, key) || has(&["backend"], key);
        let mut below = within.below(key);
        let mut words = vec![(key, start..after_key)];
        loop {
            let next = self.same_line();
            let from = self.position;
            match next {
                Some('=' | ':') => {
                    // A block that has lost its brace: what comes next may belong to it.
                    self.sound &= words.len() == 1;
                    self.mask_words(words);
                    self.position += 1;
                    self.same_line();
                    return self.value(below);
                }
                Some('{') => {
                    self.mask_words(words);
                    return self.open(below, '}');
                }
                Some(_) if labelled && let Some(label) = self.word() => {
                    words.push((label, from..self.position));
                    if let Within::Label(block) = below {
                        below = Within::Block(block);
                    }
                }
                // No key at all, perhaps a part of a value, or a block that has lost its brace.
                _ => {
                    self.sound = false;
                    return self.mask_line(if is_known(key) { after_key } else { start });
                }
            }
        }
    }

    fn mask_words(&mut self, words: Vec<(&str, Range<usize>)>) {
        let unknown = words.into_iter().filter(|(word, _range)| self.strict && !is_known(word));
        self.ranges.extend(unknown.map(|(_word, range)| range));
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
            // Neither a value nor a template: the key may be none either.
            self.sound &= rest.starts_with('"');
            return self.mask_line(start);
        };
        self.position += length;
        let address_with_user = text.contains("://") && text.contains('@');
        if !matches!(within, Within::Block(_) | Within::Chosen) || address_with_user {
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
