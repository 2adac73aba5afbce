//! What the README says of coming from upstream: each line names the tests that hold it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The rows of the tables between two headings, cell by cell.
fn rows<'a>(readme: &'a str, from: &str, to: &str) -> Vec<Vec<&'a str>> {
    let (_, rest) = readme.split_once(from).unwrap();
    let (part, _) = rest.split_once(to).unwrap();
    let rows = part.lines().filter(|line| line.starts_with("| "));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_line_about_upstream_has_a_test_behind_it() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for member in ["cts-tasks", "cts-driver-terraform", "examples/consul-terraform-sync"] {
        for folder in ["src", "tests"] {
            sources(&workspace.join(member).join(folder), &mut files);
        }
    }
    let sources: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let readme = include_str!("../../README.md");
    let mut rows = rows(readme, "**Equal.**", "Explanations around");
    rows.retain(|row| !matches!(row[0], "what" | "upstream"));
    assert!(rows.len() > 45, "{}", rows.len());
    for row in rows {
        let tests: Vec<&str> = row[row.len() - 1].split(", ").collect();
        for test in tests {
            let name = test.trim_matches('`');
            assert!(test.starts_with('`') && name.len() > 10, "no test in {row:?}");
            // A macro makes one test of a case for each Consul.
            let there = [format!("fn {name}("), format!("{name}, "), format!("{name};")];
            assert!(
                there.iter().any(|text| sources.contains(text)),
                "{name} of {row:?} is not there"
            );
        }
    }
}
