//! Builds the book with mdBook, so that a page that it cannot show is noticed.

use std::process::Command;

use crate::{
    book::{pages, root},
    programs::SUITE,
};

#[test]
fn the_book_builds() {
    let Some(mdbook) = SUITE.part("mdbook", "html::the_book_builds") else { return };
    let folder = tempfile::tempdir().unwrap();
    let built = Command::new(mdbook.path)
        .arg("build")
        .arg(root().join("docs/guide"))
        .arg("--dest-dir")
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    for page in pages() {
        let html = folder.path().join(&page.name).with_extension("html");
        let text =
            std::fs::read_to_string(&html).unwrap_or_else(|error| panic!("{html:?}: {error}"));
        assert!(text.contains("<main>"), "{html:?}");
    }
}
