//! Values as expressions of the Terraform language.

use cts_tasks::{Literal, Number};

use super::{is_identifier, quote};

/// The most zeros that an exponent is written out to.
const MAX_EXPONENT: i64 = 400;

/// The value as text of the Terraform language, not yet laid out: entries of
/// objects stand on lines of their own, which [`super::format()`] indents.
pub fn literal(value: &Literal) -> String {
    let mut text = String::new();
    push(&mut text, value);
    text
}

/// The key of an object's entry: bare where it can be, else quoted.
///
/// Deviation: `for` is quoted, because as the first key of an object it would
/// begin an expression.
pub(crate) fn key(text: &str) -> String {
    if is_identifier(text) && text != "for" { text.to_owned() } else { quote(text) }
}

fn push(text: &mut String, value: &Literal) {
    match value {
        Literal::Null => text.push_str("null"),
        Literal::Bool(value) => text.push_str(if *value { "true" } else { "false" }),
        Literal::Number(number) => text.push_str(&plain_decimal(number)),
        Literal::String(string) => text.push_str(&quote(string)),
        Literal::List(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push_str(", ");
                }
                push(text, item);
            }
            text.push(']');
        }
        Literal::Map(entries) if entries.is_empty() => text.push_str("{}"),
        Literal::Map(entries) => {
            text.push_str("{\n");
            for (name, value) in entries {
                text.push_str(&key(name));
                text.push_str(" = ");
                push(text, value);
                text.push('\n');
            }
            text.push('}');
        }
    }
}

/// The number without an exponent, unless that would make it absurdly long.
fn plain_decimal(number: &Number) -> String {
    let text = number.as_str();
    let Some((mantissa, exponent)) = text.split_once(['e', 'E']) else {
        return text.to_owned();
    };
    match exponent.parse::<i64>() {
        Ok(exponent) if exponent.abs() <= MAX_EXPONENT => shift(mantissa, exponent),
        Ok(_) | Err(_) => text.to_owned(),
    }
}

/// Moves the decimal point of `mantissa` by `exponent` places to the right.
fn shift(mantissa: &str, exponent: i64) -> String {
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all: Vec<char> = whole.chars().chain(fraction.chars()).collect();
    let point = i64::try_from(whole.len()).unwrap_or(0) + exponent;
    let count = i64::try_from(all.len()).unwrap_or(0);
    let digit =
        |at: i64| usize::try_from(at).ok().and_then(|at| all.get(at)).copied().unwrap_or('0');
    let integer: String = (0..point.max(0)).map(digit).collect();
    let rest: String =
        (point.min(0)..count.max(point)).skip_while(|at| *at < point).map(digit).collect();
    let integer = match integer.trim_start_matches('0') {
        "" => "0",
        trimmed => trimmed,
    };
    match rest.trim_end_matches('0') {
        "" => format!("{sign}{integer}"),
        rest => format!("{sign}{integer}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cts_tasks::Literal;

    use super::{key, literal, plain_decimal};

    #[test]
    fn numbers_are_plain_decimals() {
        for (written, expected) in [
            ("10", "10"),
            ("-0.52", "-0.52"),
            ("1e3", "1000"),
            ("1.5E+2", "150"),
            ("-25e-3", "-0.025"),
            ("1.25e1", "12.5"),
            ("0e5", "0"),
            ("12e-2", "0.12"),
        ] {
            assert_eq!(plain_decimal(&written.parse().unwrap()), expected, "{written}");
        }
    }

    #[test]
    fn lists_stand_on_one_line_and_objects_on_several() {
        let object = Literal::Map(BTreeMap::from([
            ("b c".to_owned(), Literal::List(vec![Literal::Bool(true), Literal::Null])),
            ("a".to_owned(), Literal::Map(BTreeMap::new())),
        ]));
        assert_eq!(literal(&object), "{\na = {}\n\"b c\" = [true, null]\n}");
        assert_eq!(literal(&Literal::List(Vec::new())), "[]");
    }

    #[test]
    fn a_key_is_bare_where_it_can_be() {
        assert_eq!(key("consul-version"), "consul-version");
        assert_eq!(key("a.b"), "\"a.b\"");
        assert_eq!(key("for"), "\"for\"");
        assert_eq!(key("${x}"), "\"$${x}\"");
    }
}
