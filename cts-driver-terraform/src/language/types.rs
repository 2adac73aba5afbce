//! Types of values, as variables declare them.

use cts_tasks::Literal;

use super::key;

/// The type of a value, as a variable declares it; not yet laid out.
///
/// Lists are tuples and maps are objects, because a literal says no more.
///
/// Source: Consul-Terraform-Sync 0.9, types of provider and module variables.
///
/// Deviation: `any` for `null` and for an object with a key that is no
/// identifier, where upstream writes what Terraform refuses.
pub(crate) fn type_of(value: &Literal) -> String {
    match value {
        Literal::Bool(_) => "bool".to_owned(),
        Literal::Number(_) => "number".to_owned(),
        Literal::String(_) => "string".to_owned(),
        Literal::List(items) => {
            let items: Vec<_> = items.iter().map(type_of).collect();
            format!("tuple([{}])", items.join(", "))
        }
        Literal::Map(entries) if entries.is_empty() => "object({})".to_owned(),
        Literal::Map(entries) if entries.keys().all(|name| key(name) == *name) => {
            let entries: Vec<_> = entries
                .iter()
                .map(|(name, value)| format!("{name} = {}\n", type_of(value)))
                .collect();
            format!("object({{\n{}}})", entries.concat())
        }
        Literal::Null | Literal::Map(_) => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use cts_tasks::Literal;
    use serde_json::json;

    use super::type_of;

    #[test]
    fn each_literal_has_a_type_that_terraform_accepts() {
        for (value, expected) in [
            (json!(null), "any"),
            (json!(true), "bool"),
            (json!(1.5), "number"),
            (json!("x"), "string"),
            (json!([]), "tuple([])"),
            (json!([1, 2, 3]), "tuple([number, number, number])"),
            (json!(["a", null]), "tuple([string, any])"),
            (json!({}), "object({})"),
            (json!({"b": 1, "a": "x"}), "object({\na = string\nb = number\n})"),
            (json!({"a b": 1}), "any"),
            (json!({"for": 1}), "any"),
            (json!({"o": {"a b": 1}}), "object({\no = any\n})"),
        ] {
            assert_eq!(type_of(&Literal::from(value.clone())), expected, "{value}");
        }
    }
}
