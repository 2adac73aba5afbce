//! Files and directories: which are read, in which order, and how they merge.

use std::{fs, path::Path, sync::Arc};

use cts_tasks::{Config, ConfigValue, DriverKind, Literal, config::Registry};
use secrecy::ExposeSecret;

use super::support::{AnyDriver, loader, loader_of, short, show, source, try_load};
use crate::authority::Authority;

fn write(directory: &Path, name: &str, text: &str) {
    fs::write(directory.join(name), text).unwrap();
}

#[track_caller]
fn load_dir(directory: &Path) -> Config {
    match loader().load(&[directory.to_owned()]) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{}", show(&errors)),
    }
}

/// Everything that can be compared, secrets included.
fn everything(config: &Config) -> String {
    let token = config.consul.token.as_ref().map(ExposeSecret::expose_secret);
    let auth = config.consul.auth.as_ref().map(|(_, password)| password.expose_secret());
    let vault = config.vault.as_ref().and_then(|vault| vault.token.as_ref());
    let mut parts = vec![
        format!("{:#}\n{:?}", config.to_redacted_json(), config.tasks),
        format!("{token:?} {auth:?} {:?}", vault.map(ExposeSecret::expose_secret)),
        format!("{:?}", config.driver.body.as_ref().map(ConfigValue::to_literal)),
    ];
    parts.extend(config.providers.iter().map(|provider| {
        let env: Vec<_> =
            provider.task_env.iter().map(|(key, value)| (key, value.expose_secret())).collect();
        format!("{} {:?} {env:?}", provider.id(), provider.arguments)
    }));
    parts.join("\n")
}

/// Spec: CTS1
#[test]
fn of_a_directory_the_file_with_the_later_name_wins() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "b.hcl", "port = 2");
    write(directory.path(), "a.hcl", "port = 1\nid = \"a\"");
    let config = load_dir(directory.path());
    assert_eq!((config.port, config.id.as_str()), (2, "a"));
}

/// Spec: CTS2
#[test]
fn tasks_and_providers_are_appended_in_the_order_of_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        format!(
            "task {{\n name = \"{name}\"\n module = \"m\"\n condition \"schedule\" {{ cron = \"@daily\" }}\n}}\n\
             terraform_provider \"{name}\" {{}}\n"
        )
    };
    write(directory.path(), "b.hcl", &file("second"));
    write(directory.path(), "a.hcl", &file("first"));
    let config = load_dir(directory.path());
    let names: Vec<_> = config.tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    let names: Vec<_> = config.providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
}

/// Spec: CTS3
#[test]
fn a_path_that_does_not_exist_is_an_error() {
    for path in ["no/such/file.hcl", "no/such/directory"] {
        let errors = loader().load(&[path.into()]).unwrap_err();
        assert!(errors[0].message.contains(path), "{}", show(&errors));
        assert_eq!(errors.len(), 1);
    }
}

/// Spec: CTS4
#[test]
fn a_long_file_in_hcl_and_its_equal_in_json_give_the_same() {
    let authority = Authority::new();
    let pair = authority.sign("client", &["cts"]);
    let named = |text: &str| {
        let files = [
            (" \"ca_cert\"", authority.ca_file()),
            (" \"ca_path\"", authority.ca_path()),
            (" \"client_cert\"", pair.cert.clone()),
            (" \"client_key\"", pair.key.clone()),
        ];
        files.iter().fold(text.to_owned(), |text, (name, file)| {
            [':', '='].iter().fold(text, |text, sign| {
                text.replace(&format!("{sign}{name}"), &format!("{sign} \"{}\"", file.display()))
            })
        })
    };
    let load =
        |path: &str, text: &str| match loader().load_sources(vec![source(path, &named(text))]) {
            Ok(loaded) => loaded.config,
            Err(errors) => panic!("{}", show(&errors)),
        };
    let hcl = load("long.hcl", include_str!("../../data/long.hcl"));
    let json = load("long.json", include_str!("../../data/long.json"));
    assert_eq!(everything(&hcl), everything(&json));
    assert_eq!(hcl.port, 8502);
    assert_eq!(hcl.tasks[0].module_inputs.len(), 2);
    assert_eq!(hcl.providers[0].arguments["regions"], Literal::List(vec!["eu".into()]));
    for config in [&hcl, &json] {
        let warnings = show(&config.warnings);
        assert_eq!(config.warnings.len(), 1, "{warnings}");
        assert!(
            warnings.contains("kv_namespace: a state in Consul is kept in the namespace"),
            "{warnings}"
        );
    }
}

