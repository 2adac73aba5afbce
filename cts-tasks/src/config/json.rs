//! A strict reader of JSON that keeps places.

use std::{ops::Range, sync::Arc};

use super::{
    cursor::{Cursor, Fault, MAX_DEPTH, describe},
    mask::is_known,
    value::{ConfigValue, Entry, ValueKind},
};
use crate::{Diagnostic, Place, Source};

/// Reads a whole file as one value.
///
/// # Errors
///
/// The first place where the text is not JSON.
pub(super) fn parse(source: &Arc<Source>) -> Result<ConfigValue, Diagnostic> {
    Parser { source, cursor: Cursor::new(&source.text) }
        .file()
        .map_err(|fault| fault.into_diagnostic(source))
}

struct Parser<'a> {
    source: &'a Arc<Source>,
    cursor: Cursor<'a>,
}

impl Parser<'_> {
    fn file(&mut self) -> Result<ConfigValue, Fault> {
        self.cursor.eat("\u{feff}");
        let value = self.value(0)?;
        self.skip_space();
        match self.cursor.peek() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("the end of the file")),
        }
    }

    fn skip_space(&mut self) {
        self.cursor.take_while(|c| matches!(c, ' ' | '\t' | '\r' | '\n'));
    }

    fn unexpected(&self, expected: &str) -> Fault {
        let start = self.cursor.position();
        let next = self.cursor.peek();
        let end = start + next.map_or(0, char::len_utf8);
        let fault =
            Fault::new(start..end, format!("expected {expected}, found {}", describe(next)));
        match next {
            Some('#' | '/') => fault.help("JSON has no comments"),
            Some('\'') => fault.help("strings stand in double quotes"),
            Some('=') => {
                fault.help("JSON writes \"key\": value; a file in HCL needs the extension .hcl")
            }
            _ => fault,
        }
    }

    fn place(&self, start: usize) -> Place {
        Place::new(Arc::clone(self.source), start..self.cursor.position())
    }

    fn value(&mut self, depth: usize) -> Result<ConfigValue, Fault> {
        self.skip_space();
        let start = self.cursor.position();
        if depth > MAX_DEPTH {
            return Err(Fault::too_deep(start..start + 1));
        }
        let kind = match self.cursor.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => self.list(depth)?,
            Some('"') => ValueKind::String(self.string()?),
            Some(c) if c == '-' || c.is_ascii_digit() => self.number(start)?,
            _ => self.word(start)?,
        };
        Ok(ConfigValue { kind, place: Some(self.place(start)) })
    }

    fn word(&mut self, start: usize) -> Result<ValueKind, Fault> {
        let mut ahead = self.cursor.clone();
        match ahead.take_while(char::is_alphanumeric) {
            "" => return Err(self.unexpected("a value")),
            "true" | "false" | "null" => {}
            word => {
                return Err(Fault::new(
                    start..ahead.position(),
                    if is_known(word) {
                        format!("expected a value, found \"{word}\"")
                    } else {
                        "expected a value, found a word without quotes".to_owned()
                    },
                )
                .help("put quotes around strings"));
            }
        }
        self.cursor = ahead;
        Ok(match self.cursor.since(start) {
            "null" => ValueKind::Null,
            word => ValueKind::Bool(word == "true"),
        })
    }

    fn number(&mut self, start: usize) -> Result<ValueKind, Fault> {
        self.cursor.take_while(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
        let text = self.cursor.since(start);
        text.parse().map(ValueKind::Number).map_err(|_invalid| {
            Fault::new(start..self.cursor.position(), "invalid number")
                .help("put quotes around it if it is meant as a string")
        })
    }

    fn list(&mut self, depth: usize) -> Result<ValueKind, Fault> {
        self.cursor.bump();
        let mut items = Vec::new();
        self.skip_space();
        if self.cursor.eat("]") {
            return Ok(ValueKind::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.cursor.eat("]") {
                return Ok(ValueKind::List(items));
            }
            if !self.cursor.eat(",") {
                return Err(self.unexpected("\",\" or \"]\""));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<ValueKind, Fault> {
        self.cursor.bump();
        let mut entries = Vec::new();
        self.skip_space();
        if self.cursor.eat("}") {
            return Ok(ValueKind::Object(entries));
        }
        loop {
            entries.push(self.entry(depth)?);
            self.skip_space();
            if self.cursor.eat("}") {
                return Ok(ValueKind::Object(entries));
            }
            if !self.cursor.eat(",") {
                return Err(self.unexpected("\",\" or \"}\""));
            }
        }
    }

    fn entry(&mut self, depth: usize) -> Result<Entry, Fault> {
        self.skip_space();
        let start = self.cursor.position();
        if self.cursor.peek() != Some('"') {
            return Err(self.unexpected("a key in double quotes"));
        }
        let key = self.string()?;
        let key_place = Some(self.place(start));
        self.skip_space();
        if !self.cursor.eat(":") {
            return Err(self.unexpected("\":\""));
        }
        let value = self.value(depth + 1)?;
        Ok(Entry { key, key_place, labels: Vec::new(), block: false, value })
    }

    fn string(&mut self) -> Result<String, Fault> {
        let start = self.cursor.position();
        self.cursor.bump();
        let mut text = String::new();
        loop {
            let at = self.cursor.position();
            match self.cursor.bump() {
                Some('"') => return Ok(text),
                Some('\\') => text.push(self.escape(at)?),
                Some('\n' | '\r') | None => {
                    return Err(Fault::new(start..at, "the string is not closed on its line")
                        .help("close it with '\"'; write \\n for a line break"));
                }
                Some(c) if c < ' ' => {
                    return Err(Fault::new(
                        at..at + 1,
                        format!("unexpected {}", describe(Some(c))),
                    )
                    .help("write it as \\uXXXX"));
                }
                Some(c) => text.push(c),
            }
        }
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self, start: usize) -> Result<char, Fault> {
        let character = match self.cursor.bump() {
            Some(c @ ('"' | '\\' | '/')) => Some(c),
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('b') => Some('\u{8}'),
            Some('f') => Some('\u{c}'),
            Some('u') => self.unicode(),
            _ => None,
        };
        character.ok_or_else(|| {
            let range: Range<usize> = start..self.cursor.position();
            Fault::new(range, "invalid escape in a string")
                .help("write \\\\ for a backslash; known are \\n \\r \\t \\b \\f \\/ \\\" \\\\ and \\uXXXX")
        })
    }

    /// Reads four digits, and a second escape when they are half of a pair.
    fn unicode(&mut self) -> Option<char> {
        let first = self.four_digits()?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first);
        }
        if !self.cursor.eat("\\u") {
            return None;
        }
        let second = self.four_digits().filter(|code| (0xDC00..0xE000).contains(code))?;
        char::from_u32(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }

    fn four_digits(&mut self) -> Option<u32> {
        let mut value = 0;
        for _ in 0..4 {
            value = value * 16 + self.cursor.peek()?.to_digit(16)?;
            self.cursor.bump();
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::Value as Json;

    use super::*;
    use crate::Literal;

    fn read(text: &str) -> Result<Literal, Diagnostic> {
        let source = Arc::new(Source { path: "x.json".into(), text: text.to_owned() });
        parse(&source).map(|value| value.to_literal())
    }

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            any::<f64>().prop_map(Json::from),
            any::<String>().prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::from),
                prop::collection::btree_map(any::<String>(), inner, 0..5)
                    .prop_map(|members: BTreeMap<_, _>| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_another_library_writes_is_read(json in json()) {
            let expected = Literal::from(json.clone());
            prop_assert_eq!(&read(&json.to_string()).unwrap(), &expected);
            prop_assert_eq!(&read(&format!("{json:#}\n")).unwrap(), &expected);
        }

        #[test]
        fn what_another_library_refuses_is_refused(text in "[\\[\\]{}\",:0-9.eE+\\-tfn a-z\\\\/]{0,12}") {
            let theirs = serde_json::from_str::<Json>(&text).is_ok();
            let ours = read(&text).is_ok();
            // Numbers beyond the range of a float are numbers here.
            prop_assert!(ours == theirs || (ours && text.contains(['e', 'E'])), "{}", text);
        }
    }

    #[test]
    fn pairs_of_escapes_are_one_character() {
        assert_eq!(read(r#""\ud83d\ude00""#).unwrap(), Literal::from("\u{1F600}"));
        for text in [r#""\ud83d""#, r#""\ud83dx""#, r#""\ud83d\u0041""#, r#""\ude00""#, r#""\u12""#]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
