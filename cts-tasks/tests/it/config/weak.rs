//! What upstream decodes weakly is read here, too.

use cts_tasks::{Condition, ModuleInput, ServiceSelection};

use super::support::{error, load, loader, source, task};

/// Before, each of these was refused.
#[test]
fn keys_count_in_any_case() {
    let config = load(
        "PORT = 8559\nLog_Level = \"warn\"\nConsul { Address = \"a:1\" TLS { Verify = false } }\n\
         Terraform_Provider \"aws\" { Region = \"{{ env \\\"A\\\" }}\" }\n\
         TASK { Name = \"t\" Module = \"./m\" Condition \"services\" { Names = [\"web\"] }\n\
         Buffer_Period { MIN = \"7s\" } Module_Input \"consul-kv\" { PATH = \"k\" } }",
    );
    assert_eq!((config.port, config.log_level.to_string()), (8559, "WARN".to_owned()));
    assert_eq!(config.consul.address, "a:1");
    assert!(!config.consul.tls.unwrap().verify);
    // What the operator names is left as it is.
    assert!(config.providers[0].arguments.contains_key("Region"));
    assert_eq!(config.tasks[0].service_names(), ["web"]);
    assert_eq!(config.tasks[0].module_inputs.len(), 1);
    // Of two spellings in one file the last counts, as of one that stands twice.
    assert_eq!(load("port = 1\nPort = 2").port, 2);
    assert_eq!(error("Prot = 1"), "test.hcl:1:1: 'test.hcl' has invalid keys: Prot");
}

/// Before, each of these was refused.
#[test]
fn a_list_of_one_is_the_value() {
    let config = load(
        "port = [\"8559\"]\nsyslog { enabled = [true] name = [\"n\"] }\n\
         consul { transport { dial_timeout = [\"5s\"] } }\n\
         terraform_provider \"aws\" { alias = [\"b\"] tags = [\"a\"] task_env { A = [\"1\"] } }",
    );
    assert_eq!(config.port, 8559);
    assert_eq!(config.syslog.unwrap().name, "n");
    assert_eq!(config.consul.transport.dial_timeout.as_secs(), 5);
    assert_eq!(config.providers[0].id(), "aws.b");
    // Arguments of providers are not decoded, so a list stays one.
    assert_eq!(config.providers[0].arguments["tags"].to_expression(), "[\"a\"]");
    let t = task(
        "description = [\"d\"]\ncondition \"services\" {\n regexp = [\"web\"]\n\
         cts_user_defined_meta { a = [\"1\"] }\n}\nmodule_input \"consul-kv\" { path = [\"k\"] recurse = [\"true\"] }",
    );
    assert_eq!(t.description, "d");
    let Condition::Services { services: ServiceSelection::Matching(matching), .. } = &t.condition
    else {
        panic!("{:?}", t.condition)
    };
    assert_eq!(
        (matching.regexp.as_str(), matching.cts_user_defined_meta["a"].as_str()),
        ("web", "1")
    );
    let ModuleInput::ConsulKv(keys) = &t.module_inputs[0] else { panic!() };
    assert!(keys.path == "k" && keys.recurse);
    for two in ["port = [1, 2]", "port = []"] {
        assert_eq!(error(two), "test.hcl:1:8: port: expected a whole number, found a list");
    }
}

#[test]
fn json_is_as_weak() {
    let text = r#"{"Task": [{"NAME": ["t"], "module": "./m", "condition": {"services": [{"regexp": ["^w"]}]}}]}"#;
    let loaded = loader().load_sources(vec![source("a.json", text)]).unwrap();
    assert_eq!(loaded.config.tasks[0].name.as_str(), "t");
}

/// Before, a task without a condition was refused.
#[test]
fn a_task_without_a_condition_is_legal_and_follows_the_services_of_its_inputs() {
    let bare = task("");
    assert!(bare.unconditional && bare.module_inputs.is_empty() && bare.service_names().is_empty());
    let t = task(
        "module_input \"consul-kv\" { path = \"k\" }\nmodule_input \"services\" { names = [\"web\"] }",
    );
    assert!(t.unconditional);
    assert!(matches!(&t.condition, Condition::Services { use_as_module_input: true, .. }));
    assert_eq!(t.service_names(), ["web"]);
    assert!(matches!(t.module_inputs[..], [ModuleInput::ConsulKv(_)]));
    assert!(!task("condition \"schedule\" { cron = \"@daily\" }").unconditional);
}