/// Spec: CTS5
#[test]
fn unknown_keys_and_repeated_blocks_are_errors() {
    let errors = try_load("prot = 1\nconsul {}\nconsul {\n  adress = \"\"\n}\n").unwrap_err();
    let texts: Vec<_> = errors.iter().map(short).collect();
    assert_eq!(
        texts,
        [
            "test.hcl:1:1: 'test.hcl' has invalid keys: prot",
            "test.hcl:3:1: only one 'consul' block can be configured",
        ]
    );
    let errors = try_load("consul {\n  zone = 1\n  tls { x = 1 }\n}\nbad = 1\n").unwrap_err();
    assert_eq!(
        short(&errors[0]),
        "test.hcl:2:3: 'test.hcl' has invalid keys: bad, consul.tls.x, consul.zone"
    );
    assert_eq!(errors[0].also.len(), 2);
}

/// Spec: CTS6
#[test]
fn loading_twice_gives_the_same() {
    let text = include_str!("../../data/worked-example.hcl");
    let loader = loader();
    let load = || loader.load_sources(vec![source("x.hcl", text)]).unwrap().config;
    assert_eq!(everything(&load()), everything(&load()));
}

#[test]
fn the_worked_example_loads() {
    let loaded = try_load(include_str!("../../data/worked-example.hcl")).unwrap();
    let lb = &loaded.config.tasks[0];
    assert_eq!(lb.variables["pool"], "front".into());
    assert_eq!(lb.variables["banner"], "hello\n".into());
    assert_eq!(lb.variables["weights"].to_expression(), "[1,2.50,12345678901234567890123]");
    assert_eq!(lb.working_dir, Path::new("/var/lib/cts/tasks/lb"));
    assert_eq!(loaded.config.tasks[1].working_dir, Path::new("/var/lib/cts/tasks/nightly"));
}

#[test]
fn other_files_are_left_out_and_nothing_at_all_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "empty.hcl", "");
    write(directory.path(), "notes.txt", "not { read");
    write(directory.path(), "upper.HCL", "not { read");
    fs::create_dir(directory.path().join("sub.hcl")).unwrap();
    write(&directory.path().join("sub.hcl"), "x.hcl", "not { read");
    let errors = loader().load(&[directory.path().to_owned()]).unwrap_err();
    assert_eq!(errors[0].message, "no configuration files found");
    assert_eq!(errors.len(), 1);
}

/// Upstream leaves it out without a word.
#[test]
fn a_file_that_is_named_and_has_another_ending_is_warned_about() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "cts.yaml", "port: 1");
    write(directory.path(), "cts.hcl", "port = 1");
    let path = |name| directory.path().join(name);
    let errors = loader().load(&[path("cts.yaml")]).unwrap_err();
    assert_eq!(errors[0].message, "no configuration files found");
    let left_out = format!("{} is left out", path("cts.yaml").display());
    assert_eq!(errors[1].message, left_out);
    let loaded = loader().load(&[path("cts.yaml"), path("cts.hcl")]).unwrap();
    assert_eq!(loaded.config.warnings[0].message, left_out);
}

#[test]
fn paths_are_read_in_the_order_of_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.hcl", "port = 1");
    write(directory.path(), "b.json", "{\"port\": 2}");
    let path = |name| directory.path().join(name);
    let port = |paths: &[_]| loader().load(paths).unwrap().config.port;
    assert_eq!(port(&[path("a.hcl"), path("b.json")]), 2);
    assert_eq!(port(&[path("b.json"), path("a.hcl")]), 1);
    assert_eq!(port(&[directory.path().to_owned(), path("a.hcl")]), 1);
}

