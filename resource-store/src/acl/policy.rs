//! The policies of Consul, as far as resources need them: keys and operator.
//!
//! | in a policy | is read |
//! |---|---|
//! | `key "x" { policy = … }`, `key_prefix "x" { policy = … }` | yes |
//! | `operator = …` | yes |
//! | everything else that Consul knows | no |
//!
//! HCL, or JSON of the same shape. Consul reads HCL 1, where several items may be
//! on one line; HCL 2 is what the parser here reads, which wants a line for each.
//!
//! Source: `acl/policy.go`, `acl/policy_merger.go`, `acl/policy_authorizer.go`,
//! Consul 1.19.

use hcl_edit::{expr::Expression, structure::Body};
use serde_json::Value;

use super::{Access, StaticRules};

/// A policy cannot be read: a token that has it may do nothing.
#[derive(Debug, thiserror::Error)]
#[error("the policy {policy:?} cannot be read: {problem}")]
pub struct PolicyError {
    policy: String,
    problem: String,
}

impl StaticRules {
    /// Adds the rules of a policy; `name` is what errors call it.
    ///
    /// Where several policies speak of the same key, `deny` counts before
    /// `write`, `list` and `read`, as in Consul.
    ///
    /// # Errors
    ///
    /// If the text is neither HCL nor JSON, or a rule has no access that Consul
    /// knows. Nothing was added then.
    pub fn with_policy(mut self, name: &str, text: &str) -> Result<Self, PolicyError> {
        let failed = |problem: String| PolicyError { policy: name.to_owned(), problem };
        let rules = if text.trim_start().starts_with('{') { json(text) } else { hcl(text) };
        for Rule { subject, access } in rules.map_err(failed)? {
            let access = access_of(&access).map_err(failed)?;
            match subject {
                Subject::Operator => merge(&mut self.operator, access),
                Subject::Key(key) => merge(self.exact.entry(key).or_default(), access),
                Subject::KeyPrefix(prefix) => {
                    let known = self.keys.get(&prefix).copied();
                    let mut merged = known;
                    merge(&mut merged, access);
                    self.keys.extend(merged.map(|access| (prefix, access)));
                }
            }
        }
        Ok(self)
    }
}

fn merge(known: &mut Option<Access>, access: Access) {
    let rank = |access: Access| match access {
        Access::Read => 0,
        Access::List => 1,
        Access::Write => 2,
        Access::Deny => 3,
    };
    if known.is_none_or(|known| rank(access) > rank(known)) {
        *known = Some(access);
    }
}

struct Rule {
    subject: Subject,
    access: String,
}

enum Subject {
    Operator,
    Key(String),
    KeyPrefix(String),
}

impl Subject {
    fn of(kind: &str, name: &str) -> Option<Self> {
        match kind {
            "key" => Some(Self::Key(name.to_owned())),
            "key_prefix" => Some(Self::KeyPrefix(name.to_owned())),
            _ => None,
        }
    }
}

fn access_of(text: &str) -> Result<Access, String> {
    match text {
        "deny" => Ok(Access::Deny),
        "read" => Ok(Access::Read),
        "list" => Ok(Access::List),
        "write" => Ok(Access::Write),
        other => Err(format!("{other:?} is none of deny, read, list and write")),
    }
}

fn hcl(text: &str) -> Result<Vec<Rule>, String> {
    let parse = hcl_edit::parser::parse_body;
    // Errors name places of the text as it was written.
    let parsed =
        parse(text).or_else(|error| parse(&item_per_line(text)).map_err(|_elsewhere| error));
    let body = parsed.map_err(|error| {
        let place = error.location();
        format!("line {}, column {}: {}", place.line(), place.column(), error.message())
    })?;
    let mut rules = Vec::new();
    if let Some(operator) = body.get_attribute("operator") {
        rules.push(Rule { subject: Subject::Operator, access: literal(&operator.value)? });
    }
    for block in body.blocks() {
        let name = block.labels.first().map(|label| label.as_str().to_owned());
        let Some(subject) = Subject::of(block.ident.as_str(), &name.unwrap_or_default()) else {
            continue;
        };
        rules.push(Rule { subject, access: policy_of(&block.body)? });
    }
    Ok(rules)
}

/// Puts each item of a text in HCL 1 on a line of its own, as HCL 2 wants it.
fn item_per_line(text: &str) -> String {
    let mut lines = String::with_capacity(text.len() * 2);
    // Whether a value comes next, and how deep in lists and objects of a value it is.
    let (mut value, mut depth) = (false, 0_usize);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(token_length(rest, first));
        rest = after;
        let comment = token.len() > 1 && (first == '/' || first == '#');
        match first {
            _ if comment => lines.push(' '),
            // A line may end within an item, between its key and its value, too.
            '\n' if depth == 0 => lines.push(' '),
            _ if first.is_whitespace() => lines.push(first),
            '{' if !value => lines.push_str("{\n"),
            '}' if depth == 0 => lines.push_str("\n}\n"),
            ',' if depth == 0 => lines.push('\n'),
            _ => {
                lines.push_str(token);
                match first {
                    '{' | '[' => depth += 1,
                    '}' | ']' => depth = depth.saturating_sub(1),
                    '=' => value = true,
                    _ => {}
                }
                if value && first != '=' && depth == 0 {
                    lines.push('\n');
                    value = false;
                }
            }
        }
    }
    lines
}

