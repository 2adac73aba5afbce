//! Parser of the templates that provider blocks may hold.

use std::collections::BTreeSet;

use cts_tasks::config::Dynamic;
use secrecy::ExposeSecret as _;

use super::{Reference, Values};

/// A text with places for values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Value(Reference),
}

impl Template {
    /// The template, if the text is one.
    ///
    /// Deviation: of the template language upstream runs, only what the
    /// documentation shows is known; anything else is refused instead of taken
    /// for text.
    ///
    /// # Errors
    ///
    /// What is wrong with it. Text around the actions, which may be secret, is
    /// not repeated.
    pub(super) fn parse(text: &str) -> Option<Result<Self, String>> {
        Dynamic::detect(text).map(|_| Parser::new(text).parse())
    }

    pub(super) fn references(&self) -> BTreeSet<Reference> {
        let references = self.0.iter().filter_map(|part| match part {
            Part::Value(reference) => Some(reference.clone()),
            Part::Text(_) => None,
        });
        references.collect()
    }

    /// The text with its values in place; one that is not there is empty.
    pub(super) fn fill(&self, values: &Values) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Value(reference) => {
                    text.push_str(values.get(reference).map_or("", |value| value.expose_secret()));
                }
            }
        }
        text
    }
}

#[derive(Default)]
struct Parser<'a> {
    rest: &'a str,
    parts: Vec<Part>,
    /// The secret whose fields may be named.
    secret: Option<String>,
    trim_next: bool,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text, ..Self::default() }
    }

    fn parse(mut self) -> Result<Template, String> {
        while let Some((before, after)) = self.rest.split_once("{{") {
            let (action, rest) = split_action(after).ok_or("an action is not closed by }}")?;
            let (action, trim_before) = match action.strip_prefix('-') {
                Some(action) => (action, true),
                None => (action, false),
            };
            let (action, trim_after) = match action.strip_suffix('-') {
                Some(action) => (action, true),
                None => (action, false),
            };
            self.text(before, trim_before);
            self.action(action.trim())?;
            self.trim_next = trim_after;
            self.rest = rest;
        }
        if self.secret.is_some() {
            return Err("{{ with secret … }} is not closed by {{ end }}".to_owned());
        }
        let rest = self.rest;
        self.text(rest, false);
        Ok(Template(self.parts))
    }

    fn text(&mut self, text: &str, trim_end: bool) {
        let text = if self.trim_next { text.trim_start() } else { text };
        let text = if trim_end { text.trim_end() } else { text };
        if !text.is_empty() {
            self.parts.push(Part::Text(text.to_owned()));
        }
    }

    fn action(&mut self, action: &str) -> Result<(), String> {
        let refused = || {
            format!(
                "{{{{ {action} }}}} is not known; known are env \"NAME\", key \"path\" and with \
                 secret \"path\" with fields such as .Data.data.name and an end"
            )
        };
        if action == "end" {
            return self.secret.take().map(|_| ()).ok_or_else(refused);
        }
        if let Some(field) = action.strip_prefix(".Data.") {
            let path = self.secret.clone().ok_or_else(refused)?;
            let field: Vec<_> = field.split('.').map(str::to_owned).collect();
            let is_name = |name: &String| {
                !name.is_empty() && name.chars().all(|c| c == '_' || c.is_alphanumeric())
            };
            if !field.iter().all(is_name) {
                return Err(refused());
            }
            self.parts.push(Part::Value(Reference::Secret { path, field }));
            return Ok(());
        }
        if let Some(argument) = action.strip_prefix("with secret ") {
            if self.secret.is_some() {
                return Err("a secret stands inside another".to_owned());
            }
            let path = string(argument).ok_or_else(refused)?;
            self.secret = Some(path.trim_matches('/').to_owned());
            return Ok(());
        }
        let (function, argument) = action.split_once(char::is_whitespace).ok_or_else(refused)?;
        let argument = string(argument).ok_or_else(refused)?;
        let reference = match function {
            "env" => Reference::Environment { name: argument },
            "key" => Reference::ConsulKey { path: argument.trim_start_matches('/').to_owned() },
            _ => return Err(refused()),
        };
        self.parts.push(Part::Value(reference));
        Ok(())
    }
}

