//! Templates of prepared queries, filled in for a name.

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{testing::state::format::go_regexp_words, types::nullable};

/// A template by which a prepared query answers to many names.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub(in crate::testing) struct Template {
    #[serde(rename = "Type", deserialize_with = "nullable")]
    pub(in crate::testing) kind: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) regexp: String,
    #[serde(deserialize_with = "nullable")]
    pub(in crate::testing) remove_empty_tags: bool,
}

impl Template {
    pub(in crate::testing) fn is_set(&self) -> bool {
        !self.kind.is_empty()
    }

    /// Refuses a template that cannot be filled.
    pub(in crate::testing) fn check(&self, prefix: &str, service: &Value) -> Result<(), String> {
        match self.kind.as_str() {
            "" => Ok(()),
            "name_prefix_match" => self.fill(prefix, prefix, service).map(drop),
            other => Err(format!("Bad Template.Type '{other}'")),
        }
    }

    /// Fills every text of a query's lookup for a name that begins with the query's.
    pub(in crate::testing) fn fill(
        &self,
        prefix: &str,
        name: &str,
        service: &Value,
    ) -> Result<Value, String> {
        let bad = |error| format!("Bad Regexp: {}", go_regexp_words(&self.regexp, &error));
        let regexp = Regex::new(&self.regexp).map_err(bad)?;
        let found: Vec<&str> = if self.regexp.is_empty() {
            Vec::new()
        } else {
            let groups = regexp.captures(name);
            groups.iter().flat_map(regex::Captures::iter).map(text_of).collect()
        };
        let names = Names { prefix, name, found };
        names.fill_all("Service", service)
    }
}

pub(in crate::testing) fn text_of(group: Option<regex::Match<'_>>) -> &str {
    group.map_or("", |group| group.as_str())
}

/// The variables that can stand in a template.
pub(in crate::testing) struct Names<'a> {
    pub(in crate::testing) prefix: &'a str,
    pub(in crate::testing) name: &'a str,
    pub(in crate::testing) found: Vec<&'a str>,
}

impl Names<'_> {
    pub(in crate::testing) fn fill_all(&self, path: &str, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => Value::String(self.fill(path, text)?),
            Value::Array(items) => Value::Array(
                items
                    .iter()
                    .enumerate()
                    .map(|(at, item)| self.fill_all(&format!("{path}[{at}]"), item))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, item)| {
                        Ok((name.clone(), self.fill_all(&format!("{path}.{name}"), item)?))
                    })
                    .collect::<Result<_, String>>()?,
            ),
            other => other.clone(),
        })
    }

    pub(in crate::testing) fn fill(&self, path: &str, text: &str) -> Result<String, String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            // A second dollar makes the first one's meaning go.
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str("${");
                rest = after;
                continue;
            }
            let wrong = |problem: &str| {
                let column = text.len() - after.len() + 1;
                format!("Bad evaluation for '{text}' in {path}: 1:{column}: {problem}")
            };
            let (expression, after) =
                after.split_once('}').ok_or_else(|| wrong("expected closing brace"))?;
            filled.push_str(before);
            filled.push_str(&self.value(expression.trim()).map_err(|problem| wrong(&problem))?);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    pub(in crate::testing) fn value(&self, expression: &str) -> Result<String, String> {
        let suffix = || self.name.get(self.prefix.len()..).unwrap_or_default();
        let value = match expression {
            "name.full" => self.name,
            "name.prefix" => self.prefix,
            "name.suffix" => suffix(),
            "agent.segment" => "",
            other => {
                let group = other.strip_prefix("match(").and_then(|rest| rest.strip_suffix(')'));
                let group = group.and_then(|number| number.trim().parse::<usize>().ok());
                let group = group.ok_or_else(|| format!("unknown variable accessed: {other}"))?;
                self.found.get(group).copied().unwrap_or_default()
            }
        };
        Ok(value.to_owned())
    }
}
