//! No diagnostic shows a secret of the configuration, whatever is wrong with it.

use std::fs;

use cts_tasks::{Diagnostic, config::Registry};
use proptest::prelude::*;

use super::support::{AnyDriver, errors, loader, loader_of, source, task_text};

/// Stands wherever a secret may stand; every piece of it would be found.
const SECRET: &str = "Zq7XkVWv3JpQ9rLm";

/// A file with a secret in each place that may hold one.
const HCL: &str = r#"
log_level = "INFO"
consul {
  address = "localhost:8500"
  token = "Zq7XkVWv3JpQ9rLm"
  auth { username = "me" password = "Zq7XkVWv3JpQ9rLm" }
}
vault { address = "https://vault" token = "Zq7XkVWv3JpQ9rLm" }
# the token was Zq7XkVWv3JpQ9rLm
terraform_provider "aws" {
  region = "us"
  name = "Zq7XkVWv3JpQ9rLm"
  keys = ["a", "Zq7XkVWv3JpQ9rLm"]
  nested { id = "Zq7XkVWv3JpQ9rLm" }
  cert = <<EOT
Zq7XkVWv3JpQ9rLm
EOT
  task_env { HOME = "Zq7XkVWv3JpQ9rLm" }
}
driver "terraform" {
  version = "1.2.3"
  backend "pg" { conn_str = "Zq7XkVWv3JpQ9rLm" path = "Zq7XkVWv3JpQ9rLm" }
}
task {
  name = "t"
  module = "./m"
  variables = { id = "\"Zq7XkVWv3JpQ9rLm\"" }
  env { HOME = "Zq7XkVWv3JpQ9rLm" }
  condition "services" { names = ["web"] }
}
"#;

const JSON: &str = r#"{
  "log_level": "INFO",
  "consul": {"address": "localhost:8500", "token": "Zq7XkVWv3JpQ9rLm"},
  "vault": {"address": "https://vault", "token": "Zq7XkVWv3JpQ9rLm"},
  "terraform_provider": [{"aws": {
    "name": "Zq7XkVWv3JpQ9rLm", "keys": ["Zq7XkVWv3JpQ9rLm"],
    "nested": {"id": "Zq7XkVWv3JpQ9rLm"}
  }}],
  "driver": {"terraform": {"version": "1.2.3", "backend": {"pg": {"path": "Zq7XkVWv3JpQ9rLm"}}}},
  "task": [{
    "name": "t", "module": "./m", "condition": {"services": {"names": ["web"]}},
    "variables": {"id": "\"Zq7XkVWv3JpQ9rLm\""}, "env": {"HOME": "Zq7XkVWv3JpQ9rLm"}
  }]
}
"#;

/// The piece of the secret that a text shows; a mutation may split it.
fn leaked(text: &str) -> Option<&str> {
    let mut parts = (0..=SECRET.len() - 6).filter_map(|start| SECRET.get(start..start + 6));
    parts.find(|part| text.contains(part))
}

fn shown(found: &[Diagnostic]) -> String {
    let both = found.iter().map(|found| format!("{}\n{found}\n{found:?}\n", found.render()));
    both.collect()
}

/// All that is said about a text, also if it is only warnings.
fn said(path: &str, text: &str) -> String {
    match loader().load_sources(vec![source(path, text)]) {
        Ok(loaded) => shown(&loaded.config.warnings),
        Err(found) => shown(&found),
    }
}

/// Before, each of these showed the secret.
#[test]
fn an_excerpt_shows_no_secret() {
    for text in [
        "consul {\n token = \"Zq7XkVWv3JpQ9rLm\" prot = 1\n}",
        "consul { tokn = \"Zq7XkVWv3JpQ9rLm\" }",
        "consul {\n token = Zq7XkVWv3JpQ9rLm\n}",
        "consul {\n token = \"Zq7XkVWv3JpQ9rLm\n}",
        "consul {\n token \"Zq7XkVWv3JpQ9rLm\"\n}",
        "consul {\n token = [\"Zq7XkVWv3JpQ9rLm\", 1]\n}",
        "consul { address = \"https://me:Zq7XkVWv3JpQ9rLm@[consul\" }",
        "terraform_provder \"aws\" { name = \"Zq7XkVWv3JpQ9rLm\" }",
        "terraform_provider \"aws\" { alias = [\"Zq7XkVWv3JpQ9rLm\", 2] }",
        "terraform_provider \"aws\" { task_env { A = [\"Zq7XkVWv3JpQ9rLm\", 1] } }",
        "driver \"terraform\" { backnd \"s3\" { key = \"Zq7XkVWv3JpQ9rLm\" } } port = \"x\"",
        "driver \"other\" { backend \"s3\" { key = \"Zq7XkVWv3JpQ9rLm\" } }",
        "port = \"x\" # Zq7XkVWv3JpQ9rLm",
        "port = 1 }\nname = \"Zq7XkVWv3JpQ9rLm\"\nlicense = 1",
        "# the token was\n Zq7XkVWv=3JpQ9rLm",
        "vault { address = \"https://vault\" name = \"Zq7XkVWv3JpQ9rLm\" }",
        // The block has lost its brace, and yet braces match.
        "{ driver \"terraform\" { backend \"pg\" o path = 1 path = \"Zq7XkVWv3JpQ9rLm\" } }",
        "driver \"terraform\" {\nbackend \"pg\"\npath = \"Zq7XkVWv3JpQ9rLm\"\n}",
        "driver \"terraform\" {\nbackend \"pg= { a \" \"Zq7XkVWv3JpQ9rLm\" path = 1 }",
        "consul { token = Zq7XkVWv3JpQ9rLm1 }",
        "consul { token = 0xZq7XkVWv3JpQ9rLm }",
    ] {
        let said = said("test.hcl", text);
        assert!(!said.is_empty(), "{text}");
        assert_eq!(leaked(&said), None, "{text}\n{said}");
    }
    let variables = task_text("variables = { a = \"Zq7XkVWv3JpQ9rLm (\" }\ncondition \"x\" {}");
    assert_eq!(leaked(&said("test.hcl", &variables)), None);
}

