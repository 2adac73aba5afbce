//! A lenient reader of HCL version 1.
//!
//! Source: `hashicorp/hcl` v1.0.0, `hcl/scanner` and `hcl/parser`.

mod lexer;
mod number;

use std::{ops::Range, sync::Arc};

use lexer::{Lexer, Token};

use super::{
    cursor::{Fault, MAX_DEPTH},
    mask::is_known,
    value::{ConfigValue, Entry, ValueKind},
};
use crate::{Diagnostic, Place, Source};

/// Reads a whole file as one object: its entries in order, with their places.
///
/// # Errors
///
/// The first place where the text is not HCL.
pub(super) fn parse(source: &Arc<Source>) -> Result<ConfigValue, Diagnostic> {
    Parser::new(source)
        .and_then(|mut parser| parser.file())
        .map_err(|fault| fault.into_diagnostic(source))
}

struct Parser<'a> {
    source: &'a Arc<Source>,
    lexer: Lexer<'a>,
    token: Token<'a>,
    range: Range<usize>,
}

/// A word before `=` or `{`.
struct Key {
    text: String,
    range: Range<usize>,
}

impl<'a> Parser<'a> {
    fn new(source: &'a Arc<Source>) -> Result<Self, Fault> {
        let mut lexer = Lexer::new(&source.text);
        let (token, range) = lexer.next_token()?;
        Ok(Self { source, lexer, token, range })
    }

    /// Moves to the next token, and gives the one before it.
    fn advance(&mut self) -> Result<(Token<'a>, Range<usize>), Fault> {
        let (token, range) = self.lexer.next_token()?;
        Ok((std::mem::replace(&mut self.token, token), std::mem::replace(&mut self.range, range)))
    }

    fn place(&self, range: Range<usize>) -> Place {
        Place::new(Arc::clone(self.source), range)
    }

    fn value(&self, kind: ValueKind, range: Range<usize>) -> ConfigValue {
        ConfigValue { kind, place: Some(self.place(range)) }
    }

    fn unexpected(&self, expected: &str) -> Fault {
        Fault::new(
            self.range.clone(),
            format!("expected {expected}, found {}", self.token.describe()),
        )
    }

    fn file(&mut self) -> Result<ConfigValue, Fault> {
        let entries = self.entries(&Token::End, 0)?;
        Ok(self.value(ValueKind::Object(entries), 0..self.source.text.len()))
    }

    /// Reads entries up to `end`, which stays the current token.
    fn entries(&mut self, end: &Token<'a>, depth: usize) -> Result<Vec<Entry>, Fault> {
        let mut entries = Vec::new();
        while self.token != *end {
            if self.token == Token::Comma && !entries.is_empty() && *end != Token::End {
                self.advance()?;
                continue;
            }
            entries.push(self.entry(end, depth)?);
        }
        Ok(entries)
    }

    fn entry(&mut self, end: &Token<'a>, depth: usize) -> Result<Entry, Fault> {
        let key = self.key(end)?;
        let mut labels = Vec::new();
        let mut last = key.range.clone();
        while matches!(self.token, Token::Word(_) | Token::String(_)) {
            let label = self.key(end)?;
            last.clone_from(&label.range);
            labels.push(label.text);
        }
        let block = match &self.token {
            Token::OpenBrace => true,
            Token::Equals if labels.is_empty() => false,
            Token::Equals => {
                return Err(self.unexpected("\"{\" after a label").help(
                    "a label belongs to a block, as in: key \"label\" { … }; an attribute has one key",
                ));
            }
            Token::Colon => {
                return Err(self
                    .unexpected("\"=\" or \"{\"")
                    .help("HCL writes key = value; a file in JSON needs the extension .json"));
            }
            _ => {
                // What is no key of the schema may be a part of a secret.
                let key = if is_known(&key.text) {
                    format!("key \"{}\"", key.text)
                } else {
                    "the key".to_owned()
                };
                return Err(Fault::new(
                    last,
                    format!("{key} has no value: expected \"=\" or \"{{\""),
                )
                .help("write key = value for an attribute, or key { … } for a block"));
            }
        };
        if !block {
            self.advance()?;
        }
        let value = self.expression(depth)?;
        Ok(Entry { key: key.text, key_place: Some(self.place(key.range)), labels, block, value })
    }

