//! Splits HCL of the first version into tokens.

use std::ops::Range;

use super::{
    super::{
        cursor::{Cursor, Fault, describe},
        mask::is_known,
    },
    number::number,
};
use crate::Number;

/// A word or mark of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(&'a str),
    String(String),
    Heredoc(String),
    Number(Number),
    Equals,
    Colon,
    Comma,
    OpenBrace,
    CloseBrace,
    OpenBracket,
    CloseBracket,
    End,
}

impl Token<'_> {
    /// Returns the token's name in a message.
    pub(super) fn describe(&self) -> String {
        match self {
            // A word may be a secret that lacks its quotes, and so may a number.
            Self::Word(word) if is_known(word) => format!("\"{word}\""),
            Self::Word(_) => "a word without quotes".to_owned(),
            Self::String(_) => "a string".to_owned(),
            Self::Heredoc(_) => "a heredoc".to_owned(),
            Self::Number(_) => "a number".to_owned(),
            Self::Equals => "\"=\"".to_owned(),
            Self::Colon => "\":\"".to_owned(),
            Self::Comma => "\",\"".to_owned(),
            Self::OpenBrace => "\"{\"".to_owned(),
            Self::CloseBrace => "\"}\"".to_owned(),
            Self::OpenBracket => "\"[\"".to_owned(),
            Self::CloseBracket => "\"]\"".to_owned(),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

/// Cuts a file into [`Token`]s.
pub(super) struct Lexer<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut cursor = Cursor::new(text);
        cursor.eat("\u{feff}");
        Self { cursor }
    }

    /// The next token with its place; at the end [`Token::End`], again and again.
    pub(super) fn next_token(&mut self) -> Result<(Token<'a>, Range<usize>), Fault> {
        self.skip_space()?;
        let start = self.cursor.position();
        let token = self.token(start)?;
        Ok((token, start..self.cursor.position()))
    }

    fn skip_space(&mut self) -> Result<(), Fault> {
        loop {
            self.cursor.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
            let start = self.cursor.position();
            if self.cursor.eat("#") || self.cursor.eat("//") {
                self.cursor.take_line();
            } else if self.cursor.eat("/*") {
                self.skip_comment(start)?;
            } else {
                return Ok(());
            }
        }
    }

    fn skip_comment(&mut self, start: usize) -> Result<(), Fault> {
        loop {
            if self.cursor.eat("*/") {
                return Ok(());
            }
            if self.cursor.bump().is_none() {
                return Err(Fault::new(start..start + 2, "the comment is not closed")
                    .help("close it with */"));
            }
        }
    }

    fn token(&mut self, start: usize) -> Result<Token<'a>, Fault> {
        let Some(first) = self.cursor.peek() else { return Ok(Token::End) };
        if first == '_' || first.is_alphabetic() {
            let word = self.cursor.take_while(|c| c.is_alphanumeric() || "_-.".contains(c));
            return Ok(Token::Word(word));
        }
        let signed = matches!(first, '-' | '.')
            && self.cursor.peek_second().is_some_and(|c| c.is_ascii_digit() || c == '.');
        if first.is_ascii_digit() || signed {
            return self.number(start);
        }
        if self.cursor.rest().starts_with("<<") {
            return self.heredoc(start);
        }
        self.cursor.bump();
        Ok(match first {
            '"' => return self.string(start),
            '=' => Token::Equals,
            ':' => Token::Colon,
            ',' => Token::Comma,
            '{' => Token::OpenBrace,
            '}' => Token::CloseBrace,
            '[' => Token::OpenBracket,
            ']' => Token::CloseBracket,
            other => {
                let fault = Fault::new(
                    start..self.cursor.position(),
                    format!("unexpected {}", describe(Some(other))),
                );
                return Err(match other {
                    '\'' => fault.help("strings stand in double quotes"),
                    ';' => fault.help("entries are separated by line breaks, without a semicolon"),
                    '\u{fffd}' => fault.help("the file must be text in UTF-8"),
                    _ => fault,
                });
            }
        })
    }

    fn number(&mut self, start: usize) -> Result<Token<'a>, Fault> {
        if self.cursor.peek() == Some('-') {
            self.cursor.bump();
        }
        let mut before = ' ';
        let hex = self.cursor.rest().starts_with("0x") || self.cursor.rest().starts_with("0X");
        self.cursor.take_while(|c| {
            let exponent = matches!(before, 'e' | 'E') && !hex;
            before = c;
            c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || (exponent && "+-".contains(c))
        });
        let text = self.cursor.since(start);
        number(text).map(Token::Number).ok_or_else(|| {
            Fault::new(start..self.cursor.position(), "invalid number")
                .help("put quotes around it if it is meant as a string")
        })
    }

    /// Reads a string after its opening quote.
    fn string(&mut self, start: usize) -> Result<Token<'a>, Fault> {
        let mut text = String::new();
        loop {
            let at = self.cursor.position();
            match self.cursor.bump() {
                Some('"') => return Ok(Token::String(text)),
                Some('\\') => text.push(self.escape(at)?),
                Some('$') if self.cursor.eat("{") => self.interpolation(at, &mut text)?,
                Some('\n' | '\r') | None => {
                    return Err(Fault::new(start..at, "the string is not closed on its line")
                        .help("close it with '\"'; write \\n for a line break, or use a heredoc"));
                }
                Some(other) => text.push(other),
            }
        }
    }

    /// Copies `${…}` as it stands, up to the brace that closes it.
    fn interpolation(&mut self, start: usize, text: &mut String) -> Result<(), Fault> {
        let mut open = 1;
        while open > 0 {
            match self.cursor.bump() {
                Some('{') => open += 1,
                Some('}') => open -= 1,
                Some(_) => {}
                None => {
                    return Err(Fault::new(start..start + 2, "\"${\" is not closed")
                        .help("close it with \"}\""));
                }
            }
        }
        text.push_str(self.cursor.since(start));
        Ok(())
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, start: usize) -> Result<char, Fault> {
        let code = match self.cursor.bump() {
            Some(c @ ('"' | '\\' | '\'')) => return Ok(c),
            Some('n') => return Ok('\n'),
            Some('r') => return Ok('\r'),
            Some('t') => return Ok('\t'),
            Some('a') => return Ok('\u{7}'),
            Some('b') => return Ok('\u{8}'),
            Some('f') => return Ok('\u{c}'),
            Some('v') => return Ok('\u{b}'),
            Some(first @ '0'..='7') => {
                self.digits(8, 2).map(|rest| rest + first.to_digit(8).unwrap_or_default() * 64)
            }
            Some('x') => self.digits(16, 2),
            Some('u') => self.digits(16, 4),
            Some('U') => self.digits(16, 8),
            _ => None,
        };
        code.and_then(char::from_u32).ok_or_else(|| {
            Fault::new(start..self.cursor.position(), "invalid escape in a string")
                .help("write \\\\ for a backslash; known are \\n \\r \\t \\\" \\\\ and \\uXXXX")
        })
    }

    fn digits(&mut self, base: u32, count: usize) -> Option<u32> {
        let mut value: u32 = 0;
        for _ in 0..count {
            let digit = self.cursor.peek()?.to_digit(base)?;
            self.cursor.bump();
            value = value.checked_mul(base)?.checked_add(digit)?;
        }
        Some(value)
    }

    /// Reads `<<MARK` or `<<-MARK` up to the line that holds only the mark.
    ///
    /// Source: `hashicorp/hcl` v1.0.0, `hcl/token` (`unindentHeredoc`).
    fn heredoc(&mut self, start: usize) -> Result<Token<'a>, Fault> {
        self.cursor.eat("<<");
        let unindent = self.cursor.eat("-");
        let mark = self.cursor.take_while(|c| c.is_alphanumeric() || "_-.".contains(c));
        let opening = start..self.cursor.position();
        if mark.is_empty() || !self.cursor.take_line().is_empty() {
            return Err(Fault::new(
                opening,
                "a heredoc begins with <<MARK alone at the line's end",
            )
            .help("write the text on the lines below, and MARK alone on the last"));
        }
        let mut lines = Vec::new();
        loop {
            if self.cursor.peek().is_none() {
                return Err(Fault::new(opening, "the heredoc is not closed by its mark")
                    .help("the mark stands alone on the line below the text"));
            }
            let line = self.cursor.rest();
            let end = line.find('\n').unwrap_or(line.len());
            let line = line.get(..end).unwrap_or_default();
            let bare = line.trim_start();
            if bare.trim_end() == mark {
                let indent = line.get(..line.len() - bare.len()).unwrap_or_default();
                self.cursor.eat(line);
                return Ok(Token::Heredoc(join(&lines, if unindent { indent } else { "" })));
            }
            lines.push(self.cursor.take_line());
        }
    }
}

/// Joins lines, without `indent` if all of them that are not empty have it.
fn join(lines: &[&str], indent: &str) -> String {
    let all = lines.iter().all(|line| line.is_empty() || line.starts_with(indent));
    let mut text = String::new();
    for line in lines {
        text.push_str(if all { line.strip_prefix(indent).unwrap_or(line) } else { line });
        text.push('\n');
    }
    text
}
