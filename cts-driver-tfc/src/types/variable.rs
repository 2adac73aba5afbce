//! Variables of workspaces, with the limits that are known before they are sent.

use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    document::{Kind, Resource},
    id::Id,
};

/// Variable of a workspace.
pub type Variable = Resource<VariableAttributes>;

/// Id of a [`Variable`], such as `var-EavQ1LztoRTQHSNT`.
pub type VariableId = Id<VariableAttributes>;

/// Category of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// Input of the root module.
    Terraform,
    /// Variable of the environment that Terraform runs in.
    Env,
}

/// Attributes of a [`Variable`].
#[derive(Clone, Deserialize)]
#[non_exhaustive]
pub struct VariableAttributes {
    /// Name of the variable.
    pub key: String,
    /// Value; `None` if it is sensitive.
    #[serde(default)]
    pub value: Option<String>,
    /// Category; `None` for one that is not known.
    #[serde(default, deserialize_with = "known_category")]
    pub category: Option<Category>,
    /// `true` if the value is an expression and not a plain text.
    #[serde(default)]
    pub hcl: bool,
    /// `true` if the value cannot be read again.
    #[serde(default)]
    pub sensitive: bool,
    /// Description, for people.
    #[serde(default)]
    pub description: Option<String>,
}

impl Kind for VariableAttributes {
    const TYPE: &'static str = "vars";
}

fn known_category<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    // A new category must not make the whole list unreadable.
) -> Result<Option<Category>, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("terraform") => Some(Category::Terraform),
        Some("env") => Some(Category::Env),
        Some(_) | None => None,
    })
}

/// Without the value.
impl fmt::Debug for VariableAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VariableAttributes")
            .field("key", &self.key)
            .field("category", &self.category)
            .field("hcl", &self.hcl)
            .field("sensitive", &self.sensitive)
            .finish_non_exhaustive()
    }
}

/// Variable as it should be.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NewVariable {
    /// Name, at most 128 characters.
    pub key: String,
    /// Value, at most 256 KiB.
    pub value: SecretString,
    /// Category.
    pub category: Category,
    /// `true` if the value is an expression and not a plain text.
    pub hcl: bool,
    /// `true` if the value cannot be read again.
    pub sensitive: bool,
    /// Description for people, at most 512 characters.
    pub description: String,
}

/// Largest value that the platform takes, in bytes.
const LARGEST_VALUE: usize = 256 * 1024;

impl NewVariable {
    /// Creates an input of the root module that is a plain text.
    pub fn new(key: impl Into<String>, value: impl Into<SecretString>) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            category: Category::Terraform,
            hcl: false,
            sensitive: false,
            description: String::new(),
        }
    }

    /// Finds what the platform is known to refuse.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] that names the variable, without its value.
    pub fn check(&self) -> Result<()> {
        let key = &self.key;
        let problem = if key.is_empty() {
            "a variable needs a key".to_owned()
        } else if key.chars().count() > 128 {
            format!("the key of variable {key:?} is longer than 128 characters")
        } else {
            return check_value(key, &self.value);
        };
        Err(Error::Input { operation: "set variable", problem })
    }
}

/// Checks that the platform takes a value of this size.
pub(crate) fn check_value(key: &str, value: &SecretString) -> Result<()> {
    let size = value.expose_secret().len();
    if size <= LARGEST_VALUE {
        return Ok(());
    }
    Err(Error::Input {
        operation: "set variable",
        problem: format!(
            "the value of variable {key:?} has {size} bytes, and the platform takes at most \
             {LARGEST_VALUE}: narrow the task's condition, or split the task"
        ),
    })
}

/// Change of a variable; a field that is `None` stays as it is.
#[derive(Debug, Clone, Default)]
pub struct VariableChange {
    /// New value.
    pub value: Option<SecretString>,
    /// `true` if the value is an expression.
    pub hcl: Option<bool>,
    /// `true` if the value cannot be read again, which is for good.
    pub sensitive: Option<bool>,
}
