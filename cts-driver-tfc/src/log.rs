//! Logs of plans and applies, which the platform gives out piece by piece.

use std::time::Duration;

use consul_watch::{Backoff, Jitter};
use secrecy::SecretString;
use serde_json::Value;

use crate::{Client, Result};

/// The first and the last byte of a whole log.
const STX: u8 = 0x02;
const ETX: u8 = 0x03;

/// How much is asked for at once.
pub(crate) const PIECE: u64 = 65536;

/// The most that is kept of one log; what is over that is left out at its beginning.
const MOST: usize = 4 << 20;

/// How often an ended step's log is asked for that has no end yet.
pub(crate) const EMPTY: u32 = 10;

/// The shortest and the longest wait for more of a log.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// Puts a log together from its pieces.
#[derive(Debug, Default)]
pub(crate) struct LogText {
    text: Vec<u8>,
    /// How many bytes were read, marks included.
    offset: u64,
    ended: bool,
}

impl LogText {
    /// Where the next piece begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the end was read.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended
    }

    /// Takes the next piece; what follows the end is ignored.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.ended {
                return;
            }
            match *byte {
                STX if self.offset == 0 => {}
                ETX => self.ended = true,
                byte => self.text.push(byte),
            }
            self.offset += 1;
        }
        if self.text.len() > MOST {
            self.text.drain(..self.text.len() - MOST);
        }
    }

    /// The text for people: without colours, and the messages of lines that are JSON.
    pub(crate) fn readable(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let lines: Vec<String> = text.lines().map(message).collect();
        lines.join("\n").trim().to_owned()
    }

    /// The errors that the log tells of, or its last lines if it tells of none.
    pub(crate) fn errors(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let structured: Vec<String> = text.lines().filter_map(diagnostic).collect();
        if !structured.is_empty() {
            return structured.join("\n");
        }
        errors_of(&self.readable())
    }
}

/// The waits for more of a log.
pub(crate) fn waits() -> Backoff {
    let (first, longest) = WAITS;
    Backoff::default().with_initial(first).with_cap(longest).with_jitter(Jitter::Extra(0.2))
}

/// Reads a whole log of a step that has ended.
///
/// # Errors
///
/// When the host of the logs cannot be asked.
pub(crate) async fn read(client: &Client, address: &SecretString) -> Result<LogText> {
    let mut log = LogText::default();
    let mut empty = 0;
    let mut waits = waits();
    while !log.is_complete() && empty < EMPTY {
        let piece = client.log_piece(address, log.offset(), PIECE).await?;
        if piece.is_empty() {
            // Without marks there is no end to wait for.
            if log.offset() > 0 && !log.is_framed() {
                break;
            }
            empty += 1;
            tokio::time::sleep(waits.next_delay()).await;
        } else {
            empty = 0;
            waits.reset();
            log.take(&piece);
        }
    }
    Ok(log)
}

impl LogText {
    /// Whether the log began with its mark, so that it has an end mark too.
    fn is_framed(&self) -> bool {
        self.offset > u64::try_from(self.text.len()).unwrap_or(u64::MAX) || self.text.len() == MOST
    }
}

/// Cuts a log into lines as its pieces come.
#[derive(Debug, Default)]
pub(crate) struct LogLines {
    /// Number of bytes read, marks included.
    offset: u64,
    framed: bool,
    ended: bool,
    /// The beginning of a line that has not ended.
    line: Vec<u8>,
    /// The line is longer than what is kept of one.
    long: bool,
}

/// Bytes of the longest line that is told.
const LONGEST_LINE: usize = 64 << 10;

impl LogLines {
    /// Returns where the next piece begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns `true` once the end mark was read.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended
    }

    /// Returns `true` if the log began with its mark, so that it has an end mark too.
    pub(crate) fn is_framed(&self) -> bool {
        self.framed
    }

    /// Takes the next piece, and returns the lines that it completes, for people.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in piece {
            if self.ended {
                break;
            }
            let first = self.offset == 0;
            self.offset += 1;
            match *byte {
                STX if first => self.framed = true,
                ETX => {
                    self.ended = true;
                    lines.extend(self.rest());
                }
                b'\n' => lines.extend(self.rest()),
                // Parts of it could not be searched for values that must not be shown.
                _ if self.line.len() >= LONGEST_LINE => self.long = true,
                byte => self.line.push(byte),
            }
        }
        lines
    }

    /// Takes what was read of a line that has not ended; `None` when there is nothing to
    /// be seen.
    pub(crate) fn rest(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.long) {
            return Some(format!("(a line of more than {LONGEST_LINE} bytes is left out)"));
        }
        let line = message(String::from_utf8_lossy(&line).trim_end());
        (!line.trim().is_empty()).then_some(line)
    }
}

/// What a line says.
fn message(line: &str) -> String {
    let structured = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok());
    let said =
        structured.flatten().and_then(|line| Some(line.get("@message")?.as_str()?.to_owned()));
    without_colours(&said.unwrap_or_else(|| line.to_owned()))
}

/// The error that a line of JSON reports.
fn diagnostic(line: &str) -> Option<String> {
    let line = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok())??;
    let found = line.get("diagnostic")?;
    if found.get("severity")?.as_str()? != "error" {
        return None;
    }
    let text = |name: &str| found.get(name).and_then(Value::as_str).unwrap_or_default();
    let (summary, detail) = (text("summary"), text("detail"));
    Some(if detail.is_empty() { summary.to_owned() } else { format!("{summary}: {detail}") })
}

/// How many lines are told of a log without errors.
const TAIL: usize = 10;

/// The lines from the first error on, without the frame that Terraform draws.
fn errors_of(text: &str) -> String {
    let plain =
        |line: &str| line.trim_start_matches(['│', '╷', '╵', '|', ' ']).trim_end().to_owned();
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let first = lines.iter().position(|line| line.starts_with("Error: "));
    let from = first.unwrap_or(lines.len().saturating_sub(TAIL));
    lines.into_iter().skip(from).take(40).collect::<Vec<_>>().join("\n")
}

/// The text without escape sequences and other characters that steer a terminal.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.as_str().starts_with('[') {
                characters.by_ref().skip(1).find(|end| ('@'..='~').contains(end));
            }
        } else if !character.is_control() || character == '\t' {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests;
