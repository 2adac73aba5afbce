//! Each kind of mistake, with the text and the place that an operator sees.

use std::{collections::BTreeMap, sync::Arc};

use cts_tasks::{Diagnostic, Severity, config::Registry};

use super::support::{AnyDriver, error, errors, loader, loader_of, source, task_text};

/// The text, and its only error.
const MISTAKES: &[(&str, &str)] = &[
    // The text of the file.
    ("port 1", "test.hcl:1:1: key \"port\" has no value: expected \"=\" or \"{\""),
    ("port = ", "test.hcl:1:8: expected a value, found the end of the file"),
    ("id = name", "test.hcl:1:6: expected a value, found \"name\""),
    ("id = 'x'", "test.hcl:1:6: unexpected \"'\""),
    ("id = \"x\nport = 1", "test.hcl:1:6: the string is not closed on its line"),
    ("id = \"a\\qb\"", "test.hcl:1:8: invalid escape in a string"),
    ("id = \"${x", "test.hcl:1:7: \"${\" is not closed"),
    ("id = <<EOT\nx\n", "test.hcl:1:6: the heredoc is not closed by its mark"),
    ("id = <<\nx\n", "test.hcl:1:6: a heredoc begins with <<MARK alone at the line's end"),
    ("/* x", "test.hcl:1:1: the comment is not closed"),
    ("port = 0x", "test.hcl:1:8: invalid number"),
    ("port = 089", "test.hcl:1:8: invalid number"),
    ("consul {", "test.hcl:1:9: expected \"}\", found the end of the file"),
    ("}", "test.hcl:1:1: expected a key, found \"}\""),
    ("id: \"x\"", "test.hcl:1:3: expected \"=\" or \"{\", found \":\""),
    ("task \"a\" = 1", "test.hcl:1:10: expected \"{\" after a label, found \"=\""),
    (
        "driver \"terraform\" { a = [1 2] }",
        "test.hcl:1:29: expected \",\" or \"]\", found a number",
    ),
    ("driver \"terraform\" { a = [", "test.hcl:1:27: expected \"]\", found the end of the file"),
    ("port = 1;", "test.hcl:1:9: unexpected \";\""),
    ("{ \"port\": 1 }", "test.hcl:1:1: expected a key, found \"{\""),
    // Keys and types.
    ("task \"lb\" {\n  name = \"lb\"\n}", "test.hcl:1:1: 'test.hcl' has invalid keys: task[0].lb"),
    ("consul \"a\" { address = 1 }", "test.hcl:1:1: 'test.hcl' has invalid keys: consul.a"),
    (
        "terraform_provider {\n  a = 1\n  b = 2\n}",
        "test.hcl:1:1: unexpected terraform_provider block labels: a, b",
    ),
    ("\nprovider \"x\" {}", "test.hcl:2:1: 'test.hcl' has invalid keys: provider"),
    ("high_availability {}", "test.hcl:1:1: 'test.hcl' has invalid keys: high_availability"),
    (
        "driver \"terraform-cloud\" {}",
        "test.hcl:1:1: 'test.hcl' has invalid keys: driver.terraform-cloud",
    ),
    ("driver \"ansible\" {}", "test.hcl:1:1: 'test.hcl' has invalid keys: driver.ansible"),
    ("driver {}", "test.hcl:1:1: missing driver name for the driver block"),
    (
        "driver \"terraform\" {}\ndriver \"terraform\" {}",
        "test.hcl:2:1: only one 'driver' block can be configured",
    ),
    ("syslog { facility = \"local9\" }", "test.hcl:1:21: invalid syslog facility: local9"),
    ("syslog {}\nsyslog {}", "test.hcl:2:1: only one 'syslog' block can be configured"),
    ("consul = 1", "test.hcl:1:10: consul: expected a block, found a number"),
    ("port = \"many\"", "test.hcl:1:8: port: expected a whole number, found a string"),
    ("port = 1.5", "test.hcl:1:8: port: expected a whole number, found a number"),
    ("port = 70000", "test.hcl:1:8: port: 70000 is not a port"),
    ("id = [\"x\", 1]", "test.hcl:1:6: id: expected a string, found a list"),
    (
        "syslog { enabled = \"maybe\" }",
        "test.hcl:1:20: syslog.enabled: expected a boolean, found a string",
    ),
    (
        "log_level = \"loud\"",
        "test.hcl:1:13: Invalid log level: LOUD. Valid log levels are: [TRACE DEBUG INFO WARN ERR]",
    ),
    // Settings.
    (
        "buffer_period { min = \"5\" }",
        "test.hcl:1:23: buffer_period.min: expected a duration, found a string",
    ),
    (
        "buffer_period { min = 5 }",
        "test.hcl:1:23: buffer_period.min: expected a duration, found a number",
    ),
    ("buffer_period { max = \"-5s\" }", "test.hcl:1:23: buffer_period: cannot be negative"),
    (
        "consul { transport { dial_timeout = \"-1s\" } }",
        "test.hcl:1:37: consul.transport.dial_timeout: cannot be negative",
    ),
    (
        "consul { transport { max_idle_conns = -1 } }",
        "test.hcl:1:39: consul.transport.max_idle_conns: expected a number from 0 to 4294967295",
    ),
    (
        "consul { watch_connections = 11 }",
        "test.hcl:1:30: consul.watch_connections: expected a number from 12 to 65535",
    ),
    (
        "consul { watch_connections = 65536 }",
        "test.hcl:1:30: consul.watch_connections: expected a number from 12 to 65535",
    ),
    (
        "consul { service_registration { default_check { address = \"cts:8558\" } } }",
        "test.hcl:1:59: default check address must include scheme (http or https)",
    ),
    (
        "consul { service_registration { default_check { address = \"http:// x\" } } }",
        "test.hcl:1:59: default check address is not a URL",
    ),
    ("consul { address = \"http://a b\" }", ""),
    (
        "tls { enabled = true }",
        "test.hcl:1:5: key and cert are required if TLS is enabled on the CTS API",
    ),
    (
        "tls { cert = \"c\" }",
        "test.hcl:1:5: key is required if cert is configured for TLS on the CTS API",
    ),
    (
        "terraform_provider {}",
        "test.hcl:1:1: missing provider name for the terraform_provider block",
    ),
    ("terraform_provider \"p\" = 1", "test.hcl:1:24: expected \"{\" after a label, found \"=\""),
    ("terraform_provider { p = 1 }", "test.hcl:1:1: unexpected terraform_provider block format"),
    (
        "terraform_provider \"p\" { task_env = \"x\" }",
        "test.hcl:1:37: unexpected task_env block format: task_env should be a map of strings",
    ),
    (
        "terraform_provider \"p\" { task_env { A = 1 } }",
        "test.hcl:1:41: unexpected task_env block format: value for \"A\" should be a string",
    ),
    ("service {}", "test.hcl:1:9: logical name for the Consul service is required"),
    (
        "service { name = \"a\" }\nservice {\n  name = \"b\"\n  id = \"a\"\n}",
        "test.hcl:4:8: unique service IDs are required: a",
    ),
    (
        "vault {\n address = \"v\"\n vault_agent_token_file = \"/no/file\"\n}",
        "test.hcl:3:27: unable to read vault_agent_token_file /no/file: No such file or directory (os error 2)",
    ),
    // Tasks.
    (
        "task {\n  module = \"m\"\n  condition \"schedule\" { cron = \"@daily\" }\n}",
        "test.hcl:1:6: unique name for the task is required",
    ),
    (
        "task {\n  name = \"1st\"\n  module = \"m\"\n  condition \"schedule\" { cron = \"@daily\" }\n}",
        "test.hcl:2:10: a task name must start with a letter or underscore and may contain only letters, digits, underscores, and dashes: \"1st\"",
    ),
    (
        "task {\n  name = \"a\"\n  condition \"schedule\" { cron = \"@daily\" }\n}",
        "test.hcl:1:6: module for the task is required",
    ),
    ("task = \"a\"", "test.hcl:1:8: task: expected a block, found a string"),
];

