//! Whatever a file holds, it is read or refused.

use proptest::{collection::vec, prelude::*, sample::select};
use resource_store::{JsonCodec, Registry, file::read_resource};

use crate::support::demo_registry;

const HCL: &str = r#"ID {
  Type = gvk("demo.v2.Festival")
  Name = "korn"
  Tenancy { Partition = "default" }
}
Data {
  Name    = "Korn" # a comment
  Genres  = ["GENRE_METAL", "GENRE_JAZZ"]
  Artists {
    Name         = <<-END
      é
    END
    GroupMembers = { "Jonathan" = "vocals", b = "c" }
  }
}
Metadata = { "foo" = "bar" }
Owner = { Type = gvk("demo.v1.RecordLabel"), Name = "immortal" }
"#;

const JSON: &str = r#"{
  "id": {"name": "korn", "type": {"group": "demo", "groupVersion": "v2", "kind": "Festival"}},
  "owner": {"name": "immortal", "uid": "x"},
  "metadata": {"foo": "bar"}, "version": "1",
  "data": {"name": "é", "genres": ["GENRE_METAL"], "artists": [{"groupMembers": {"a": "b"}}]}
}"#;

/// Pieces that mean something to one of the two languages.
const PIECES: [&str; 26] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "=",
    ":",
    ",",
    "\"",
    "\\",
    "\n",
    "${",
    "%{",
    "<<E\n",
    "#",
    "null",
    "-",
    "1e999",
    "gvk(",
    "ID",
    "Data",
    "Type",
    "\"@type\"",
    "\u{e9}",
    "\0",
];

/// One change: at a place of a thousand, remove so many bytes and put these in.
fn change() -> impl Strategy<Value = (usize, usize, Vec<u8>)> {
    let piece = select(PIECES.to_vec()).prop_map(|piece| piece.as_bytes().to_vec());
    let bytes = prop_oneof![4 => piece, 1 => vec(any::<u8>(), 0..4)];
    (0..1000_usize, 0..9_usize, bytes)
}

fn changed(text: &str, changes: &[(usize, usize, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    for (place, removed, added) in changes {
        let start = bytes.len() * place / 1000;
        let end = bytes.len().min(start + removed);
        bytes.splice(start..end, added.iter().copied());
    }
    bytes
}

/// An error names the file and prints; a resource can be shown as JSON.
fn judge(bytes: &[u8], registry: &Registry) -> Result<(), TestCaseError> {
    match read_resource("f", bytes, registry) {
        Err(error) => {
            let text = error.to_string();
            prop_assert!(text.starts_with("f:") && !error.message().is_empty(), "{}", text);
            if let Some(span) = error.span() {
                let lines = bytes.split(|byte| *byte == b'\n').count();
                prop_assert!(span.start <= span.end && span.end.line <= lines, "{}", text);
            }
        }
        Ok(resource) => {
            let ty = resource.resource_type().cloned().unwrap_or_default();
            if let Some(registration) = registry.resolve(&ty) {
                let codec = JsonCodec::new().unwrap();
                let shown = codec.resource(&resource, registration.schema()).unwrap();
                let again = read_resource("f", shown.to_string().as_bytes(), registry);
                let again =
                    again.map(|again| codec.resource(&again, registration.schema()).unwrap());
                prop_assert_eq!(again.ok(), Some(shown));
            }
        }
    }
    Ok(())
}

#[test]
fn the_documents_that_are_changed_are_valid() {
    let registry = demo_registry();
    for text in [HCL, JSON] {
        assert!(read_resource("f", text.as_bytes(), &registry).unwrap().data.is_some());
        judge(text.as_bytes(), &registry).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        judge(&bytes, &demo_registry())?;
    }

    #[test]
    fn pieces_are_read_or_refused(pieces in vec(select(PIECES.to_vec()), 0..60)) {
        judge(pieces.concat().as_bytes(), &demo_registry())?;
    }

    #[test]
    fn changed_documents_are_read_or_refused(
        text in select(vec![HCL, JSON]),
        changes in vec(change(), 1..6),
    ) {
        judge(&changed(text, &changes), &demo_registry())?;
    }
}
