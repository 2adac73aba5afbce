//! The two formats: what HCL version 1 allows, and the shapes of JSON.

use cts_tasks::{Config, Literal, ModuleInput};

use super::support::{load, loader, show, source};

#[track_caller]
fn load_json(text: &str) -> Config {
    match loader().load_sources(vec![source("test.json", text)]) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{}", show(&errors)),
    }
}

/// The arguments of the only provider.
#[track_caller]
fn arguments(body: &str) -> String {
    let config = load(&format!("terraform_provider \"p\" {{\n{body}\n}}"));
    Literal::Map(config.providers[0].arguments.clone()).to_expression()
}

#[test]
fn keys_may_be_quoted_and_objects_are_blocks() {
    for text in [
        "\"port\" = 1\nconsul = { kv_path = \"p\", }",
        "port = 1 consul { \"kv_path\" = \"p\" }",
        "consul \"kv_path\" {}\nport = 1",
    ] {
        let Ok(loaded) = loader().load_sources(vec![source("t.hcl", text)]) else {
            assert!(text.starts_with("consul \""), "a label is a key around an object: {text}");
            continue;
        };
        assert_eq!((loaded.config.port, loaded.config.consul.kv_path.as_str()), (1, "p"), "{text}");
    }
}

#[test]
fn comments_line_ends_and_byte_order_marks_are_skipped() {
    let config = load("\u{feff}# a\r\n// b\r\n/* c\r\n* / d */ port = 7 # e\r\nid = \"x\" // f");
    assert_eq!((config.port, config.id.as_str()), (7, "x"));
}

#[test]
fn numbers_keep_their_digits() {
    assert_eq!(
        arguments("a = 0x1F\nb = -1.50\nc = 1e30\nd = 12345678901234567890.5\ne = 017"),
        r#"{"a":31,"b":-1.50,"c":1e30,"d":12345678901234567890.5,"e":15}"#
    );
}

#[test]
fn strings_are_unescaped_but_interpolations_are_not() {
    assert_eq!(
        arguments(
            r#"a = "\"\\\n\t\u00e9\U0001F600\x41\101"
b = "x ${lookup("k", "\n")} y""#
        ),
        "{\"a\":\"\\\"\\\\\\n\\t\u{e9}\u{1F600}AA\",\"b\":\"x $${lookup(\\\"k\\\", \\\"\\\\n\\\")} y\"}"
    );
}

#[test]
fn heredocs_keep_lines_and_lose_the_indent_of_their_mark() {
    assert_eq!(
        arguments(
            "a = <<EOT\n  x\n y\nEOT\nb = <<-EOT\r\n    x\r\n      y\r\n    EOT\r\nc = <<-E\n x\n  E\n"
        ),
        r#"{"a":"  x\n y\n","b":"x\n  y\n","c":" x\n"}"#
    );
}

/// Named after upstream's defect: a list of one item became the item.
#[test]
fn a_list_of_one_item_stays_a_list() {
    assert_eq!(
        arguments("tags = [\"a\"]\nnested = { l = [[1]] }\nb { x = 1 }\nr { x = 1 }\nr { x = 2 }"),
        r#"{"b":{"x":1},"nested":{"l":[[1]]},"r":[{"x":1},{"x":2}],"tags":["a"]}"#
    );
}

#[test]
fn a_lone_object_is_a_list_of_one_in_json() {
    let config = load_json(
        r#"{ "task": { "name": "a", "module": "m", "condition": [{ "services": [{ "names": "web" }] }] },
            "terraform_provider": { "p": [{ "tags": ["a"] }] }, "consul": [{ "kv_path": "k" }] }"#,
    );
    assert_eq!(config.tasks[0].service_names(), ["web"]);
    assert_eq!(config.providers[0].arguments["tags"], Literal::List(vec!["a".into()]));
    assert_eq!(config.consul.kv_path, "k");
}

/// Upstream issue 714: module inputs as one object, or as an array of objects.
#[test]
fn module_inputs_in_json_are_an_object_or_a_list_of_objects() {
    let task = |inputs: &str| {
        load_json(&format!(
            r#"{{ "task": [{{ "name": "a", "module": "m", "condition": {{ "schedule": {{ "cron": "@daily" }} }},
                "module_input": {inputs} }}] }}"#
        ))
        .tasks
        .remove(0)
    };
    let object = task(r#"{ "services": { "names": ["a"] }, "consul-kv": { "path": "k" } }"#);
    let list = task(r#"[{ "services": { "names": ["a"] } }, { "consul-kv": { "path": "k" } }]"#);
    assert_eq!(object, list);
    assert!(matches!(list.module_inputs[1], ModuleInput::ConsulKv(_)));
}

#[test]
fn weak_types_are_taken_as_upstream_takes_them() {
    let config = load_json(
        r#"{ "port": "8502", "id": 5, "log_level": "trace",
            "consul": { "service_registration": { "enabled": "false" }, "tls": { "verify": 0 } },
            "buffer_period": { "enabled": 1, "min": 0 },
            "task": [{ "name": "a", "module": 12, "enabled": "F", "providers": "p",
              "condition": { "services": { "names": "web", "cts_user_defined_meta": { "n": 5, "b": true } } } }] }"#,
    );
    assert_eq!((config.port, config.id.as_str()), (8502, "5"));
    assert!(!config.consul.service_registration.enabled);
    assert!(!config.consul.tls.unwrap().verify);
    let task = &config.tasks[0];
    assert_eq!((task.module.as_str(), task.enabled, task.providers.len()), ("12", false, 1));
    let (selection, _) = task.service_selection().unwrap();
    let text = serde_json::to_string(selection).unwrap();
    assert!(text.contains(r#"{"b":"1","n":"5"}"#), "{text}");
}

#[test]
fn null_is_as_if_the_key_were_not_there() {
    let config = load_json(
        r#"{ "port": null, "consul": { "token": null }, "vault": null, "task": [{ "name": "a", "module": "m",
            "version": null, "condition": { "services": { "names": ["a"], "regexp": null,
            "cts_user_defined_meta": { "a": null, "b": "c" } } } }] }"#,
    );
    assert_eq!(config.port, 8558);
    let (selection, _) = config.tasks[0].service_selection().unwrap();
    let text = serde_json::to_string(selection).unwrap();
    assert!(text.contains(r#"{"b":"c"}"#), "{text}");
}

#[test]
fn an_attribute_that_stands_twice_is_warned_about() {
    let config = load("port = 1\nport = 2");
    assert_eq!(config.port, 2);
    assert_eq!(
        config.warnings[0].to_string(),
        "test.hcl:2:1: port is set more than once (the last one counts)"
    );
}