/// The body of a task, and its only error; the body begins on line 4.
const TASK_MISTAKES: &[(&str, &str)] = &[
    ("condition \"weather\" {}", "test.hcl:4:1: unsupported condition type: weather"),
    ("condition {}", "test.hcl:4:1: missing condition type for the condition block"),
    (
        "condition \"schedule\" { cron = \"@daily\" }\ncondition \"schedule\" { cron = \"@daily\" }",
        "test.hcl:5:1: only one 'condition' block can be configured",
    ),
    (
        "condition \"services\" {\n names = [\"a\"]\n name = 1\n}",
        "test.hcl:6:2: invalid keys: name",
    ),
    ("condition \"consul-kv\" {}", "test.hcl:4:1: path is required for consul-kv condition"),
    (
        "condition \"consul-kv\" { path = [] }",
        "test.hcl:4:32: path: expected a string, found a list",
    ),
    ("condition \"schedule\" { cron = \"99 * * * *\" }", ""),
    (
        "services = [\"a\"]\nproviders = [[\"p\", 1]]",
        "test.hcl:5:14: task[0].providers[0]: expected a string, found a list",
    ),
    ("services = [\"a\"]\nvariables = { x = \"a b\" }", ""),
    (
        "services = [\"a\"]\nvariable_files = [\"/no/file\"]",
        "test.hcl:5:19: unable to read variable file /no/file: No such file or directory (os error 2)",
    ),
    (
        "services = [\"a\"]\nproviders = [\"x\", \"aws.b\"]",
        "test.hcl:5:19: provider \"aws.b\" is not configured: there is no terraform_provider block \"aws\" with the alias \"b\"",
    ),
    (
        "services = [\"a\"]\nterraform_version = \"1.0.0\"",
        "test.hcl:5:1: unsupported configuration 'terraform_version' for task \"t\"",
    ),
    (
        "services = [\"a\"]\nterraform_cloud_workspace {}",
        "test.hcl:5:1: unsupported configuration 'terraform_cloud_workspace' for task \"t\"",
    ),
    (
        "services = [\"a\"]\nmodul = \"m\"",
        "test.hcl:5:1: 'test.hcl' has invalid keys: task[0].modul",
    ),
    (
        "services = [\"a\"]\nmodule_input {}",
        "test.hcl:5:1: missing module_input type for the module_input block",
    ),
    ("services = [\"a\"]\nmax_destroy = -1", "test.hcl:5:15: max_destroy: cannot be negative: -1"),
    (
        "services = [\"a\"]\nmax_destroy = \"few\"",
        "test.hcl:5:15: task[0].max_destroy: expected a whole number, found a string",
    ),
    (
        "services = [\"a\"]\ndestroy_on_delete = \"no way\"",
        "test.hcl:5:21: task[0].destroy_on_delete: expected a boolean, found a string",
    ),
    ("services = [\"a\"]\ndrift_check = \"99 * * * *\"", ""),
    (
        "services = [\"a\"]\nbuffer_period { min = \"-1s\" }",
        "test.hcl:5:23: buffer_period: cannot be negative",
    ),
    ("services = [\"a\"]\ntimeout = \"0s\"", "test.hcl:5:11: timeout: must be longer than 0"),
    ("services = [\"a\"]\ntimeout = \"-1s\"", "test.hcl:5:11: timeout: must be longer than 0"),
    (
        "services = [\"a\"]\ntimeout = 10",
        "test.hcl:5:11: task[0].timeout: expected a duration, found a number",
    ),
    (
        "services = [\"a\"]\nretry { attempts = 0 }",
        "test.hcl:5:20: retry: attempts: 0 is no number of tries",
    ),
    (
        "services = [\"a\"]\ntimeout = \"\"",
        "test.hcl:5:11: task[0].timeout: expected a duration, found an empty string",
    ),
    (
        "services = [\"a\"]\nshutdown_timeout = \"\"",
        "test.hcl:5:20: task[0].shutdown_timeout: expected a duration, found an empty string",
    ),
    (
        "services = [\"a\"]\nretry { backoff = \"\" }",
        "test.hcl:5:19: task[0].retry.backoff: expected a duration, found an empty string",
    ),
    (
        "services = [\"a\"]\nretry { attempts = 5000000000 }",
        "test.hcl:5:20: retry: attempts: 5000000000 is more than 4294967295",
    ),
    (
        "services = [\"a\"]\ntimeout = \"1m\"\nretry { backoff = \"5m\" }",
        "test.hcl:6:19: retry: backoff 5m0s is not less than timeout 1m0s",
    ),
    (
        "services = [\"a\"]\ntimeout = \"1s\"\nretry { attempts = 5 }",
        "test.hcl:5:11: retry: backoff 1s is not less than timeout 1s",
    ),
    (
        "services = [\"a\"]\nenv { A = \"x\" }\nenv { B = \"y\" }",
        "test.hcl:6:1: only one 'env' block can be configured",
    ),
    (
        "services = [\"a\"]\nretry { backoff = \"1ms\" }",
        "test.hcl:5:19: retry: backoff: must be at least 100ms",
    ),
    (
        "services = [\"a\"]\nretry { backoff = \"5s\" max_backoff = \"2s\" }",
        "test.hcl:5:38: retry: max_backoff 2s is less than backoff 5s",
    ),
    (
        "services = [\"a\"]\nretry { tries = 5 }",
        "test.hcl:5:9: 'test.hcl' has invalid keys: task[0].retry.tries",
    ),
    (
        "services = [\"a\"]\nshutdown_timeout = \"-1s\"",
        "test.hcl:5:20: shutdown_timeout: cannot be negative",
    ),
    (
        "services = [\"a\"]\nshutdown_timeout = \"6m\"",
        "test.hcl:5:20: shutdown_timeout: the task's 6m0s is longer than the deployment's 5m0s",
    ),
    (
        "services = [\"a\"]\nenv { \"1ST\" = \"x\" }",
        "test.hcl:5:15: env: environment variable \"1ST\": a name has letters, digits and \
         underscores, and begins with no digit",
    ),
    (
        "services = [\"a\"]\nenv { A = \"[redacted]\" }",
        "test.hcl:5:11: env: environment variable A: \"[redacted]\" is how a value is shown; give \
         the value itself",
    ),
];

