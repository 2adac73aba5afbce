//! The pages of the book as `SUMMARY.md` lists them, and what every page has to keep.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::markdown::{self, Block, Kind};

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the folder of the book's sources.
pub(crate) fn sources() -> PathBuf {
    root().join("docs/guide/src")
}

/// A page of the book.
#[derive(Debug)]
pub(crate) struct Page {
    /// Path below the folder of sources, such as `operators/start.md`.
    pub(crate) name: String,
    pub(crate) blocks: Vec<Block>,
}

/// Reads the pages in the order of the summary.
pub(crate) fn pages() -> Vec<Page> {
    let summary = std::fs::read_to_string(sources().join("SUMMARY.md")).unwrap();
    let listed = markdown::links(&summary).into_iter().map(|link| link.target);
    let read = |name: String| {
        let text = std::fs::read_to_string(sources().join(&name))
            .unwrap_or_else(|error| panic!("SUMMARY.md names {name}: {error}"));
        Page { blocks: markdown::blocks(&text), name }
    };
    listed.map(read).collect()
}

/// Returns the paths of all Markdown files below `folder`.
pub(crate) fn markdown_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            let foreign = name.starts_with('.') || ["target", "node_modules"].contains(&&*name);
            if !foreign && !path.join("CACHEDIR.TAG").exists() {
                found.extend(markdown_below(&path));
            }
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn the_summary_lists_every_page_once() {
    let listed: Vec<String> = pages().into_iter().map(|page| page.name).collect();
    let set: BTreeSet<&String> = listed.iter().collect();
    assert_eq!(set.len(), listed.len(), "a page is listed twice: {listed:?}");
    let there: BTreeSet<String> = markdown_below(&sources())
        .iter()
        .map(|path| path.strip_prefix(sources()).unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "SUMMARY.md")
        .collect();
    assert_eq!(there, listed.into_iter().collect());
}

#[test]
fn every_block_says_how_it_is_checked() {
    let mut wrong = Vec::new();
    for page in pages() {
        for block in &page.blocks {
            if let Err(why) = block.kind() {
                wrong.push(format!("{}:{}: ```{}: {why}", page.name, block.line, block.info));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rust_is_compiled_with_the_documentation_tests() {
    let included = std::fs::read_to_string(root().join("examples/guide/src/lib.rs")).unwrap();
    for page in pages() {
        let has_rust = page.blocks.iter().any(|block| matches!(block.kind(), Ok(Kind::Rust)));
        let path = format!("docs/guide/src/{}\"", page.name);
        assert!(
            !has_rust || included.contains(&path),
            "{} has Rust that nothing compiles: include it in examples/guide/src/lib.rs",
            page.name
        );
    }
}

#[test]
fn a_file_that_a_page_writes_is_used_on_it() {
    let mut unused = Vec::new();
    for page in pages() {
        for (at, block) in page.blocks.iter().enumerate() {
            let Some(file) = block.file() else { continue };
            // A folder counts, since commands and configurations name it and not its files.
            let folder = file.rsplit_once('/').map_or(file, |(folder, _)| folder);
            let later = page.blocks.iter().enumerate().filter(|(other, _)| *other != at);
            if !later.into_iter().any(|(_, other)| other.text.contains(folder)) {
                unused.push(format!("{}:{}: {file}", page.name, block.line));
            }
        }
    }
    assert!(unused.is_empty(), "no command of the page uses\n{}", unused.join("\n"));
}
