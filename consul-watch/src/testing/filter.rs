//! Consul's boolean filter expressions, over the JSON that the double answers.
//!
//! Syntax, operators, the selectors of each endpoint and the texts of errors
//! are those of `go-bexpr` as Consul uses it.
//!
//! Source: Consul docs api-docs/features/filtering; texts as Consul 1.8.7 answers them.

mod evaluate;
mod parse;
pub(super) mod schema;

use serde_json::Value;

pub(super) use schema::Schema;

use evaluate::Check;

/// A selector, such as `Service.Meta.version`.
type Selector = Vec<String>;

/// A parsed filter expression.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Expression {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Match { selector: Selector, operator: Operator, value: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    In,
    NotIn,
    IsEmpty,
    IsNotEmpty,
    Matches,
    NotMatches,
}

impl Operator {
    /// As errors name it.
    fn name(self) -> &'static str {
        match self {
            Self::Equal => "Equal",
            Self::NotEqual => "Not Equal",
            Self::In => "In",
            Self::NotIn => "Not In",
            Self::IsEmpty => "Is Empty",
            Self::IsNotEmpty => "Is Not Empty",
            Self::Matches => "Matches",
            Self::NotMatches => "Not Matches",
        }
    }

    /// Returns `true` if it says that something is not so.
    fn is_negative(self) -> bool {
        matches!(self, Self::NotEqual | Self::NotIn | Self::IsEmpty | Self::NotMatches)
    }
}

/// An expression that fits a kind of items.
#[derive(Debug)]
pub(super) struct Filter {
    check: Check,
}

impl Filter {
    /// Reads an expression over items of this kind; the error is Consul's text.
    pub(super) fn new(text: &str, schema: &Schema) -> Result<Self, String> {
        let expression = parse::parse(text)?;
        Ok(Self { check: Check::new(&expression, schema)? })
    }

    /// Returns `true` if an item is as the expression says.
    pub(super) fn matches(&self, item: &Value) -> bool {
        self.check.holds(item)
    }
}