#[test]
fn every_mistake_has_its_text_and_its_place() {
    let tasks = TASK_MISTAKES.iter().map(|(body, expected)| (task_text(body), *expected));
    let all: Vec<_> = MISTAKES
        .iter()
        .map(|(text, expected)| ((*text).to_owned(), *expected))
        .chain(tasks)
        .collect();
    assert!(all.len() >= 60);
    for (text, expected) in all {
        let found = error(&text);
        if expected.is_empty() {
            // The words after the colon are those of another library.
            assert!(
                found.starts_with("test.hcl:1:20: consul.address: ")
                    || found.contains("cron config \"99 * * * *\": ")
                    || found.contains("drift_check's cron expression \"99 * * * *\": ")
                    || found.contains("variable \"x\": not an expression: "),
                "{found}"
            );
        } else {
            assert_eq!(found, expected, "{text}");
        }
    }
}

/// All texts of mistakes, whole.
fn all_texts() -> Vec<String> {
    let settings = MISTAKES.iter().map(|(text, _)| (*text).to_owned());
    settings.chain(TASK_MISTAKES.iter().map(|(body, _)| task_text(body))).collect()
}

/// The errors of a configuration of these files, as `place: message`.
fn told(files: &[(&str, &str)]) -> Vec<String> {
    let sources = files.iter().map(|(path, text)| source(path, text)).collect();
    let found = loader().load_sources(sources).err().unwrap_or_default();
    let errors = found.iter().filter(|one| one.severity == Severity::Error);
    errors.map(super::support::short).collect()
}

