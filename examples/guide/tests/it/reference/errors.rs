//! Exit codes and the errors of each crate, from their declarations.

use syn::{Expr, Item, ItemEnum, Lit, Meta};

use super::{cell, compare, documentation, source};

/// Crates and the files that declare their `Error`.
const CRATES: [(&str, &str); 7] = [
    ("consul-watch", "consul-watch/src/error.rs"),
    ("cts-tasks", "cts-tasks/src/error.rs"),
    ("cts-driver-terraform", "cts-driver-terraform/src/error.rs"),
    ("cts-driver-tfc", "cts-driver-tfc/src/error.rs"),
    ("cts-ha", "cts-ha/src/error.rs"),
    ("ecs-mesh-init", "ecs-mesh-init/src/error.rs"),
    ("acl-controller", "acl-controller/src/error.rs"),
];

fn declared(path: &str, name: &str) -> ItemEnum {
    let file = syn::parse_file(&source(path)).unwrap();
    let enums = file.items.into_iter().filter_map(|item| match item {
        Item::Enum(found) if found.ident == name => Some(found),
        _ => None,
    });
    enums.into_iter().next().unwrap_or_else(|| panic!("{path} declares no enum {name}"))
}

/// Returns the text of `#[error("…")]`.
fn shown(variant: &syn::Variant) -> String {
    for attribute in &variant.attrs {
        if let Meta::List(list) = &attribute.meta
            && list.path.is_ident("error")
        {
            let first = list.parse_args_with(|input: syn::parse::ParseStream<'_>| {
                let first: Expr = input.parse()?;
                input.parse::<proc_macro2::TokenStream>()?;
                Ok(first)
            });
            return match first {
                Ok(Expr::Lit(literal)) => match literal.lit {
                    Lit::Str(text) => format!("`{}`", text.value()),
                    _ => String::new(),
                },
                _ => "that of its source".to_owned(),
            };
        }
    }
    String::new()
}

#[test]
fn errors_are_those_that_are_declared() {
    let mut text = "# Exit codes and errors\n\n## Exit codes of consul-terraform-sync\n\n| code | meaning |\n|---|---|\n".to_owned();
    for variant in declared("cts-tasks/src/program/exit.rs", "Exit").variants {
        let Some((_, Expr::Lit(code))) = &variant.discriminant else { panic!("{}", variant.ident) };
        let Lit::Int(code) = &code.lit else { panic!("{}", variant.ident) };
        let about = documentation(&variant.attrs);
        let about = if about.is_empty() { variant.ident.to_string() } else { about };
        text += &format!("| {code} | {} |\n", cell(&about));
    }
    text += "\nThe exit codes of `consul-ecs` stand in [What goes wrong](../ecs/task-definition.md#what-goes-wrong).\n";
    for (package, path) in CRATES {
        text +=
            &format!("\n## Errors of {package}\n\n| variant | text | meaning |\n|---|---|---|\n");
        for variant in declared(path, "Error").variants {
            let about = documentation(&variant.attrs);
            assert!(!about.is_empty(), "{path}: {}", variant.ident);
            text += &format!(
                "| `{}` | {} | {} |\n",
                variant.ident,
                cell(&shown(&variant)),
                cell(&about)
            );
        }
    }
    compare("errors.md", &text);
}
