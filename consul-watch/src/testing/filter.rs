//! Consul's boolean filter expressions, over the JSON that the double answers.
//!
//! Syntax, operators, the selectors of each endpoint and the texts of errors
//! are those of `go-bexpr` as Consul uses it.
//!
//! Source: Consul docs api-docs/features/filtering; texts as Consul 1.8.7 answers them.

mod evaluate;
mod expression;
mod parse;
pub(super) mod schema;

use serde_json::Value;

pub(super) use schema::Schema;

use evaluate::Check;

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
