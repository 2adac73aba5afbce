//! The block `storage`.

use std::path::PathBuf;

use cts_tasks::config::Storage;

use super::support::{error, load};

#[test]
fn a_file_is_taken_from_the_working_directory() {
    let path = |text| match load(text).storage {
        Some(Storage::File { path }) => path,
        other => panic!("{other:?}"),
    };
    let base = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(path("storage \"file\" {\n  path = \"state.json\"\n}"), base.join("state.json"));
    assert_eq!(path("storage \"file\" { path = \"/var/s\" }"), PathBuf::from("/var/s"));
    assert_eq!(load("port = 1").storage, None);
    let shown = load("storage \"file\" { path = \"/var/s\" }").to_redacted_json();
    assert_eq!(shown["storage"]["file"]["path"], "/var/s");
}

#[test]
fn mistakes_name_their_place() {
    for (text, expected) in [
        ("storage \"file\" {}", "test.hcl:1:16: storage.file: path is required"),
        ("storage \"consul\" {}", "test.hcl:1:1: unsupported storage: consul"),
        ("storage {}", "test.hcl:1:1: storage: expected one kind of storage"),
    ] {
        assert_eq!(error(text), expected, "{text}");
    }
    assert!(error("storage \"file\" { path = \"a\"\n paths = 1 }").contains("invalid keys: paths"));
}
