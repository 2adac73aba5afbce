//! What is shown: diagnostics with excerpts, and the configuration without secrets.

use super::support::{errors, load, show, source};

#[test]
fn a_diagnostic_shows_the_line_and_underlines_the_place() {
    let text =
        "consul {\n\taddress = \"a\"\n  adress = \"b\"\n  kv_pth = 1\n}\nlog_level = \"loud\"\n";
    assert_eq!(
        show(&errors(text)),
        "error: 'test.hcl' has invalid keys: consul.adress, consul.kv_pth\n \
         --> test.hcl:3:3\n  |\n3 |   adress = [redacted]\n  |   ^^^^^^\n \
         --> test.hcl:4:3\n  |\n4 |   kv_pth = [redacted]\n  |   ^^^^^^\n  \
         = help: for consul.adress, did you mean address?; for consul.kv_pth, did you mean kv_path?\n\
         error: Invalid log level: LOUD. Valid log levels are: [TRACE DEBUG INFO WARN ERR]\n \
         --> test.hcl:6:13\n  |\n6 | log_level = \"loud\"\n  |             ^^^^^^\n  \
         = help: use one of them, in upper or lower case"
    );
}

#[test]
fn long_lines_are_cut_around_the_place() {
    let text = format!("id = \"{}\" port = 70000 {}", "x".repeat(5000), "# ".repeat(5000));
    let rendered = show(&errors(&text));
    assert!(rendered.lines().all(|line| line.chars().count() < 120), "{rendered}");
    let lines: Vec<_> = rendered.lines().collect();
    let column = lines[4].find('^').unwrap();
    assert_eq!(lines[3].get(column..column + 5), Some("70000"));
    assert_eq!(lines[4].matches('^').count(), 5);
}

#[test]
fn hints_of_upstream_are_kept() {
    for (text, hint) in [
        ("provider \"x\" {}", "try 'terraform_provider'"),
        ("driver \"terraform-cloud\" {}", "terraform-cloud driver"),
        ("high_availability {}", "high availability"),
    ] {
        let help = errors(text).remove(0).help.unwrap();
        assert!(help.contains(hint), "{help}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let config = load(
        "consul {\n token = \"SECRET1\"\n auth {\n username = \"u\"\n password = \"SECRET2\"\n}\n}\n\
         vault {\n address = \"v\"\n token = \"SECRET3\"\n}\n\
         driver \"terraform\" {\n hidden = { a = \"SECRET4\" }\n backend \"x\" {\n sas = [\"SECRET5\"]\n access_token = \"SECRET6\"\n region = \"shown\"\n}\n}\n\
         terraform_provider \"p\" {\n key = \"SECRET7\"\n task_env { A = \"SECRET8\" }\n}\n\
         task {\n name = \"t\"\n module = \"m\"\n services = [\"a\"]\n variables = { v = \"\\\"SECRET9\\\"\" }\n}\n",
    );
    let json = config.to_redacted_json().to_string();
    assert!(json.contains("shown") && json.contains("[redacted]"));
    let driver = format!("{:?} {:?} {:?}", config.driver, config.consul, config.providers);
    for text in [json, format!("{config:?}"), format!("{config:#?}"), driver] {
        assert!(!text.contains("SECRET"), "{text}");
    }
}

#[test]
fn errors_never_hold_values() {
    let text = "consul {\n token = [\"SECRET\"]\n auth { password = { a = \"SECRET\" } }\n}\nterraform_provider \"p\" { alias = [\"SECRET\"] }";
    for error in errors(text) {
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    let loaded = super::support::loader()
        .load_sources(vec![source("x.json", "{\"consul\": {\"token\": SECRET}}")]);
    assert_eq!(loaded.unwrap_err().len(), 1);
}
