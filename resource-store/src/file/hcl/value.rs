//! Expressions that need no surroundings, and what they come to.

use std::ops::Range;

use hcl_edit::{
    Span as _,
    expr::{Expression, FuncCall, ObjectKey, UnaryOperator},
    template::{Element, Template},
};

use super::source::Source;
use crate::{file::FileError, pb::Type};

/// The value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Tuple(Vec<Self>),
    Object(Vec<(String, Self)>),
}

/// A number, exact where it is a whole one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Value {
    /// Returns HCL's name of the type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::String(_) => "string",
            Self::Tuple(_) => "tuple",
            Self::Object(_) => "object",
        }
    }
}

impl Number {
    fn negated(self) -> Self {
        match self {
            Self::Whole(number) => Self::Whole(-number),
            Self::Fraction(number) => Self::Fraction(-number),
        }
    }
}

pub(super) fn evaluate(expression: &Expression, source: Source<'_>) -> Result<Value, FileError> {
    let at = || expression.span().unwrap_or_default();
    match expression {
        Expression::Null(_) => Ok(Value::Null),
        Expression::Bool(value) => Ok(Value::Bool(*value.value())),
        Expression::Number(value) => Ok(Value::Number(number(value.value()))),
        Expression::String(value) => Ok(Value::String(value.value().clone())),
        Expression::StringTemplate(template) => plain(template, source).map(Value::String),
        Expression::HeredocTemplate(heredoc) => plain(&heredoc.template, source).map(Value::String),
        Expression::Parenthesis(inner) => evaluate(inner.inner(), source),
        Expression::Array(items) => {
            let items = items.iter().map(|item| evaluate(item, source));
            items.collect::<Result<_, _>>().map(Value::Tuple)
        }
        Expression::Object(members) => {
            let members = members
                .iter()
                .map(|(name, value)| Ok((key(name, source)?, evaluate(value.expr(), source)?)));
            members.collect::<Result<_, _>>().map(Value::Object)
        }
        Expression::UnaryOp(operation) if *operation.operator.value() == UnaryOperator::Neg => {
            match evaluate(&operation.expr, source)? {
                Value::Number(number) => Ok(Value::Number(number.negated())),
                _ => Err(source.error(at(), "Invalid operand; Only a number can be negative.")),
            }
        }
        Expression::FuncCall(call) => function(call, at(), source),
        Expression::Variable(_) | Expression::Traversal(_) => Err(source
            .error(at(), "Variables not allowed; Variables may not be used here.")),
        _ => Err(source.error(
            at(),
            "Unsupported expression; Only literals and gvk(\"group.version.Kind\") may be used here.",
        )),
    }
}

fn number(number: &hcl_edit::Number) -> Number {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    whole.map_or_else(|| Number::Fraction(number.as_f64().unwrap_or(f64::NAN)), Number::Whole)
}

/// The text of a template that interpolates nothing.
fn plain(template: &Template, source: Source<'_>) -> Result<String, FileError> {
    let mut text = String::new();
    for element in template {
        match element {
            Element::Literal(part) => text.push_str(part.value()),
            Element::Interpolation(_) | Element::Directive(_) => {
                return Err(source.error(
                    element.span().unwrap_or_default(),
                    "Unsupported expression; A string may not hold ${…} or %{…} here; \
                     $${ and %%{ stand for themselves.",
                ));
            }
        }
    }
    Ok(text)
}

/// The key of a member: a word or a string.
fn key(key: &ObjectKey, source: Source<'_>) -> Result<String, FileError> {
    let ObjectKey::Expression(expression) = key else {
        return Ok(key.as_ident().map(|ident| ident.as_str().to_owned()).unwrap_or_default());
    };
    if let Some(word) = expression.as_variable() {
        return Ok(word.as_str().to_owned());
    }
    match evaluate(expression, source)? {
        Value::String(text) => Ok(text),
        other => Err(source.error(
            expression.span().unwrap_or_default(),
            format!("Invalid key; A key must be a string, not {}.", other.type_name()),
        )),
    }
}

/// Calls `gvk`, the only function.
///
/// Source: `internal/resourcehcl/any.go` and the function calls of
/// `hashicorp/hcl/v2/hclsyntax`.
fn function(call: &FuncCall, at: Range<usize>, source: Source<'_>) -> Result<Value, FileError> {
    let name = call.name.name.as_str();
    let name_at = call.name.name.span().unwrap_or_else(|| at.clone());
    if name != "gvk" || !call.name.namespace.is_empty() {
        let text = format!(
            "Call to unknown function; There is no function named \"{name}\"; the only one is gvk."
        );
        return Err(source.error(name_at, text));
    }
    let mut arguments = call.args.iter();
    let Some(argument) = arguments.next() else {
        let close = at.end.saturating_sub(1)..at.end;
        return Err(source.error(
            close,
            "Not enough function arguments; Function \"gvk\" expects 1 argument(s). \
             Missing value for \"GVK String\".",
        ));
    };
    if let Some(extra) = arguments.next() {
        return Err(source.error(
            extra.span().unwrap_or(at),
            "Too many function arguments; Function \"gvk\" expects only 1 argument(s).",
        ));
    }
    let Value::String(text) = evaluate(argument, source)? else {
        return Err(source.error(
            argument.span().unwrap_or(at),
            "Invalid function argument; Invalid value for \"GVK String\" parameter: string required.",
        ));
    };
    let ty: Type = text.parse().map_err(|error| {
        let rest = source.text.get(name_at.end..).unwrap_or_default();
        let open = rest.find('(').map_or(name_at.end, |open| name_at.end + open + 1);
        let text = format!("Error in function call; Call to function \"gvk\" failed: {error}.");
        source.error(name_at.start..open, text)
    })?;
    Ok(Value::Object(vec![
        ("Group".to_owned(), Value::String(ty.group)),
        ("GroupVersion".to_owned(), Value::String(ty.group_version)),
        ("Kind".to_owned(), Value::String(ty.kind)),
    ]))
}