/// The settings that two files both have; the later one counts, so a mistake in the
/// earlier one is none.
fn replaced(first: &str, second: &str) -> bool {
    const SCALARS: [&str; 3] = ["port", "id", "log_level"];
    let sets = |text: &str, key: &str| text.trim_start().starts_with(&format!("{key} = "));
    let block = |text: &str| text.split_whitespace().next().map(str::to_owned);
    SCALARS.iter().any(|key| sets(first, key) && sets(second, key))
        || (block(first) == block(second)
            && ["consul", "buffer_period", "tls", "syslog", "vault", "driver"]
                .contains(&block(first).unwrap_or_default().as_str()))
}

/// Returns `true` if a provider's block without a name that can be read, or a file without a
/// content that can, may hold what the first file is said to lack.
fn may_define(missing: &str, second: &str) -> bool {
    let more = format!("{second}\nunknown_key = 1");
    let is_read = told(&[("b.hcl", &more)]).iter().any(|told| told.contains("unknown_key"));
    missing.contains("there is no terraform_provider block")
        && (!is_read || second.starts_with("terraform_provider {"))
}

/// Two files with a mistake in each: both are told, whichever they are.
#[test]
fn no_mistake_hides_another_one() {
    let texts = all_texts();
    let mut hidden: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for first in &texts {
        let alone = told(&[("a.hcl", first)]);
        for second in texts.iter().filter(|second| !replaced(first, second)) {
            let both = told(&[("a.hcl", first), ("b.hcl", second)]);
            let missing =
                alone.iter().filter(|one| !both.contains(one) && !may_define(one, second));
            for missing in missing {
                hidden.entry(missing.clone()).or_default().push(second.clone());
            }
        }
    }
    assert!(hidden.is_empty(), "{hidden:#?}");
}

