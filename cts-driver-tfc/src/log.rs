//! Logs of plans and applies, which the platform gives out piece by piece: putting them together,
//! waiting for their end, and text for people from them.

use std::time::Duration;

use consul_watch::{Backoff, Jitter};
use secrecy::SecretString;
use serde_json::Value;

use crate::{Client, Result};

/// First and last byte of a whole log. Source: go-tfe `logreader.go`.
const STX: u8 = 0x02;
const ETX: u8 = 0x03;

/// Bytes that are asked for at once.
pub(crate) const PIECE: u64 = 65536;

/// Bytes that are kept of one log; what is over that is left out at its beginning.
const MOST: usize = 4 << 20;

/// Number of times that an ended step's log is asked for that has no end yet.
pub(crate) const EMPTY: u32 = 10;

/// Shortest and longest wait for more of a log.
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2));

/// Log that is put together from its pieces.
#[derive(Debug, Default)]
pub(crate) struct LogText {
    text: Vec<u8>,
    /// Number of bytes read, marks included.
    offset: u64,
    ended: bool,
}

impl LogText {
    /// Returns where the next piece begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns `true` once the end was read.
    pub(crate) fn is_complete(&self) -> bool {
        self.ended
    }

    /// Takes the next piece; bytes after the end are ignored.
    pub(crate) fn take(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.ended {
                return;
            }
            match *byte {
                // Only as the very first byte; later it is part of the text.
                STX if self.offset == 0 => {}
                ETX => self.ended = true,
                byte => self.text.push(byte),
            }
            self.offset += 1;
        }
        if self.text.len() > MOST {
            // From the front: errors stand at the end.
            self.text.drain(..self.text.len() - MOST);
        }
    }

    /// Returns the text for people: without colours, and with the messages of lines that are JSON.
    pub(crate) fn readable(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let lines: Vec<String> = text.lines().map(message).collect();
        lines.join("\n").trim().to_owned()
    }

    /// Returns the errors in the log, or its last lines if there are none.
    pub(crate) fn errors(&self) -> String {
        let text = String::from_utf8_lossy(&self.text);
        let structured: Vec<String> = text.lines().filter_map(diagnostic).collect();
        // A log with structured errors needs no search of its text.
        if !structured.is_empty() {
            return structured.join("\n");
        }
        errors_of(&self.readable())
    }
}

/// Returns the waits for more of a log.
pub(crate) fn waits() -> Backoff {
    let (first, longest) = WAITS;
    Backoff::default().with_initial(first).with_cap(longest).with_jitter(Jitter::Extra(0.2))
}

/// Reads a whole log of a step that has ended.
///
/// # Errors
///
/// Errors of [`Client::log_piece`], if the host of the logs cannot be asked.
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
            // The step ended, but its last piece may take some seconds to be stored.
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
    /// Returns `true` if the log began with its mark, so that it has an end mark too.
    fn is_framed(&self) -> bool {
        // One byte more was read than kept. Where the beginning was cut off, a mark is taken for
        // granted.
        self.offset > u64::try_from(self.text.len()).unwrap_or(u64::MAX) || self.text.len() == MOST
    }
}

/// Log that is cut into lines as its pieces come.
#[derive(Debug, Default)]
pub(crate) struct LogLines {
    /// Number of bytes read, marks included.
    offset: u64,
    framed: bool,
    ended: bool,
    /// Beginning of a line that has not ended.
    line: Vec<u8>,
    /// `true` if the line is longer than what is kept of one.
    long: bool,
}

/// Bytes of the longest line that is shown.
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
                    // The last line needs no line break.
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
        // Lossy, and only here: a piece may end within a character, a line does not.
        let line = message(String::from_utf8_lossy(&line).trim_end());
        (!line.trim().is_empty()).then_some(line)
    }
}

/// Returns the message of a line.
fn message(line: &str) -> String {
    // With structured run output, a setting of the workspace, Terraform writes JSON lines.
    let structured = line.starts_with('{').then(|| serde_json::from_str::<Value>(line).ok());
    let said =
        structured.flatten().and_then(|line| Some(line.get("@message")?.as_str()?.to_owned()));
    without_colours(&said.unwrap_or_else(|| line.to_owned()))
}

/// Returns the error that a line of JSON reports.
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

/// Number of lines that are shown of a log without errors.
const TAIL: usize = 10;

/// Returns the lines from the first error on, without the frame that Terraform draws.
fn errors_of(text: &str) -> String {
    let plain =
        |line: &str| line.trim_start_matches(['│', '╷', '╵', '|', ' ']).trim_end().to_owned();
    let lines: Vec<String> = text.lines().map(plain).filter(|line| !line.is_empty()).collect();
    let first = lines.iter().position(|line| line.starts_with("Error: "));
    let from = first.unwrap_or(lines.len().saturating_sub(TAIL));
    // Enough for several errors with their places; the address of the run has the rest.
    lines.into_iter().skip(from).take(40).collect::<Vec<_>>().join("\n")
}

/// Returns the text without escape sequences and other characters that steer a terminal.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.as_str().starts_with('[') {
                // A CSI sequence ends with the first byte from `@` to `~`.
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
