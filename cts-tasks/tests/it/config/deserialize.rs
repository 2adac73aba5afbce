//! Settings of drivers that are read into types of serde's.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use consul_watch::GoDuration;
use cts_tasks::{
    ConfigValue, Diagnostic, DriverFactory, DriverKind, DriverSettings, config::Registry,
    testing::RecordingDriver,
};
use serde::{Deserialize, de::DeserializeOwned};

use super::support::{AnyDriver, loader_of, short, source};

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Settings {
    folder: PathBuf,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    ratio: Option<f64>,
    #[serde(default)]
    dry: bool,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    wait: Option<GoDuration>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    check: Option<Check>,
    #[serde(default)]
    frontend: BTreeMap<String, Frontend>,
    #[serde(default)]
    rule: Vec<Rule>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Http,
    Tcp {
        backlog: i32,
    },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Check {
    path: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Frontend {
    bind: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct Rule {
    action: String,
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Diagnostic>> {
    read_as("test.hcl", text)
}

fn read_as<T: DeserializeOwned>(file: &str, text: &str) -> Result<T, Vec<Diagnostic>> {
    ConfigValue::parse(source(file, text)).map_err(|error| vec![error])?.deserialize_into()
}

#[track_caller]
fn mistakes(text: &str) -> Vec<String> {
    read::<Settings>(text).unwrap_err().iter().map(short).collect()
}

#[test]
fn hcl_and_json_read_the_same() {
    let hcl = "FOLDER = \"/etc\"\nport = \"8080\"\nratio = 2.5\ndry = \"true\"\ntags = \"one\"\n\
               wait = \"1m30s\"\nmode \"tcp\" {\n  backlog = -5\n}\ncheck {\n  path = 5\n}\n\
               frontend \"a\" {\n  bind = \":80\"\n}\nfrontend \"b\" {\n  bind = \":81\"\n}\n\
               rule {\n  action = \"deny\"\n}\nrule {\n  action = \"allow\"\n}\n";
    let json = r#"{"folder": "/etc", "port": 8080, "ratio": "2.5", "dry": true, "tags": ["one"],
        "wait": "1m30s", "mode": {"tcp": {"backlog": -5}}, "check": [{"path": "5"}],
        "frontend": {"a": {"bind": ":80"}, "b": {"bind": ":81"}},
        "rule": [{"action": "deny"}, {"action": "allow"}]}"#;
    let expected = Settings {
        folder: "/etc".into(),
        port: 8080,
        ratio: Some(2.5),
        dry: true,
        tags: vec!["one".into()],
        wait: Some("1m30s".parse().unwrap()),
        mode: Mode::Tcp { backlog: -5 },
        check: Some(Check { path: "5".into() }),
        frontend: [("a", ":80"), ("b", ":81")]
            .map(|(name, bind)| (name.into(), Frontend { bind: bind.into() }))
            .into(),
        rule: ["deny", "allow"].map(|action| Rule { action: action.into() }).into(),
    };
    assert_eq!(read::<Settings>(hcl).unwrap(), expected);
    assert_eq!(read_as::<Settings>("test.json", json).unwrap(), expected);
}

#[test]
fn each_mistake_names_file_line_and_key() {
    let cases = [
        ("port = 1", "test.hcl:1:1: folder is required"),
        ("folder = []", "test.hcl:1:10: folder: expected a string, found a list"),
        ("folder = true", "test.hcl:1:10: folder: expected a string, found a boolean"),
        (
            "folder = \"f\"\nport = 65536",
            "test.hcl:2:8: port: expected a whole number from 0 to 65535",
        ),
        (
            "folder = \"f\"\nport = \"x\"",
            "test.hcl:2:8: port: expected a whole number from 0 to 65535",
        ),
        ("folder = \"f\"\ndry = 2", "test.hcl:2:7: dry: expected a boolean, found a number"),
        (
            "folder = \"f\"\ntags = [\"a\", {}]",
            "test.hcl:2:14: tags[1]: expected a string, found an object",
        ),
        ("folder = \"f\"\nmode = \"udp\"", "test.hcl:2:8: mode: expected one of http, tcp"),
        (
            "folder = \"f\"\nmode = \"tcp\"",
            "test.hcl:2:8: mode: tcp needs a block or a value of its own",
        ),
        (
            "folder = \"f\"\nmode \"tcp\" {\n  backlog = {}\n}",
            "test.hcl:3:13: mode.tcp.backlog: expected a whole number from -2147483648 to 2147483647, found an object",
        ),
        ("folder = \"f\"\ncheck {}", "test.hcl:2:7: check: path is required"),
        ("folder = \"f\"\ncheck = 5", "test.hcl:2:9: check: expected a block, found a number"),
        (
            "folder = \"f\"\ncheck { path = \"a\" }\ncheck { path = \"b\" }",
            "test.hcl:3:1: check: only one such block can be configured",
        ),
        ("folder = \"f\"\nfolder = \"g\"", "test.hcl:2:1: folder: is set more than once"),
        (
            "folder = \"f\"\nfrontend \"a\" {\n  bind = []\n}",
            "test.hcl:3:10: frontend.a.bind: expected a string, found a list",
        ),
        (
            "folder = \"f\"\nrule {\n  action = \"a\"\n}\nrule {\n}",
            "test.hcl:5:6: rule[1]: action is required",
        ),
        ("folder = \"f\"\nwait = \"soon\"", "test.hcl:2:8: wait: invalid duration"),
    ];
    for (text, expected) in cases {
        let found = mistakes(text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{text}\n{found:?}");
    }
}

#[test]
fn every_unknown_key_is_told_also_below() {
    let text =
        "folders = \"f\"\nfolder = \"f\"\ncheck {\n  path = \"p\"\n  pat = 1\n}\nweather = 1\n";
    assert_eq!(
        mistakes(text),
        [
            "test.hcl:1:1: unknown key: folders",
            "test.hcl:7:1: unknown key: weather",
            "test.hcl:5:3: unknown key: check.pat",
        ]
    );
    let found = read::<Settings>(text).unwrap_err();
    assert_eq!(found[0].help.as_deref(), Some("did you mean folder?"));
}

#[test]
fn no_message_shows_a_value() {
    #[derive(Debug, Deserialize)]
    struct Secret {
        #[expect(dead_code, reason = "only read")]
        token: u32,
        #[expect(dead_code, reason = "only read")]
        kind: Mode,
    }
    for text in ["token = \"hunter2\"", "token = 1\nkind = \"hunter2\"", "token = [\"hunter2\"]"] {
        let found = read::<Secret>(text).unwrap_err();
        let shown: String = found.iter().map(Diagnostic::render).collect();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(!format!("{found:?}").contains("hunter2"));
    }
}

/// Keeps what it read.
#[derive(Debug, Default)]
struct Reading(Mutex<Option<Settings>>);

impl DriverKind for Reading {
    fn label(&self) -> &'static str {
        "haproxy"
    }

    fn task_blocks(&self) -> &'static [&'static str] {
        &["limits"]
    }

    fn configure(
        &self,
        settings: DriverSettings<'_>,
        _warnings: &mut Vec<Diagnostic>,
    ) -> Result<Arc<dyn DriverFactory>, Vec<Diagnostic>> {
        for block in settings.task_blocks {
            block.deserialize_into::<Check>()?;
        }
        *self.0.lock().unwrap() = Some(settings.deserialize_into()?);
        Ok(Arc::new(RecordingDriver::default()))
    }
}

#[test]
fn a_kind_reads_its_block_and_those_of_tasks() {
    let load = |text: &str| {
        let kind = Arc::new(Reading::default());
        let loader = loader_of(Registry::new().driver(Arc::<Reading>::clone(&kind)));
        let loaded = loader.load_sources(vec![source("test.hcl", text)]);
        let errors = loaded.err().unwrap_or_default();
        let settings = kind.0.lock().unwrap().take();
        (settings, errors.iter().map(short).collect::<Vec<_>>())
    };
    // A task of such a driver needs no module.
    let task = |limits: &str| format!("task {{\n  name = \"web\"\n  limits {{ {limits} }}\n}}\n");
    let block = "driver \"haproxy\" {\n  folder = \"/etc\"\n}\n";
    let (settings, errors) = load(&format!("{block}{}", task("path = \"p\"")));
    assert_eq!(errors, [""; 0]);
    assert_eq!(settings.unwrap().folder, PathBuf::from("/etc"));
    let (_, errors) = load(&format!("{block}{}", task("")));
    assert_eq!(errors, ["test.hcl:6:10: task \"web\".limits: path is required"]);
    let (_, errors) = load("driver \"haproxy\" {\n  folder = []\n}\n");
    assert_eq!(errors, ["test.hcl:2:12: driver.haproxy.folder: expected a string, found a list"]);
    let (_, errors) = load("driver \"haproxy\" {}\n");
    assert_eq!(errors, ["test.hcl:1:18: driver.haproxy: folder is required"]);
}

#[test]
fn a_driver_says_what_its_tasks_must_have() {
    let errors = |required, task: &str| {
        let kind = AnyDriver::requiring("haproxy", &["limits"], required);
        let loader = loader_of(Registry::new().driver(kind));
        let text = format!("driver \"haproxy\" {{}}\ntask {{\n  name = \"web\"\n{task}}}\n");
        let loaded = loader.load_sources(vec![source("test.hcl", &text)]);
        loaded.err().unwrap_or_default().iter().map(short).collect::<Vec<_>>()
    };
    assert_eq!(errors(&[], ""), [""; 0]);
    assert_eq!(errors(&["module"], ""), ["test.hcl:2:6: module for the task is required"]);
    let wanted = &["limits", "providers", "version", "condition"];
    assert_eq!(
        errors(wanted, "version = \"1\"\n"),
        [
            "test.hcl:2:6: limits is required of a task by driver \"haproxy\"",
            "test.hcl:2:6: providers is required of a task by driver \"haproxy\"",
            "test.hcl:2:6: condition is required of a task by driver \"haproxy\"",
        ]
    );
    assert_eq!(errors(&["limits"], "limits {}\n"), [""; 0]);
}
