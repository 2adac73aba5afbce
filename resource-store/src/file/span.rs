//! Places in a text.

use std::{fmt, ops::Range};

/// A place in a text: line and column, both from 1; a column is one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// A part of a text, up to but without its end.
///
/// Prints as `3,13-17`, over several lines as `6,12-8,2`, and without length
/// as `3,13`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The first character.
    pub start: Position,
    /// Position after the last character.
    pub end: Position,
}

impl Span {
    /// The span of a range of bytes; what lies outside of the text, or within
    /// a character, counts as the nearest place before it.
    pub(super) fn of(text: &str, bytes: Range<usize>) -> Self {
        Self { start: position(text, bytes.start), end: position(text, bytes.end) }
    }

    /// The place where a parser stopped, counted from where `inner` begins.
    pub(super) fn shifted(outer: Position, line: usize, column: usize) -> Self {
        let at = if line <= 1 {
            Position { line: outer.line, column: outer.column + column.saturating_sub(1) }
        } else {
            Position { line: outer.line + line - 1, column: column.max(1) }
        };
        Self { start: at, end: at }
    }
}

fn position(text: &str, offset: usize) -> Position {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = text.get(..offset).unwrap_or_default();
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end } = self;
        write!(f, "{},{}", start.line, start.column)?;
        if start.line != end.line {
            write!(f, "-{},{}", end.line, end.column)
        } else if start.column != end.column {
            write!(f, "-{}", end.column)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_count_characters() {
        let text = "a\nü = \"x\"\n";
        assert_eq!(Span::of(text, 0..1).to_string(), "1,1-2");
        assert_eq!(Span::of(text, 7..10).to_string(), "2,5-8");
        assert_eq!(Span::of(text, 0..3).to_string(), "1,1-2,1");
        assert_eq!(Span::of(text, 99..99).to_string(), "3,1");
    }

    #[test]
    fn places_within_a_part_count_from_its_beginning() {
        let outer = Position { line: 3, column: 7 };
        assert_eq!(Span::shifted(outer, 1, 4).to_string(), "3,10");
        assert_eq!(Span::shifted(outer, 2, 4).to_string(), "4,4");
        assert_eq!(Span::shifted(outer, 1, 0).to_string(), "3,7");
    }
}