#[test]
fn blocks_merge_field_by_field() {
    let kind = AnyDriver::new("terraform", &[]);
    let driver: Arc<dyn DriverKind> = Arc::<AnyDriver>::clone(&kind);
    let loaded = loader_of(Registry::new().driver(driver)).load_sources(vec![
        source(
            "a.hcl",
            "consul {\n address = \"a\"\n kv_path = \"a\"\n}\n\
             driver \"terraform\" {\n log = true\n path = \"a\"\n backend \"consul\" {\n gzip = true\n path = \"a\"\n}\n\
             backend \"s3\" {}\n required_providers {\n x = { source = \"o/x\" }\n y = \"1\"\n }\n}\n",
        ),
        source(
            "b.hcl",
            "consul { kv_path = \"b\" }\n\
             driver \"terraform\" {\n path = \"b\"\n backend \"consul\" {\n path = \"b\"\n}\n\
             backend \"local\" {}\n required_providers { x = { version = \"2\" } }\n}\n",
        ),
    ]);
    let config = loaded.unwrap_or_else(|errors| panic!("{}", show(&errors))).config;
    assert_eq!((config.consul.address.as_str(), config.consul.kv_path.as_str()), ("a", "b"));
    let expected: Literal = "{ log = true, path = \"b\", \
        backend = { consul = { gzip = true, path = \"b\" }, s3 = {}, local = {} }, \
        required_providers = { x = { version = \"2\" }, y = \"1\" } }"
        .parse()
        .unwrap();
    assert_eq!(kind.seen().body.unwrap().to_literal(), expected);
}

#[test]
fn a_file_that_cannot_be_parsed_does_not_hide_mistakes_of_others() {
    let errors = loader()
        .load_sources(vec![
            source("a.hcl", "port = = 1"),
            source("b.json", "[]"),
            source("c.hcl", "log_level = \"loud\"\nbad = 1"),
        ])
        .unwrap_err();
    let texts: Vec<_> = errors.iter().map(short).collect();
    assert_eq!(
        texts,
        [
            "a.hcl:1:8: expected a value, found \"=\"",
            "b.json:1:1: expected an object, found a list",
            "c.hcl:1:13: Invalid log level: LOUD. Valid log levels are: [TRACE DEBUG INFO WARN ERR]",
            "c.hcl:2:1: 'c.hcl' has invalid keys: bad",
        ]
    );
}

#[test]
fn bytes_that_are_not_text_have_a_place() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.hcl"), b"id = \"a\"\nport \xff").unwrap();
    let errors = loader().load(&[directory.path().to_owned()]).unwrap_err();
    assert!(
        short(&errors[0]).ends_with("a.hcl:2:6: the file is not text in UTF-8"),
        "{}",
        show(&errors)
    );
}

#[test]
fn one_task_file_is_read_for_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let load = |text: &str| {
        write(directory.path(), "t.hcl", text);
        loader().load_task(&directory.path().join("t.hcl"))
    };
    let task =
        "task {\n name = \"x\"\n module = \"m\"\n condition \"services\" { names = [\"a\"] }\n}\n";
    assert_eq!(load(task).unwrap().name.as_str(), "x");
    let message = |text: &str| load(text).unwrap_err()[0].message.clone();
    assert!(
        message(&task.repeat(2)).ends_with("cannot contain more than 1 task, contains 2 tasks")
    );
    assert!(
        message("port = 1").ends_with("does not contain a task, must contain at least one task")
    );
    assert_eq!(message(&task.replace("module", "source")), "source is deprecated since 0.5");
}

#[test]
fn a_byte_order_mark_is_no_column() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), "a.hcl", "\u{feff}prot = 1");
    write(directory.path(), "b.json", "\u{feff}{\"x\": 1}");
    let errors = loader().load(&[directory.path().to_owned()]).unwrap_err();
    let places: Vec<_> = errors.iter().filter_map(|error| error.place.as_ref()).collect();
    assert_eq!((places[0].line_column(), places[1].line_column()), ((1, 1), (1, 2)));
}