/// Splits at the end of the action, which is not one inside a string. Where
/// quotes are escaped, strings are not recognised, and the first end counts.
fn split_action(text: &str) -> Option<(&str, &str)> {
    outside_strings(text).or_else(|| text.split_once("}}"))
}

fn outside_strings(text: &str) -> Option<(&str, &str)> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '}' if !quoted => {
                if let Some(rest) = text.get(at..).and_then(|rest| rest.strip_prefix("}}")) {
                    return Some((text.get(..at)?, rest));
                }
            }
            _ => {}
        }
    }
    None
}

/// The content of a string that is all there is. In some configuration files
/// its quotes are still escaped.
fn string(argument: &str) -> Option<String> {
    let argument = argument.trim();
    let inner = match argument.strip_prefix("\\\"").and_then(|rest| rest.strip_suffix("\\\"")) {
        Some(inner) => inner,
        None => argument.strip_prefix('"')?.strip_suffix('"')?,
    };
    let mut text = String::new();
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        match character {
            '"' => return None,
            '\\' => match characters.next()? {
                escaped @ ('"' | '\\') => text.push(escaped),
                _ => return None,
            },
            _ => text.push(character),
        }
    }
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::{Reference, Template, Values};

    fn values() -> Values {
        let secret = |field: &[&str]| Reference::Secret {
            path: "kv/a".into(),
            field: field.iter().map(|name| (*name).to_owned()).collect(),
        };
        Values::from([
            (Reference::Environment { name: "A".into() }, "from env".into()),
            (Reference::ConsulKey { path: "a/b".into() }, "from key".into()),
            (secret(&["data", "user"]), "root".into()),
            (secret(&["data", "password"]), "{{ env \"A\" }}".into()),
        ])
    }

    fn filled(text: &str) -> Result<String, String> {
        Template::parse(text).unwrap().map(|template| template.fill(&values()))
    }

    #[test]
    fn each_kind_is_replaced_and_text_around_it_stays() {
        for (text, expected) in [
            (r#"{{ env "A" }}"#, "from env"),
            (r#"{{env "A"}}"#, "from env"),
            (r#"{{ env \"A\" }}"#, "from env"),
            (r#"<{{ key "/a/b" }}-{{ env "A" }}>"#, "<from key-from env>"),
            (r#"{{ with secret "kv/a" }}{{ .Data.data.user }}{{ end }}"#, "root"),
            (
                r#"{{ with secret "kv/a" }} {{- .Data.data.user -}} :{{ .Data.data.user }} {{- end }} x"#,
                "root:root x",
            ),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_value_that_looks_like_a_template_is_only_a_value() {
        let text = r#"{{ with secret "kv/a" }}{{ .Data.data.password }}{{ end }}"#;
        assert_eq!(filled(text).unwrap(), "{{ env \"A\" }}");
    }

    #[test]
    fn what_is_no_template_is_left_alone() {
        for text in ["", "plain", "{{ }}", "{{ other \"x\" }}", "${env.A}"] {
            assert!(Template::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused_without_the_text_around_it() {
        for text in [
            r#"s3cret {{ env "A" | toUpper "x" }}"#,
            r#"s3cret {{ env "A" }}{{ .Data.x }}"#,
            r#"s3cret {{ with secret "kv/a" }}{{ .Data.data.user }}"#,
            r#"s3cret {{ with secret "kv/a" }}{{ .Data..x }}{{ end }}"#,
            r#"s3cret {{ with secret "kv/a" "ttl=1h" }}{{ end }}"#,
            r#"s3cret {{ env "A" }}{{ end }}"#,
            r#"s3cret {{ env "A" }}{{ if true }}"#,
        ] {
            let problem = filled(text).unwrap_err();
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn the_same_reference_is_asked_for_once() {
        let text = r#"{{ env "A" }}{{ env "A" }}{{ key "b" }}"#;
        assert_eq!(Template::parse(text).unwrap().unwrap().references().len(), 2);
    }
}
