//! Flags as Go reads them: `-name value`, `-name=value`, with one dash or two.

use std::collections::BTreeMap;

/// A flag that a command knows, and whether it stands without a value.
pub(crate) type Known = (&'static str, bool);

/// Flags that every command knows.
pub(crate) const COMMON: [Known; 10] = [
    ("f", false),
    ("partition", false),
    ("namespace", false),
    ("stale", true),
    ("token", false),
    ("token-file", false),
    ("ca-file", false),
    ("ca-path", false),
    ("client-cert", false),
    ("client-key", false),
];

/// The arguments of a command. Its flags may stand before or after the
/// positional ones, which stand together.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    values: BTreeMap<&'static str, String>,
    /// Arguments that are no flags.
    pub(crate) positional: Vec<String>,
    /// `true` if flags follow the positional ones.
    pub(crate) flags_follow: bool,
}

pub(crate) fn asks_for_help(arguments: &[String]) -> bool {
    let mut flags = arguments.iter().take_while(|argument| *argument != "--");
    flags.any(|argument| matches!(argument.as_str(), "-h" | "-help" | "--help"))
}

impl Arguments {
    pub(crate) fn parse(known: &[Known], arguments: &[String]) -> Result<Self, String> {
        let mut parsed = Self::default();
        let rest = parsed.flags(known, arguments)?;
        let count = rest.iter().take_while(|argument| !is_flag(argument)).count();
        let (positional, rest) = rest.split_at_checked(count).unwrap_or_default();
        parsed.positional = positional.to_vec();
        parsed.flags_follow = !rest.is_empty();
        // What follows the flags is not looked at, as Go's package does not.
        parsed.flags(known, rest)?;
        Ok(parsed)
    }

    /// Reads flags up to what is none.
    fn flags<'a>(
        &mut self,
        known: &[Known],
        mut arguments: &'a [String],
    ) -> Result<&'a [String], String> {
        while let [argument, rest @ ..] = arguments
            && is_flag(argument)
        {
            arguments = rest;
            if argument == "--" {
                break;
            }
            let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let flag = flag.unwrap_or(argument);
            let (name, mut value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let Some((name, switch)) = known.iter().find(|(known, _)| *known == name) else {
                return Err(format!(
                    "Failed to parse args: flag provided but not defined: -{name}"
                ));
            };
            if *switch {
                let text = value.unwrap_or_else(|| "true".to_owned());
                let on = go_bool(&text).ok_or_else(|| {
                    format!(
                        "Failed to parse args: invalid boolean value {text:?} for -{name}: parse error"
                    )
                })?;
                value = Some(on.to_string());
            } else if value.is_none()
                && let [next, rest @ ..] = arguments
            {
                value = Some(next.clone());
                arguments = rest;
            }
            let value = value
                .ok_or_else(|| format!("Failed to parse args: flag needs an argument: -{name}"))?;
            self.values.insert(name, value);
        }
        Ok(arguments)
    }

    /// The value of a flag; an empty one counts as not given.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

/// A lone dash stands for the standard input.
fn is_flag(argument: &str) -> bool {
    argument.starts_with('-') && argument != "-"
}

/// Go's `strconv.ParseBool`.
pub(crate) fn go_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Arguments, String> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        Arguments::parse(&COMMON, &arguments)
    }

    #[test]
    fn flags_stand_before_or_after() {
        let parsed = parse(&["-partition", "p", "a.b.c", "x", "--namespace=n", "-stale"]).unwrap();
        assert_eq!(parsed.positional, ["a.b.c", "x"]);
        assert_eq!((parsed.get("partition"), parsed.get("namespace")), (Some("p"), Some("n")));
        assert!(parsed.is_on("stale") && parsed.flags_follow && parsed.get("f").is_none());
        assert!(!parse(&["-stale=false"]).unwrap().is_on("stale"));
        assert_eq!(parse(&["-f", "-"]).unwrap().get("f"), Some("-"));
        assert_eq!(parse(&["-"]).unwrap().positional, ["-"]);
        assert_eq!(parse(&["a", "-stale", "b"]).unwrap().positional, ["a"], "b is ignored");
    }

    #[test]
    fn mistakes_are_told_as_in_go() {
        for (arguments, expected) in [
            (vec!["-f"], "flag needs an argument: -f"),
            (vec!["--what"], "flag provided but not defined: -what"),
            (vec!["-stale=x"], "invalid boolean value \"x\" for -stale: parse error"),
        ] {
            assert_eq!(parse(&arguments).unwrap_err(), format!("Failed to parse args: {expected}"));
        }
    }
}