    fn key(&mut self, end: &Token<'a>) -> Result<Key, Fault> {
        match self.token {
            Token::Word(_) | Token::String(_) => {}
            Token::End if *end == Token::CloseBrace => {
                return Err(self.unexpected("\"}\"").help("a block or an object is not closed"));
            }
            Token::CloseBrace => {
                return Err(self.unexpected("a key").help("there is no open block to close"));
            }
            Token::OpenBrace if *end == Token::End => {
                return Err(self.unexpected("a key").help(
                    "a block begins with its name; a file in JSON needs the extension .json",
                ));
            }
            _ => return Err(self.unexpected("a key")),
        }
        let (token, range) = self.advance()?;
        let text = match token {
            Token::Word(word) => word.to_owned(),
            Token::String(text) => text,
            _ => String::new(),
        };
        Ok(Key { text, range })
    }

    fn expression(&mut self, depth: usize) -> Result<ConfigValue, Fault> {
        if depth >= MAX_DEPTH {
            return Err(Fault::too_deep(self.range.clone()));
        }
        match &self.token {
            Token::OpenBrace => self.object(depth),
            Token::OpenBracket => self.list(depth),
            Token::Word("true" | "false")
            | Token::String(_)
            | Token::Heredoc(_)
            | Token::Number(_) => self.scalar(),
            Token::Word(_) => Err(self
                .unexpected("a value")
                .help("put quotes around strings; there are no variables or functions here")),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn scalar(&mut self) -> Result<ConfigValue, Fault> {
        let (token, range) = self.advance()?;
        let kind = match token {
            Token::Word(word) => ValueKind::Bool(word == "true"),
            Token::Number(number) => ValueKind::Number(number),
            Token::String(text) | Token::Heredoc(text) => ValueKind::String(text),
            _ => ValueKind::Null,
        };
        Ok(self.value(kind, range))
    }

    fn object(&mut self, depth: usize) -> Result<ConfigValue, Fault> {
        let start = self.range.start;
        self.advance()?;
        let entries = self.entries(&Token::CloseBrace, depth + 1)?;
        let (_brace, range) = self.advance()?;
        Ok(self.value(ValueKind::Object(entries), start..range.end))
    }

    fn list(&mut self, depth: usize) -> Result<ConfigValue, Fault> {
        let start = self.range.start;
        self.advance()?;
        let mut items = Vec::new();
        while self.token != Token::CloseBracket {
            if self.token == Token::End {
                return Err(self.unexpected("\"]\"").help("a list is not closed"));
            }
            items.push(self.expression(depth + 1)?);
            match self.token {
                Token::Comma => {
                    self.advance()?;
                }
                Token::CloseBracket => {}
                _ => {
                    return Err(self
                        .unexpected("\",\" or \"]\"")
                        .help("items of a list are separated by commas"));
                }
            }
        }
        let (_bracket, range) = self.advance()?;
        Ok(self.value(ValueKind::List(items), start..range.end))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::Literal;

    fn print(literal: &Literal, text: &mut String) {
        match literal {
            Literal::List(items) => {
                text.push('[');
                for item in items {
                    print(item, text);
                    text.push(',');
                }
                text.push(']');
            }
            Literal::Map(members) => {
                text.push('{');
                for (key, value) in members {
                    write!(text, "{} = ", Literal::from(key.as_str()).to_expression()).unwrap();
                    print(value, text);
                    text.push('\n');
                }
                text.push('}');
            }
            scalar => text.push_str(&scalar.to_expression()),
        }
    }

    fn literal() -> impl Strategy<Value = Literal> {
        // Interpolations stay as they are, so they are left out here.
        let text = any::<String>().prop_map(|text| text.replace(['$', '%'], ""));
        let leaf = prop_oneof![
            any::<bool>().prop_map(Literal::Bool),
            any::<i64>().prop_map(|number| Literal::Number(number.into())),
            text.clone().prop_map(Literal::String),
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Literal::List),
                prop::collection::btree_map(text.clone(), inner, 0..5).prop_map(Literal::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(literal in literal()) {
            let mut text = "value = ".to_owned();
            print(&literal, &mut text);
            let source = Arc::new(Source { path: "x.hcl".into(), text });
            let Literal::Map(mut read) = parse(&source).unwrap().to_literal() else {
                panic!("no object")
            };
            prop_assert_eq!(read.remove("value"), Some(literal));
        }
    }
}