/// Mistakes of one task, each of which an earlier one could hide.
#[test]
fn a_task_with_a_mistake_is_checked_to_the_end() {
    let text = "task {\n  name = \"1st\"\n  module = \"m\"\n  weather {}\n  services = [\"a\"]\n}\n\
                task {\n  name = \"twin\"\n  working_dir = \"w\"\n  services = [\"a\"]\n}\n\
                task {\n  name = \"twin\"\n  module = \"m\"\n  services = [\"a\"]\n}\n\
                task {\n  name = \"other\"\n  module = \"m\"\n  working_dir = \"w\"\n}\n\
                terraform_provider \"p\" {\n  auto_commit = true\n}\n\
                task {\n  name = \"left\"\n  providers = [\"p\"]\n}\n\
                task {\n  name = \"right\"\n  module = \"m\"\n  providers = [\"p\"]\n}\n";
    let found = errors(text).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in [
        "a task name must start with",
        "'test.hcl' has invalid keys: task[0].weather",
        "test.hcl:7:6: module for the task is required",
        "duplicate task name: twin",
        "tasks twin and other have the same working_dir",
        "provider with autocommit (p) cannot be used by more than one task",
    ] {
        assert!(found.contains(part), "{part}\n{found}");
    }
}

#[test]
fn a_bad_name_of_a_task_hides_nothing_of_what_its_driver_checks() {
    let kind = AnyDriver::new("terraform", &["limits"]);
    let loader = loader_of(Registry::new().driver(Arc::<AnyDriver>::clone(&kind)));
    let text = "task {\n  name = \"1st\"\n  limits {}\n}\n\
                task {\n  limits {}\n}\n\
                task {\n  name = \"2nd\"\n  terraform_version = \"1.0.0\"\n}\n";
    let found = loader.load_sources(vec![source("test.hcl", text)]).unwrap_err();
    let limits = |task: &str| (task.to_owned(), "limits".to_owned());
    assert_eq!(kind.seen().task_blocks, [limits("1st"), limits("")]);
    let found = found.iter().map(Diagnostic::to_string).collect::<Vec<_>>().join("\n");
    assert!(found.contains("configuration 'terraform_version' for task \"2nd\""), "{found}");
}

#[test]
fn every_mistake_says_what_to_do() {
    let without_help = [
        "expected a block",
        "expected a string",
        "expected a key",
        "expected a whole",
        "expected a list",
        "negative",
        "expected a number",
        "expected a value",
        "has invalid keys",
        "invalid keys",
    ];
    for (text, expected) in MISTAKES {
        for error in errors(text) {
            let exempt = without_help.iter().any(|part| expected.contains(part));
            assert!(error.help.is_some() || exempt, "{error}");
        }
    }
}

#[test]
fn duplicate_tasks_name_the_first_place() {
    let one = task_text("condition \"services\" { names = [\"a\"] }");
    let errors = errors(&one.repeat(2));
    assert_eq!(
        errors[0].to_string(),
        "test.hcl:7:8: duplicate task name: t (the first is at test.hcl:2:8; rename one of them)"
    );
}

#[test]
fn nesting_has_a_limit() {
    for (start, open) in [("a = ", "["), ("a = ", "{ a = "), ("", "a { ")] {
        let found = error(&format!("driver \"terraform\" {{ {start}{}", open.repeat(100_000)));
        assert!(found.contains("more than 64 levels of nesting"), "{found}");
    }
}
