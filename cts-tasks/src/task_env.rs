//! Environment variables of a task: checked names, and values that are never shown.

use std::{collections::BTreeMap, fmt};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

/// Stands for a value in everything that is shown.
const SHOWN: &str = "[redacted]";

/// Environment variables that the commands of a task's driver get, by name.
///
/// Values count as secrets: `Debug` shows names only, and what is shown to people is
/// [`TaskEnv::masked`]. The serialised form, which a [`TaskStore`](crate::TaskStore) keeps and a
/// request that creates a task carries, has the values as they are.
///
/// ```
/// use cts_tasks::TaskEnv;
///
/// let mut env = TaskEnv::default();
/// env.set("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")?;
/// assert!(!format!("{env:?}").contains("wJalr"));
/// assert!(env.set("1ST", "x").is_err());
/// # Ok::<(), cts_tasks::InvalidEnv>(())
/// ```
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct TaskEnv(BTreeMap<String, SecretString>);

/// A variable that no process can have, or the placeholder of a value. Never shows the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEnv {
    /// The name is none.
    #[error(
        "environment variable {0:?}: a name has letters, digits and underscores, and begins with no digit"
    )]
    Name(String),
    /// The value of the named variable holds a NUL character.
    #[error("environment variable {0}: its value holds a NUL character")]
    Value(String),
    /// The value of the named variable is what values are shown as.
    #[error(
        "environment variable {0}: \"[redacted]\" is how a value is shown; give the value itself"
    )]
    Placeholder(String),
}

impl TaskEnv {
    /// Sets one variable.
    ///
    /// # Errors
    ///
    /// [`InvalidEnv`] for what is no name or no value.
    pub fn set(
        &mut self,
        name: impl Into<String>,
        value: impl Into<SecretString>,
    ) -> Result<(), InvalidEnv> {
        let (name, value) = (name.into(), value.into());
        check(&name, value.expose_secret())?;
        self.0.insert(name, value);
        Ok(())
    }

    /// Returns `true` if no variable is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of the variables, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The variables, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &SecretString)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The same names with a placeholder for each value, as the API answers.
    #[must_use]
    pub fn masked(&self) -> Self {
        Self(self.0.keys().map(|name| (name.clone(), SHOWN.into())).collect())
    }
}

fn check(name: &str, value: &str) -> Result<(), InvalidEnv> {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic());
    if !first || !characters.all(|c| c == '_' || c.is_ascii_alphanumeric()) {
        return Err(InvalidEnv::Name(name.to_owned()));
    }
    if value.contains('\0') {
        return Err(InvalidEnv::Value(name.to_owned()));
    }
    if value == SHOWN {
        return Err(InvalidEnv::Placeholder(name.to_owned()));
    }
    Ok(())
}

impl TryFrom<BTreeMap<String, String>> for TaskEnv {
    type Error = InvalidEnv;

    /// Takes placeholders too: an answer of the API is read with this.
    fn try_from(values: BTreeMap<String, String>) -> Result<Self, Self::Error> {
        let mut env = BTreeMap::new();
        for (name, value) in values {
            if value != SHOWN {
                check(&name, &value)?;
            }
            env.insert(name, value.into());
        }
        Ok(Self(env))
    }
}

impl From<TaskEnv> for BTreeMap<String, String> {
    fn from(env: TaskEnv) -> Self {
        let values = env.0.into_iter();
        values.map(|(name, value)| (name, value.expose_secret().to_owned())).collect()
    }
}

impl PartialEq for TaskEnv {
    fn eq(&self, other: &Self) -> bool {
        self.0.len() == other.0.len()
            && self.0.iter().zip(&other.0).all(|((name, value), (other_name, other))| {
                name == other_name && value.expose_secret() == other.expose_secret()
            })
    }
}

impl Eq for TaskEnv {}

/// Names only.
impl fmt::Debug for TaskEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.0.keys().map(|name| (name, SHOWN))).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_taken_exactly_if_a_shell_would_take_it(name in "[A-Za-z0-9_ =\\-\u{e9}]{0,6}") {
            let shell = regex::Regex::new("^[A-Za-z_][A-Za-z0-9_]*$").unwrap();
            prop_assert_eq!(TaskEnv::default().set(&*name, "v").is_ok(), shell.is_match(&name));
        }

        #[test]
        fn no_value_is_shown_and_each_survives_a_store(value in "[^\0]{5,40}") {
            prop_assume!(value != SHOWN && !"{\"NAME\": \"[redacted]\"}".contains(&value));
            let mut env = TaskEnv::default();
            env.set("NAME", value.clone()).unwrap();
            let debug = format!("{env:?}");
            prop_assert!(!debug.contains(&value));
            let masked = serde_json::to_string(&env.masked()).unwrap();
            prop_assert_eq!(masked, r#"{"NAME":"[redacted]"}"#);
            let stored = serde_json::to_string(&env).unwrap();
            prop_assert_eq!(&serde_json::from_str::<TaskEnv>(&stored).unwrap(), &env);
        }
    }

    #[test]
    fn what_is_no_value_is_refused_without_showing_it() {
        let mut env = TaskEnv::default();
        let error = env.set("A", "geheim\0").unwrap_err().to_string();
        assert!(!error.contains("geheim"), "{error}");
        assert_eq!(env.set("A", SHOWN), Err(InvalidEnv::Placeholder("A".into())));
        assert!(env.is_empty());
    }
}
