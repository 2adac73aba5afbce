//! Every key of the configuration: keys and types from where the code reads them, meanings and
//! defaults from `docs/guide/words/configuration.tsv`, which has to have each key once.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

use super::{cell, compare, source};

/// Keys with their types, by the block that they stand in, in the order of the page.
type Blocks = Vec<(String, Vec<(String, String)>)>;

/// Reads the declarations of `cts-tasks`: `body! { Name { field: Type = "key", … } }`.
fn declared() -> BTreeMap<String, Vec<(String, String)>> {
    let text = source("cts-tasks/src/config/raw.rs");
    let body = Regex::new(r"(?s)body! \{.*?(Raw\w+) \{\n(.*?)\n    \}\n\}").unwrap();
    let field = Regex::new(r#"(?m)^\s+\w+: (.+) = "(\w+)",$"#).unwrap();
    let fields = |text: &str| {
        field.captures_iter(text).map(|found| (found[2].to_owned(), found[1].to_owned())).collect()
    };
    body.captures_iter(&text).map(|found| (found[1].to_owned(), fields(&found[2]))).collect()
}

/// What an operator writes for a type of the code.
fn written(kind: &str) -> &str {
    match kind {
        "Spanned<String>" => "string",
        "Spanned<i64>" => "number",
        "Spanned<bool>" => "boolean",
        "Spanned<SignedDuration>" | "Spanned<GivenDuration>" => "duration",
        "Strings" => "list of strings",
        "StringMap" | "OneStringMap" => "map of strings",
        _ => "block",
    }
}

fn add(
    block: &str,
    name: &str,
    declared: &BTreeMap<String, Vec<(String, String)>>,
    to: &mut Blocks,
) {
    let fields = &declared[name];
    let at = to.len();
    to.push((block.to_owned(), Vec::new()));
    for (key, kind) in fields {
        to[at].1.push((key.clone(), written(kind).to_owned()));
        let below = kind.trim_start_matches("Blocks<").trim_end_matches('>');
        if declared.contains_key(below) && key != "buffer_period" {
            let path = if block == "top" { key.clone() } else { format!("{block}.{key}") };
            add(&path, below, declared, to);
        } else if key == "buffer_period" && block == "top" {
            add("buffer_period", below, declared, to);
        }
    }
}

/// Keys that a function of the code compares with, between two places of a file.
fn compared(path: &str, from: &str, to: &str) -> Vec<(String, String)> {
    let text = source(path);
    let (_, part) = text.split_once(from).unwrap_or_else(|| panic!("{path} has no {from:?}"));
    let (part, _) = part.split_once(to).unwrap_or_else(|| panic!("{path} has no {to:?}"));
    let arm = Regex::new(r#"(?m)^ +"([a-z_]+)" =>(.*)$"#).unwrap();
    // Some names are known only to be refused with advice.
    let taken = arm.captures_iter(part).filter(|found| !found[2].contains("reader.unknown("));
    taken.map(|found| (found[1].to_owned(), String::new())).collect()
}

/// Keys in lists of the code, such as `["address", "redirect"]`.
fn listed(path: &str, from: &str) -> Vec<(String, String)> {
    let text = source(path);
    let (_, part) = text.split_once(from).unwrap_or_else(|| panic!("{path} has no {from:?}"));
    let (part, _) = part.split_once(']').unwrap();
    let quoted = Regex::new(r#""([a-z_]+)""#).unwrap();
    quoted.captures_iter(part).map(|found| (found[1].to_owned(), String::new())).collect()
}

fn blocks() -> Blocks {
    let declared = declared();
    let mut blocks = Vec::new();
    add("top", "RawConfig", &declared, &mut blocks);
    for (block, name) in [
        ("condition \"services\"", "RawServicesCondition"),
        ("condition \"catalog-services\"", "RawCatalogCondition"),
        ("condition \"consul-kv\"", "RawKvCondition"),
        ("condition \"schedule\"", "RawSchedule"),
        ("storage \"file\"", "RawFileStorage"),
    ] {
        add(block, name, &declared, &mut blocks);
    }
    let mut push = |block: &str, keys| blocks.push((block.to_owned(), keys));
    let terraform = "cts-driver-terraform/src/settings.rs";
    push("driver \"terraform\"", compared(terraform, "fn set<'a>(", "\n    }\n"));
    let tfc = "cts-driver-tfc/src/settings.rs";
    push("driver \"terraform-cloud\"", compared(tfc, "    fn set(&mut self", "fn set_workspaces"));
    push("driver \"terraform-cloud\".workspaces", compared(tfc, "fn set_workspaces", "fn set_run"));
    push("driver \"terraform-cloud\".run", compared(tfc, "fn set_run", "fn set_tls"));
    push("driver \"terraform-cloud\".tls", compared(tfc, "fn set_tls", "\n    }\n"));
    let workspace = "cts-driver-tfc/src/settings/workspace_block.rs";
    push("task.terraform_cloud_workspace", listed(workspace, "FIELDS: [&str; 4] ="));
    let ha = "cts-ha/src/tasks/settings.rs";
    push("high_availability.cluster", listed(ha, "let known =\n"));
    push("high_availability.cluster.storage \"consul\"", listed(ha, "let known = [\n"));
    push("high_availability.instance", listed(ha, "\"instance\") {\n        let known = "));
    blocks
}

#[test]
fn settings_are_those_that_are_read() {
    let words: BTreeMap<String, String> = source("docs/guide/words/configuration.tsv")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once('\t').unwrap_or_else(|| panic!("no tab: {line}")))
        .map(|(key, about)| (key.to_owned(), about.to_owned()))
        .collect();
    let blocks = blocks();
    let full = |block: &str, key: &str| format!("{block}/{key}");
    let keys: BTreeSet<String> = blocks
        .iter()
        .flat_map(|(block, keys)| keys.iter().map(move |(key, _)| full(block, key)))
        .collect();
    let told: BTreeSet<String> = words.keys().cloned().collect();
    let missing: Vec<_> = keys.difference(&told).collect();
    let gone: Vec<_> = told.difference(&keys).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/guide/words/configuration.tsv: add {missing:#?}, remove {gone:#?}"
    );
    let mut text = "# Configuration of consul-terraform-sync\n\nKeys and types are read from the code. Durations are written \
         as `\"5s\"`, `\"1m30s\"`. `validate` says of every mistake where it is.\n\n".to_owned();
    for (block, keys) in blocks {
        let title = if block == "top" { "Top of a file".to_owned() } else { format!("`{block}`") };
        text += &format!("## {title}\n\n| key | type | meaning |\n|---|---|---|\n");
        for (key, kind) in keys {
            let about = &words[&full(&block, &key)];
            // Where the code reads a value without declaring a type, the words begin with it.
            let (kind, about) =
                if kind.is_empty() { about.split_once(": ").unwrap() } else { (&*kind, &**about) };
            text += &format!("| `{key}` | {kind} | {} |\n", cell(about));
        }
        text.push('\n');
    }
    compare("configuration.md", &text);
}
