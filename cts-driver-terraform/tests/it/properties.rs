//! Whatever text goes through the printer comes back.

use std::collections::BTreeMap;

use cts_driver_terraform::language;
use cts_tasks::Literal;
use hcl_edit::{
    expr::{Expression, ObjectKey},
    structure::Body,
};
use proptest::prelude::*;

/// Any text, with a bias to what the language could misread.
pub(crate) fn text() -> impl Strategy<Value = String> {
    let awkward = prop::sample::select(vec![
        "\"",
        "\\",
        "${",
        "%{",
        "$",
        "%",
        "{",
        "}",
        "\n",
        "\r",
        "\t",
        "\0",
        "\u{1b}",
        "\u{2028}",
        "\u{feff}",
        "\u{fffe}",
        "<<EOT",
        "#",
        "//",
        "/*",
        "=",
        "~}",
        "{{",
        "'",
        "\u{10ffff}",
        "é",
    ]);
    let piece = prop_oneof![awkward.prop_map(str::to_owned), any::<String>()];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Literal> {
    let leaf = prop_oneof![
        Just(Literal::Null),
        any::<bool>().prop_map(Literal::Bool),
        any::<i64>().prop_map(|number| Literal::Number(number.into())),
        text().prop_map(Literal::String),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Literal::List),
            prop::collection::btree_map(text(), inner, 0..4).prop_map(Literal::Map),
        ]
    })
}

fn read(expression: &Expression) -> Literal {
    match expression {
        Expression::Null(_) => Literal::Null,
        Expression::Bool(value) => Literal::Bool(**value),
        Expression::Number(number) => Literal::Number(number.to_string().parse().unwrap()),
        Expression::String(text) => Literal::String(text.to_string()),
        Expression::StringTemplate(template) => Literal::String(
            template.iter().map(|element| element.as_literal().unwrap().to_string()).collect(),
        ),
        Expression::Array(items) => Literal::List(items.iter().map(read).collect()),
        Expression::Object(entries) => Literal::Map(
            entries.iter().map(|(key, value)| (read_key(key), read(value.expr()))).collect(),
        ),
        Expression::UnaryOp(operation) => match read(&operation.expr) {
            Literal::Number(number) => Literal::Number(format!("-{number}").parse().unwrap()),
            other => panic!("negated {other:?}"),
        },
        other => panic!("unexpected {other:?}"),
    }
}

fn read_key(key: &ObjectKey) -> String {
    match key {
        ObjectKey::Ident(name) => name.to_string(),
        ObjectKey::Expression(expression) => match read(expression) {
            Literal::String(text) => text,
            other => panic!("key {other:?}"),
        },
    }
}

proptest! {
    #[test]
    fn a_printed_value_parses_back(value in value()) {
        let printed = language::format(&format!("x = {}\n", language::literal(&value)));
        let body: Body = printed.parse().map_err(|e| TestCaseError::fail(format!("{e}\n{printed}")))?;
        let attribute = body.get_attribute("x").unwrap();
        prop_assert_eq!(read(&attribute.value), value);
    }

    #[test]
    fn a_body_of_values_parses_back(values in prop::collection::btree_map("[a-z]{1,8}", value(), 1..4)) {
        let lines: Vec<_> =
            values.iter().map(|(name, value)| format!("{name} = {}\n", language::literal(value))).collect();
        let once = language::format(&lines.concat());
        let body: Body = once.parse().map_err(|e| TestCaseError::fail(format!("{e}\n{once}")))?;
        let read: BTreeMap<_, _> =
            body.attributes().map(|a| (a.key.to_string(), read(&a.value))).collect();
        prop_assert_eq!(read, values);
    }
}
