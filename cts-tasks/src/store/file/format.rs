//! The format of a state file: a line that says what it is, then the state in JSON.
//!
//! ```text
//! {"format":"cts-tasks state","version":1,"sha256":"…"}
//! {
//! "tasks":[
//! {"name":"web", … }],
//! … }
//! ```
//!
//! Each task and each entry stands on a line of its own. The digest is that of everything
//! after the first line; a file without it is taken as it is, for who has to mend one by hand.

use std::{
    fmt,
    io::{self, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use serde_json::{error::Category, ser::Formatter};
use sha2::{Digest as _, Sha256};

use crate::{State, hex::hex};

const FORMAT: &str = "cts-tasks state";

/// The version that is written, and the newest that is read. It grows when an earlier program
/// would lose or misread what a newer one writes.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Writes a state.
pub(super) fn write(state: &State) -> serde_json::Result<Vec<u8>> {
    let mut body = Vec::new();
    state.serialize(&mut serde_json::Serializer::with_formatter(&mut body, Lines::default()))?;
    body.push(b'\n');
    let sha256 = Some(hex(&Sha256::digest(&body)));
    let header = Header { format: FORMAT.to_owned(), version: VERSION, sha256 };
    let mut text = serde_json::to_vec(&header)?;
    text.push(b'\n');
    text.append(&mut body);
    Ok(text)
}

/// Reads a state.
pub(super) fn read(text: &[u8]) -> Result<State, Mistake> {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (first, rest) = text.split_at(end);
    let header: Header = match serde_json::from_slice(first) {
        Ok(header) => header,
        Err(_) => return Err(Mistake::new(1, "this is no state of tasks, or a damaged one")),
    };
    if header.format != FORMAT {
        return Err(Mistake::new(1, "this is no state of tasks"));
    }
    if header.version > VERSION {
        let version = header.version;
        return Err(Mistake {
            line: 1,
            problem: format!(
                "the state has the format version {version}, and this program reads up to {VERSION}"
            ),
            help: "start the newer program that wrote it",
        });
    }
    let body = rest.get(1..).unwrap_or_default();
    let read: serde_json::Result<State> = serde_json::from_slice(body);
    let whole = header.sha256.is_none_or(|sha256| sha256 == hex(&Sha256::digest(body)));
    match read {
        Ok(state) if whole => Ok(state),
        Ok(_) => Err(Mistake::new(
            1,
            "the digest does not fit what follows: the file is damaged, or was changed by hand",
        )),
        // The text of the error could hold a value, which may be a secret.
        Err(error) => {
            let problem = match error.classify() {
                Category::Eof => "the file ends too soon",
                Category::Syntax | Category::Io => "this is no JSON",
                Category::Data => "what stands here is not what a state has",
            };
            Err(Mistake::new(error.line() + 1, problem))
        }
    }
}

/// A defect of a file, with its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    line: usize,
    problem: String,
    help: &'static str,
}

impl Mistake {
    fn new(line: usize, problem: impl Into<String>) -> Self {
        let help = "restore the file from a backup, or move it away: then the tasks of the \
                    configuration start again, and those made through the API are lost";
        Self { line, problem: problem.into(), help }
    }

    pub(super) fn at(&self, file: &Path) -> String {
        format!("{}:{self}", file.display())
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.line, self.problem, self.help)
    }
}

/// Begins a line for each entry down to the second level.
#[derive(Default)]
struct Lines {
    depth: usize,
}

const LEVELS: usize = 2;

impl Lines {
    fn entry<W: ?Sized + Write>(&self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(match (first, self.depth <= LEVELS) {
            (true, true) => b"\n",
            (true, false) => b"",
            (false, true) => b",\n",
            (false, false) => b",",
        })
    }
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.entry(writer, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.entry(writer, first)
    }
}