/// Number of bytes of the token that a text begins with, `first` being its first character.
fn token_length(text: &str, first: char) -> usize {
    let up_to = |end: Option<usize>| end.unwrap_or(text.len());
    match first {
        '"' => {
            let mut escaped = false;
            let end = text.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            up_to(end.map(|(at, _)| at + 1))
        }
        '#' => up_to(text.find('\n')),
        '/' if text.starts_with("//") => up_to(text.find('\n')),
        '/' if text.starts_with("/*") => up_to(text.find("*/").map(|at| at + 2)),
        c if c.is_alphanumeric() => {
            up_to(text.find(|c: char| !c.is_alphanumeric() && !"_-.".contains(c)))
        }
        c => c.len_utf8(),
    }
}

fn policy_of(body: &Body) -> Result<String, String> {
    let policy = body.get_attribute("policy");
    policy.map_or_else(|| Err("a rule without a policy".to_owned()), |a| literal(&a.value))
}

fn literal(expression: &Expression) -> Result<String, String> {
    expression.as_str().map(str::to_owned).ok_or_else(|| "an access is no string".to_owned())
}

fn json(text: &str) -> Result<Vec<Rule>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut rules = Vec::new();
    if let Some(operator) = value.get("operator") {
        rules.push(Rule { subject: Subject::Operator, access: string(operator)? });
    }
    for kind in ["key", "key_prefix"] {
        // HCL's JSON has an object by name, or a list of such objects.
        let found = match value.get(kind) {
            None => continue,
            Some(Value::Array(several)) => several.iter().collect(),
            Some(one) => vec![one],
        };
        for named in found {
            let named = named.as_object().ok_or_else(|| format!("{kind} is no object"))?;
            for (name, rule) in named {
                let policy = rule.get("policy").ok_or("a rule without a policy")?;
                let Some(subject) = Subject::of(kind, name) else { continue };
                rules.push(Rule { subject, access: string(policy)? });
            }
        }
    }
    Ok(rules)
}

fn string(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "an access is no string".to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::acl::Authorizer as _;

    fn rules(policies: &[&str]) -> StaticRules {
        let add = |rules: StaticRules, text: &&str| rules.with_policy("p", text).unwrap();
        policies.iter().fold(StaticRules::none("a"), add)
    }

    const HCL: &str = r#"
        # What CI may do.
        operator = "read"
        key "resource/demo.v2.Artist" { policy = "list" }
        key_prefix "resource/demo.v2.Artist/" {
          policy = "write"
        }
        service_prefix "" {
          policy     = "read"
          intentions = "write"
        }
    "#;
    const HCL_ON_ONE_LINE: &str = r#"operator="read" key "resource/demo.v2.Artist" { policy = "list" },
        service_prefix "a \" } b" { policy = "read" intentions = "write", } /* } */ key_prefix // {
        "resource/demo.v2.Artist/" { policy = # }
        "write" } tags = ["a", { b = 1 }] // }"#;
    const JSON: &str = r#"{
        "operator": "read",
        "key": {"resource/demo.v2.Artist": {"policy": "list"}},
        "key_prefix": [{"resource/demo.v2.Artist/": {"policy": "write"}}],
        "service_prefix": {"": {"policy": "read"}}
    }"#;

    #[test]
    fn rules_in_hcl_and_json_are_the_same() {
        for text in [HCL, HCL_ON_ONE_LINE, JSON] {
            let rules = rules(&[text]);
            assert!(rules.operator_read().is_ok() && rules.operator_write().is_err());
            assert!(rules.key_list("resource/demo.v2.Artist").is_ok());
            assert!(rules.key_write("resource/demo.v2.Artist").is_err(), "the key itself");
            assert!(rules.key_write("resource/demo.v2.Artist/korn").is_ok());
            assert!(rules.key_read("resource/demo.v2.Album/issues").is_err());
        }
    }

    #[test]
    fn a_denial_wins_over_other_policies() {
        let write = r#"key_prefix "a" { policy = "write" }"#;
        let deny = r#"key_prefix "a" { policy = "deny" }"#;
        let read = r#"key_prefix "a" { policy = "read" }"#;
        for both in [[write, deny], [deny, write]] {
            assert!(rules(&both).key_read("a").is_err());
        }
        for both in [[write, read], [read, write]] {
            assert!(rules(&both).key_write("a").is_ok());
        }
    }

    #[test]
    fn what_no_rule_covers_is_as_the_default_says() {
        let rules = rules(&[r#"key_prefix "a" { policy = "deny" }"#]).with_default(Access::Write);
        assert!(rules.key_write("b").is_ok() && rules.operator_write().is_ok());
        assert!(rules.key_read("ab").is_err());
    }

    #[test]
    fn a_policy_that_cannot_be_read_is_an_error_that_names_it() {
        for text in [
            "key_prefix",
            r#"key "a" {}"#,
            r#"operator = "all""#,
            "{",
            r#"key "a" { policy = "read" } operator = "all""#,
            r#"key "a" { policy = "read" } }"#,
            r#"{"key": 1}"#,
            r#"{"operator": 1}"#,
        ] {
            let error = StaticRules::none("a").with_policy("ops", text).unwrap_err().to_string();
            assert!(error.starts_with("the policy \"ops\" cannot be read: "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_policy_panics(text in ".{0,80}", cut in 0_usize..300, byte in any::<char>()) {
            drop(StaticRules::none("a").with_policy("p", &text));
            for whole in [HCL, HCL_ON_ONE_LINE] {
                let broken: String = whole.chars().take(cut).chain([byte]).collect();
                drop(StaticRules::none("a").with_policy("p", &broken));
            }
        }
    }
}
