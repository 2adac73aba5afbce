//! No text makes a reader panic or hang.

use std::fs;

use cts_tasks::Literal;
use proptest::prelude::*;

use super::support::{loader, loader_of, source, task_text};

const HCL: &str = include_str!("../../data/long.hcl");
const JSON: &str = include_str!("../../data/long.json");
const TFVARS: &str = include_str!("../../data/lb.tfvars");

/// Pieces that mean something to one of the readers.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    "=",
    ":",
    ",",
    "#",
    "/*",
    "*/",
    "//",
    "<<EOT",
    "<<-EOT\n",
    "EOT",
    "${",
    "%{",
    "$${",
    "\n",
    "\r\n",
    "\0",
    "\u{feff}",
    "-",
    ".",
    "0x",
    "1e",
    "1e999999999",
    "null",
    "true",
    "task",
    "condition",
    "\"services\"",
    "driver",
    "{{ env \"A\" }}",
    "\u{1F600}",
    "\\u",
    "\\ud800",
    "(",
    "for x in y :",
    "?",
    "...",
];

/// One change of a text, by position in thousandths of its length.
#[derive(Debug, Clone)]
enum Edit {
    Insert(usize, String),
    Remove(usize, usize),
    Repeat(usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let piece = prop_oneof![
        prop::sample::select(PIECES).prop_map(str::to_owned),
        any::<String>(),
        (prop::sample::select(PIECES), 1_usize..200).prop_map(|(piece, times)| piece.repeat(times)),
    ];
    prop_oneof![
        (0_usize..1000, piece).prop_map(|(at, piece)| Edit::Insert(at, piece)),
        (0_usize..1000, 1_usize..30).prop_map(|(at, length)| Edit::Remove(at, length)),
        (0_usize..1000, 1_usize..200).prop_map(|(at, length)| Edit::Repeat(at, length)),
    ]
}

/// The text after some edits; positions count characters.
fn mutate(text: &str, edits: &[Edit]) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    for edit in edits {
        let position = |at: usize| at * characters.len() / 1000;
        match edit {
            Edit::Insert(at, piece) => {
                let at = position(*at);
                characters.splice(at..at, piece.chars());
            }
            Edit::Remove(at, length) => {
                let at = position(*at);
                let end = (at + length).min(characters.len());
                characters.drain(at..end);
            }
            Edit::Repeat(at, length) => {
                let at = position(*at);
                let end = (at + length).min(characters.len());
                let copy = characters[at..end].to_vec();
                characters.splice(at..at, copy);
            }
        }
    }
    characters.into_iter().collect()
}

/// Loads, and shows whatever is found.
fn try_text(path: &str, text: &str) {
    match loader().load_sources(vec![source(path, text)]) {
        Ok(loaded) => drop(loaded.config.to_redacted_json().to_string()),
        Err(errors) => {
            assert!(!errors.is_empty());
            for error in errors {
                assert!(!error.render().is_empty());
            }
        }
    }
}

fn try_variables(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.tfvars"), bytes).unwrap();
    let text = task_text("services = [\"a\"]\nvariable_files = [\"a.tfvars\"]");
    let loader = loader().base_dir(directory.path());
    if let Err(errors) = loader.load_sources(vec![source("test.hcl", &text)]) {
        assert!(errors.iter().all(|error| !error.render().is_empty()));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.hcl", "a.json"] {
            let path = directory.path().join(name);
            fs::write(&path, &bytes).unwrap();
            if let Err(errors) = loader_of(cts_tasks::config::Registry::new()).load(&[path]) {
                prop_assert!(!errors.is_empty());
            }
        }
        try_variables(&bytes);
    }

    #[test]
    fn no_pieces_make_a_reader_panic(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        for separator in ["", " "] {
            let text = pieces.join(separator);
            try_text("a.hcl", &text);
            try_text("a.json", &text);
            try_variables(text.as_bytes());
            let _literal = text.parse::<Literal>().is_ok();
        }
    }

    #[test]
    fn no_edit_of_a_right_file_makes_a_reader_panic(edits in prop::collection::vec(edit(), 1..6)) {
        try_text("a.hcl", &mutate(HCL, &edits));
        try_text("a.json", &mutate(JSON, &edits));
        try_variables(mutate(TFVARS, &edits).as_bytes());
    }
}

#[test]
fn deep_and_long_texts_end_soon() {
    for open in [
        "[", "{", "{a=", "{\"a\":", "(", "\"${", "[[(", "-", "!", "a.", "1 + ", "a ? ", "<<A\n",
        "/*", "\\",
    ] {
        for times in [50, 63, 64, 65, 5_000] {
            let text = open.repeat(times);
            try_text("a.hcl", &format!("driver \"terraform\" {{ x = {text}"));
            try_text("a.json", &format!("{{\"driver\": {text}"));
            try_variables(format!("x = {text}").as_bytes());
        }
    }
    let long = "x".repeat(2_000_000);
    try_text("a.hcl", &format!("id = \"{long}\"\n{long} = 1"));
    try_text("a.json", &format!("{{\"id\": \"{long}\"}}"));
    try_text("a.hcl", &format!("port = {}", "9".repeat(100_000)));
    try_text("a.hcl", &"/**/".repeat(100_000));
    try_text("a.hcl", &"a = 1\n".repeat(50_000));
}
