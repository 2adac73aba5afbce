//! Reads tables of exchanges: `.http` files as editors know them.
//!
//! A block begins with `###` and its title. Directives follow, each a comment:
//!
//! | directive | meaning |
//! |---|---|
//! | `# @capture NAME POINTER` | keeps a value of the JSON answer for `{{NAME}}` |
//! | `# @until TEXT` | repeats the request until the answer has the text |
//! | `# @shape` | compares types of values in place of values |
//! | `# @unordered` | compares lists without regard to their order |
//!
//! Then come one or more request lines, of which the last may have headers and,
//! after an empty line, a body. `@acl` in the first line of the file sends it to
//! servers with ACLs.

use std::{collections::BTreeMap, fmt, path::Path};

use bytes::Bytes;

use super::compare::View;

/// The exchanges of one file.
#[derive(Debug)]
pub(in crate::parity) struct Table {
    pub(super) sealed: bool,
    pub(in crate::parity) exchanges: Vec<Exchange>,
}

/// One request, and what to do with its answer.
#[derive(Debug, Default, Clone)]
pub(in crate::parity) struct Exchange {
    file: String,
    line: usize,
    title: String,
    pub(in crate::parity) method: String,
    pub(in crate::parity) target: String,
    headers: Vec<(String, String)>,
    pub(in crate::parity) body: String,
    pub(super) captures: Vec<(String, String)>,
    pub(super) until: Option<String>,
    pub(super) view: View,
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, title, method, target, body, .. } = self;
        write!(f, "{file}:{line}: {title}: {method} {target}")?;
        let body: String = body.chars().take(120).collect();
        if body.is_empty() { Ok(()) } else { write!(f, " <<< {body}") }
    }
}

impl Exchange {
    /// The request, with known values in place of their names.
    pub(super) fn request(
        &self,
        address: &str,
        known: &BTreeMap<String, String>,
    ) -> http::Request<Bytes> {
        let fill = |text: &str| {
            known.iter().fold(text.to_owned(), |text, (name, value)| {
                text.replace(&format!("{{{{{name}}}}}"), value)
            })
        };
        let target = format!("http://{address}{}", fill(&self.target));
        let request = http::Request::builder().method(self.method.as_str()).uri(target);
        let request = self
            .headers
            .iter()
            .fold(request, |request, (name, value)| request.header(name, fill(value)));
        let body = fill(&self.body);
        request.body(body.into()).unwrap_or_else(|error| panic!("{self}: {error}"))
    }
}

/// All tables of the folder, by name.
pub(in crate::parity) fn read_all() -> Vec<Table> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/parity/exchanges");
    let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|kind| kind == "http")).collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            read(&name, &std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn read(file: &str, text: &str) -> Table {
    let lines: Vec<&str> = text.lines().collect();
    let sealed = lines.first().is_some_and(|line| line.contains("@acl"));
    let starts: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("### ")).collect();
    let mut exchanges = Vec::new();
    for (number, start) in starts.iter().enumerate() {
        let end = starts.get(number + 1).copied().unwrap_or(lines.len());
        read_block(file, *start, &lines[*start..end], &mut exchanges);
    }
    Table { sealed, exchanges }
}

fn read_block(file: &str, start: usize, lines: &[&str], exchanges: &mut Vec<Exchange>) {
    let mut block = Exchange {
        file: file.to_owned(),
        title: lines[0].trim_start_matches("### ").to_owned(),
        ..Exchange::default()
    };
    let mut at = 1;
    while let Some(directive) = lines.get(at).and_then(|line| line.strip_prefix("# @")) {
        let (word, rest) = directive.split_once(' ').unwrap_or((directive, ""));
        match word {
            "capture" => {
                let (name, pointer) = rest.split_once(' ').expect("a name and a pointer");
                block.captures.push((name.to_owned(), pointer.to_owned()));
            }
            "until" => block.until = Some(rest.to_owned()),
            "shape" => block.view = View::Shape,
            "unordered" => block.view = View::Unordered,
            other => panic!("{file}:{}: unknown directive {other}", start + at + 1),
        }
        at += 1;
    }
    let first = exchanges.len();
    while let Some((method, target)) = lines.get(at).and_then(|line| line.split_once(' '))
        && target.starts_with('/')
    {
        let (method, target) = (method.to_owned(), target.trim().to_owned());
        exchanges.push(Exchange { line: start + at + 1, method, target, ..block.clone() });
        at += 1;
    }
    assert!(exchanges.len() > first, "{file}:{}: a block without a request", start + 1);
    let Some(last) = exchanges.last_mut() else { return };
    while let Some((name, value)) = lines.get(at).and_then(|line| line.split_once(": ")) {
        last.headers.push((name.to_owned(), value.to_owned()));
        at += 1;
    }
    let body = lines.get(at..).unwrap_or_default().join("\n");
    body.trim_matches('\n').clone_into(&mut last.body);
}
