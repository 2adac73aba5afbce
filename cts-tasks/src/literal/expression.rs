//! Literals as expressions of the Terraform language: read, and written.

use std::{collections::BTreeMap, fmt::Write as _, ops::Range, str::FromStr};

use hcl_edit::{
    Span as _,
    expr::{Expression, ObjectKey, UnaryOperator},
    template::{Element, Template},
};

use super::{Literal, Number};

/// An expression that is more than a literal, or none at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NotLiteral {
    message: String,
    span: Option<Range<usize>>,
}

impl NotLiteral {
    /// The bytes that are to blame.
    pub(crate) fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    fn new(message: impl Into<String>, span: Option<Range<usize>>) -> Self {
        Self { message: message.into(), span }
    }
}

impl FromStr for Literal {
    type Err = NotLiteral;

    /// Reads an expression of the Terraform language, or a JSON value, that
    /// uses no variable, function or operator.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expression = hcl_edit::parser::parse_expr(text.trim()).map_err(|error| {
            let offset = error.location().offset();
            NotLiteral::new(
                format!("not an expression: {}", error.message()),
                Some(offset..offset + 1),
            )
        })?;
        Self::from_expression(&expression)
    }
}

impl Literal {
    /// The literal as an expression of the Terraform language. It is JSON
    /// too, unless a string holds `${` or `%{`, which are escaped.
    pub fn to_expression(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Null => text.push_str("null"),
            Self::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => text.push_str(number.as_str()),
            Self::String(value) => write_string(value, text),
            Self::List(items) => {
                text.push('[');
                for (position, item) in items.iter().enumerate() {
                    text.push_str(if position > 0 { "," } else { "" });
                    item.write(text);
                }
                text.push(']');
            }
            Self::Map(members) => {
                text.push('{');
                for (position, (key, value)) in members.iter().enumerate() {
                    text.push_str(if position > 0 { "," } else { "" });
                    write_string(key, text);
                    text.push(':');
                    value.write(text);
                }
                text.push('}');
            }
        }
    }

    /// Reads a parsed expression.
    pub(crate) fn from_expression(expression: &Expression) -> Result<Self, NotLiteral> {
        match expression {
            Expression::Null(_) => Ok(Self::Null),
            Expression::Bool(value) => Ok(Self::Bool(*value.value())),
            Expression::String(text) => Ok(Self::String(text.value().clone())),
            Expression::Number(number) => {
                let text = number.as_repr().map(|repr| repr.to_string());
                let text = text.unwrap_or_else(|| number.value().to_string());
                parse_number(&text, expression)
            }
            Expression::UnaryOp(negated) if *negated.operator.value() == UnaryOperator::Neg => {
                match Self::from_expression(&negated.expr)? {
                    Self::Number(number) => parse_number(&format!("-{number}"), expression),
                    _ => Err(NotLiteral::new("only a number can be negative", expression.span())),
                }
            }
            Expression::Parenthesis(inner) => Self::from_expression(inner.inner()),
            Expression::Array(items) => {
                items.iter().map(Self::from_expression).collect::<Result<_, _>>().map(Self::List)
            }
            Expression::Object(members) => {
                let mut map = BTreeMap::new();
                for (key, value) in members {
                    map.insert(object_key(key)?, Self::from_expression(value.expr())?);
                }
                Ok(Self::Map(map))
            }
            Expression::StringTemplate(template) => plain(template).map(Self::String),
            Expression::HeredocTemplate(heredoc) => plain(&heredoc.template).map(Self::String),
            _ => Err(NotLiteral::new("the value is not a literal", expression.span())),
        }
    }
}

fn parse_number(text: &str, expression: &Expression) -> Result<Literal, NotLiteral> {
    text.trim()
        .parse::<Number>()
        .map(Literal::Number)
        .map_err(|error| NotLiteral::new(error.to_string(), expression.span()))
}

fn object_key(key: &ObjectKey) -> Result<String, NotLiteral> {
    let ObjectKey::Expression(expression) = key else {
        return Ok(key.as_ident().map(|ident| ident.as_str().to_owned()).unwrap_or_default());
    };
    match Literal::from_expression(expression)? {
        Literal::String(text) => Ok(text),
        Literal::Number(number) => Ok(number.to_string()),
        Literal::Bool(value) => Ok(value.to_string()),
        _ => Err(NotLiteral::new("a key must be a string", expression.span())),
    }
}

/// The text of a template that interpolates nothing.
fn plain(template: &Template) -> Result<String, NotLiteral> {
    let mut text = String::new();
    for element in template {
        match element {
            Element::Literal(part) => text.push_str(part.value()),
            Element::Interpolation(_) | Element::Directive(_) => {
                return Err(NotLiteral::new("the string is a template", element.span()));
            }
        }
    }
    Ok(text)
}

fn write_string(value: &str, text: &mut String) {
    text.push('"');
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '$' | '%' if characters.peek() == Some(&'{') => {
                text.push(character);
                text.push(character);
            }
            c if c.is_control() => {
                // Writing to a string cannot fail.
                let _written = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Literal {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn json_and_the_terraform_language_are_both_read() {
        assert_eq!(read("{\"a\": [1, true, null]}"), read("{ a = [1, true, null] }"));
        assert_eq!(read("-1.50"), Literal::Number("-1.50".parse().unwrap()));
        assert_eq!(read("<<EOT\nx\n  y\nEOT\n"), Literal::from("x\n  y\n"));
        assert_eq!(read("<<-EOT\n  x\n    y\n  EOT\n"), Literal::from("x\n  y\n"));
        assert_eq!(read("\"a$${b}\""), Literal::from("a${b}"));
        let large = "123456789012345678901234567890.123456789012345678901234567890";
        assert_eq!(read(large).to_expression(), large);
    }

    #[test]
    fn whatever_needs_evaluation_is_refused() {
        for text in
            ["a", "f(1)", "1 + 1", "\"${a}\"", "", "[1,", "!true", "-\"a\"", "[for x in [1] : x]"]
        {
            assert!(text.parse::<Literal>().is_err(), "{text}");
        }
    }

    fn literal() -> impl Strategy<Value = Literal> {
        let leaf = prop_oneof![
            Just(Literal::Null),
            any::<bool>().prop_map(Literal::Bool),
            any::<i64>().prop_map(|number| Literal::Number(number.into())),
            any::<String>().prop_map(Literal::String),
            "[a$%{}\"\\\\\n]{0,8}".prop_map(Literal::String),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Literal::List),
                prop::collection::btree_map(any::<String>(), inner, 0..4).prop_map(Literal::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_literal_survives_as_an_expression(literal in literal()) {
            prop_assert_eq!(read(&literal.to_expression()), literal);
        }
    }
}
