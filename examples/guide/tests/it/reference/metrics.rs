//! The metrics: names from where the code counts, meanings from the tables beside it.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{compare, rust_below, source};
use crate::book::root;

/// Crates, the prefixes of their names, and where their tables stand.
const CRATES: [(&str, &[&str], &str); 4] = [
    ("consul-watch", &["consul_request", "consul_watch_"], "consul-watch/src/telemetry.rs"),
    ("cts-tasks", &["cts_"], "cts-tasks/README.md"),
    ("acl-controller", &["acl_controller_"], "acl-controller/src/telemetry.rs"),
    ("resource-store", &["resource_store_"], "resource-store/README.md"),
];

/// What the table of `cts-tasks` leaves to the text around it.
const BUILD_INFO: &str =
    "| `cts_build_info` | gauge | `version` | always 1; only the program has it |";

fn rows(path: &str, prefixes: &[&str]) -> BTreeMap<String, String> {
    let row = Regex::new(r"^(?://! )?(\| `([a-z_]+)` \|.*\|)$").unwrap();
    let mut found = BTreeMap::new();
    for line in source(path).lines().chain([BUILD_INFO]) {
        let Some(parts) = row.captures(line) else { continue };
        if prefixes.iter().any(|prefix| parts[2].starts_with(prefix)) {
            let cells = parts[1].matches('|').count();
            // Some tables have the labels beside the kind.
            let whole =
                if cells == 4 { parts[1].replacen(", by ", " | ", 1) } else { parts[1].to_owned() };
            let whole = if whole.matches('|').count() == 4 {
                let mut cells: Vec<&str> = whole.split('|').collect();
                cells.insert(3, " ");
                cells.join("|")
            } else {
                whole
            };
            found.insert(parts[2].to_owned(), whole);
        }
    }
    found
}

fn names(package: &str, prefixes: &[&str]) -> BTreeSet<String> {
    let counted = Regex::new(r#""([a-z]+(?:_[a-z]+)+)""#).unwrap();
    let mut found = BTreeSet::new();
    for file in rust_below(&root().join(package).join("src")) {
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("\nmod tests {").next().unwrap_or_default().to_owned();
        let measures =
            ["gauge!", "counter!", "histogram!", "Held::new", "Happened::", "keep(", "count("];
        if !measures.iter().any(|word| text.contains(word)) {
            continue;
        }
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            for parts in counted.captures_iter(line) {
                if prefixes.iter().any(|prefix| parts[1].starts_with(prefix)) {
                    found.insert(parts[1].to_owned());
                }
            }
        }
    }
    found
}

#[test]
fn metrics_are_those_that_are_counted() {
    let mut text = "# Metrics\n\nNames are taken from where the code counts, meanings from the tables of the crates. \
        Each crate counts through the facade of the crate `metrics`; a program installs the recorder.\n\n".to_owned();
    for (package, prefixes, table) in CRATES {
        let (names, mut rows) = (names(package, prefixes), rows(table, prefixes));
        let documented: BTreeSet<String> = rows.keys().cloned().collect();
        assert_eq!(names, documented, "{table} is not what {package} counts");
        text += &format!("## {package}\n\n| name | kind | labels | meaning |\n|---|---|---|---|\n");
        for name in names {
            text += &format!("{}\n", rows.remove(&name).unwrap());
        }
        text.push('\n');
    }
    compare("metrics.md", &text);
}