#[test]
fn a_file_of_variables_is_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "name = \"Zq7XkVWv3JpQ9rLm\" x",
        "name = f(\"Zq7XkVWv3JpQ9rLm\")",
        "a { id = \"Zq7XkVWv3JpQ9rLm\" }",
    ] {
        // Whatever the file is called.
        let path = folder.path().join("vars.hcl");
        fs::write(&path, text).unwrap();
        let found = errors(&task_text(&format!(
            "variable_files = [{path:?}]\ncondition \"services\" {{ names = [\"a\"] }}"
        )));
        assert!(found[0].render().contains("vars.hcl:1:"), "{}", found[0].render());
        assert_eq!(leaked(&shown(&found)), None, "{}", shown(&found));
    }
}

#[test]
fn what_is_no_secret_is_shown() {
    for (text, excerpt) in [
        (
            "syslog {\n  facility = \"local9\"\n}",
            "2 |   facility = \"local9\"\n  |              ^^^^^^^^",
        ),
        ("port = \"many\"", "1 | port = \"many\"\n  |        ^^^^^^"),
        ("prot = 1", "1 | prot = [redacted]\n  | ^^^^"),
        (
            "consul { token = [\"Zq7XkVWv3JpQ9rLm\", 1] }",
            "1 | consul { token = [[redacted], [redacted]] }\n  |                  ^^^^^^^^^^^^^^^^^^^^^^^^",
        ),
    ] {
        let found = errors(text);
        let rendered = found[0].render();
        assert!(rendered.contains(excerpt), "{rendered}");
    }
    let kv = task_text("condition \"consul-kv\" { pth = \"a\" path = \"b\" recurse = \"x\" }");
    let rendered = shown(&errors(&kv));
    assert!(rendered.contains("path = \"b\" recurse = \"x\""), "{rendered}");
}

/// What a person, an editor or a disk may do to a file.
#[derive(Debug, Clone)]
enum Mutation {
    Remove(usize),
    Insert(usize, char),
    Swap(usize, usize),
    Cut(usize),
    Join(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = 0_usize..2000;
    prop_oneof![
        4 => at.clone().prop_map(Mutation::Remove),
        4 => (at.clone(), prop::sample::select(r#"{}[]"'=:,#\ab1$<"#.chars().chain(['\n']).collect::<Vec<_>>()))
            .prop_map(|(at, c)| Mutation::Insert(at, c)),
        1 => (at.clone(), at.clone()).prop_map(|(one, other)| Mutation::Swap(one, other)),
        1 => at.clone().prop_map(Mutation::Cut),
        1 => at.prop_map(Mutation::Join),
    ]
}

fn mutated(text: &str, mutations: &[Mutation]) -> String {
    let mut text: Vec<char> = text.chars().collect();
    for mutation in mutations {
        let length = text.len().max(1);
        match *mutation {
            Mutation::Remove(at) if !text.is_empty() => drop(text.remove(at % length)),
            Mutation::Insert(at, c) => text.insert(at % length, c),
            Mutation::Swap(one, other) if !text.is_empty() => {
                text.swap(one % length, other % length);
            }
            Mutation::Cut(at) => text.truncate(at % length),
            Mutation::Join(at) => {
                if let Some(next) = text.iter().skip(at % length).position(|c| *c == '\n') {
                    text.remove(at % length + next);
                }
            }
            Mutation::Remove(_) | Mutation::Swap(..) => {}
        }
    }
    text.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("SOAK").is_some() { 50_000 } else { 500 }))]

    #[test]
    fn no_mutation_makes_a_diagnostic_show_a_secret(
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        for (path, text) in [("test.hcl", HCL), ("test.json", JSON)] {
            let text = mutated(text, &mutations);
            let said = said(path, &text);
            // A secret that has come to stand where a key does is named as a key.
            let lines = said.lines().filter(|line| !line.contains("invalid keys: "));
            let said = lines.collect::<Vec<_>>().join("\n");
            prop_assert_eq!(leaked(&said), None, "{}\n---\n{}", said, text);
        }
    }
}

/// The base of the mutations is right, so that each finding comes from a mutation.
#[test]
fn the_file_with_secrets_is_valid() {
    for (path, text) in [("test.hcl", HCL), ("test.json", JSON)] {
        let registry = Registry::new().driver(AnyDriver::new("terraform", &[]));
        let loaded = loader_of(registry).load_sources(vec![source(path, text)]);
        assert!(loaded.is_ok(), "{}", shown(&loaded.unwrap_err()));
    }
}
