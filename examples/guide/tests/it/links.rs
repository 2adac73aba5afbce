//! Follows every link between the Markdown files of the repository, without a network.

use std::path::Path;

use crate::{
    book::{markdown_below, root, sources},
    markdown::{anchors, links},
};

#[test]
fn every_link_leads_somewhere() {
    let root = root();
    let mut broken = Vec::new();
    let mut followed = 0;
    for file in markdown_below(&root) {
        let text = std::fs::read_to_string(&file).unwrap();
        for link in links(&text) {
            if link.target.starts_with("http:") || link.target.starts_with("https:") {
                continue;
            }
            followed += 1;
            if let Some(why) = follow(&file, &text, &link.target) {
                let file = file.strip_prefix(&root).unwrap().display();
                broken.push(format!("{file}:{}: {}: {why}", link.line, link.target));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(followed > 50, "only {followed} links were found");
}

fn follow(file: &Path, text: &str, target: &str) -> Option<String> {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let there = file.parent().unwrap().join(path);
    let there = if path.is_empty() { file.to_owned() } else { there };
    if !there.exists() {
        return Some("there is no such file".to_owned());
    }
    if anchor.is_empty() {
        return None;
    }
    let other =
        if path.is_empty() { text.to_owned() } else { std::fs::read_to_string(&there).ok()? };
    let known = anchors(&other);
    (!known.iter().any(|known| known == anchor)).then(|| format!("there is no heading #{anchor}"))
}

/// The book is also read as HTML, where the rest of the repository is not.
#[test]
fn the_book_links_within_itself() {
    for file in markdown_below(&sources()) {
        let folder = file.parent().unwrap();
        for link in links(&std::fs::read_to_string(&file).unwrap()) {
            let path = link.target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.starts_with("https:") {
                let there = folder.join(path).canonicalize().unwrap();
                let line = format!("{}:{}", file.display(), link.line);
                assert!(there.starts_with(sources()), "{line}: {} is not of the book", link.target);
            }
        }
    }
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let here = root().join("README.md");
    assert_eq!(follow(&here, "# A b", "#a-b"), None);
    assert_eq!(follow(&here, "", "CONTRIBUTING.md"), None);
    assert!(follow(&here, "# A b", "#a").is_some());
    assert!(follow(&here, "", "NO.md").is_some());
}
