//! HCL 1, as far as the rules of a policy need it, read into the shape that
//! the same rules have in JSON: a block is a list of objects.

use serde_json::{Map, Value};

/// Deepest nesting; each level takes space on the stack.
const DEPTH: usize = 32;

/// Reads rules in HCL or, when they begin with a brace, in JSON.
pub(super) fn read(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| error.to_string());
    }
    let mut reader = Reader { text, at: 0, depth: 0 };
    let found = reader.items(false);
    found.map_err(|problem| {
        let before = text.get(..reader.at.min(text.len())).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        // The end counts as one character more.
        let end = usize::from(reader.at >= text.len());
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1 + end;
        format!("At {line}:{column}: {problem}")
    })
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Goes past space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            let end = if trimmed.starts_with('#') || trimmed.starts_with("//") {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if trimmed.starts_with("/*") {
                trimmed.find("*/").map_or(trimmed.len(), |end| end + 2)
            } else {
                self.at += rest.len() - trimmed.len();
                return;
            };
            self.at += rest.len() - trimmed.len() + end;
        }
    }

    fn items(&mut self, nested: bool) -> Result<Map<String, Value>, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("blocks nest at most {DEPTH} deep"));
        }
        let mut items = Map::new();
        loop {
            self.skip();
            match self.peek() {
                None if nested => return Err("object expected closing RBRACE got: EOF".to_owned()),
                None => break,
                Some('}') if nested => {
                    self.at += 1;
                    break;
                }
                Some(',') => {
                    self.at += 1;
                    continue;
                }
                Some(_) => {}
            }
            let (key, value) = self.item()?;
            add(&mut items, key, value);
        }
        self.depth -= 1;
        Ok(items)
    }

    fn item(&mut self) -> Result<(String, Value), String> {
        let mut keys = vec![self.key()?];
        loop {
            self.skip();
            match self.peek() {
                Some('=') if keys.len() > 1 => {
                    return Err("nested object expected: LBRACE got: ASSIGN".to_owned());
                }
                Some('=') => {
                    self.at += 1;
                    let value = self.value()?;
                    return Ok((keys.remove(0), value));
                }
                Some('{') => {
                    self.at += 1;
                    let mut value = Value::Array(vec![Value::Object(self.items(true)?)]);
                    while keys.len() > 1
                        && let Some(key) = keys.pop()
                    {
                        let outer = Map::from_iter([(key, value)]);
                        value = Value::Array(vec![Value::Object(outer)]);
                    }
                    return Ok((keys.remove(0), value));
                }
                Some(_) => keys.push(self.key()?),
                None => return Err("expected '=' or '{' after a key, got: EOF".to_owned()),
            }
        }
    }

    fn key(&mut self) -> Result<String, String> {
        match self.peek() {
            Some('"') => self.string(),
            Some(c) if c.is_alphanumeric() || c == '_' => Ok(self.word()),
            Some(c) => Err(format!("unexpected {c:?}, a key was expected")),
            None => Err("a key was expected, got: EOF".to_owned()),
        }
    }

    fn word(&mut self) -> String {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')))
            .unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default().to_owned();
        self.at += end;
        word
    }

    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest();
        let mut escaped = false;
        for (at, c) in rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                '\\' if !escaped => escaped = true,
                '"' if !escaped => {
                    let text = rest.get(..=at).unwrap_or_default();
                    let read = serde_json::from_str(text)
                        .map_err(|_bad| format!("{text} is not a string literal"))?;
                    self.at += at + 1;
                    return Ok(read);
                }
                _ => escaped = false,
            }
        }
        Err("literal not terminated".to_owned())
    }

    fn value(&mut self) -> Result<Value, String> {
        self.skip();
        match self.peek() {
            Some('"') => self.string().map(Value::String),
            Some('{') => {
                self.at += 1;
                Ok(Value::Array(vec![Value::Object(self.items(true)?)]))
            }
            Some('[') => self.list(),
            Some('<') => self.heredoc(),
            Some(c) if c.is_alphanumeric() || c == '-' => {
                let word = self.word();
                match word.as_str() {
                    "true" => Ok(Value::Bool(true)),
                    "false" => Ok(Value::Bool(false)),
                    _ => {
                        serde_json::from_str(&word).map_err(|_bad| format!("unknown value: {word}"))
                    }
                }
            }
            _ => Err("a value was expected".to_owned()),
        }
    }

    fn list(&mut self) -> Result<Value, String> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(format!("lists nest at most {DEPTH} deep"));
        }
        let mut list = Vec::new();
        loop {
            self.skip();
            match self.peek() {
                Some(']') => {
                    self.at += 1;
                    self.depth -= 1;
                    return Ok(Value::Array(list));
                }
                Some(',') => self.at += 1,
                Some(_) => list.push(self.value()?),
                None => return Err("a list without its end".to_owned()),
            }
        }
    }

    fn heredoc(&mut self) -> Result<Value, String> {
        let rest = self.rest();
        let (head, body) = rest.split_once('\n').ok_or("a heredoc without its end")?;
        let marker = head.trim_start_matches(['<', '-']).trim();
        let mut text = String::new();
        let mut used = head.len() + 1;
        for line in body.split_inclusive('\n') {
            used += line.len();
            if line.trim() == marker {
                self.at += used;
                return Ok(Value::String(text));
            }
            text.push_str(line);
        }
        Err("a heredoc without its end".to_owned())
    }
}

/// Blocks of the same name add up; of plain values the last one holds.
fn add(items: &mut Map<String, Value>, key: String, value: Value) {
    match (items.get_mut(&key), value) {
        (Some(Value::Array(have)), Value::Array(mut more)) => have.append(&mut more),
        (_, value) => {
            items.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn both_languages_are_read() {
        let text = "\"key\" \"a\" { policy = \"read\" }, # c\nacl = \"read\" // d\n\
                    key \"b\" { policy = \"w\\\"\" x = [1, true] } /* e */ t = <<E\nx\nE\n";
        let found = Value::Object(read(text).unwrap());
        assert_eq!(
            found,
            json!({
                "key": [
                    { "a": [{ "policy": "read" }] },
                    { "b": [{ "policy": "w\"", "x": [1, true] }] },
                ],
                "acl": "read", "t": "x\n",
            })
        );
        assert_eq!(Value::Object(read(r#"{"acl":"write"}"#).unwrap()), json!({ "acl": "write" }));
    }

    #[test]
    fn errors_say_where() {
        for (text, error) in [
            ("key \"a\" {", "At 1:11: object expected closing RBRACE got: EOF"),
            (
                "key_prefix \"\" { policy = \"list\" } key \"b\" = { policy=\"deny\" }",
                "At 1:43: nested object expected: LBRACE got: ASSIGN",
            ),
            ("key \"a\n\" {}", "At 1:5: literal not terminated"),
        ] {
            assert_eq!(read(text).unwrap_err(), error);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\n]{0,60}") {
            drop(read(&text));
        }

        #[test]
        fn rules_that_are_cut_are_read_or_refused(cut in 0usize..70, extra in "[{}\"=,a]{0,3}") {
            let whole = "key \"a\" { policy = \"read\" } acl = \"x\" l = [1, [2]] h = <<E\nx\nE\n";
            let mut text = whole.get(..cut.min(whole.len())).unwrap_or_default().to_owned();
            text.push_str(&extra);
            drop(read(&text));
        }
    }
}
