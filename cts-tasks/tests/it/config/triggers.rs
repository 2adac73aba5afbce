//! Conditions, module inputs, and which go together.

use cts_tasks::{Condition, ModuleInput, ServiceSelection};

use super::support::{error, load, task, task_text};

/// The message of the only error of a task with this body.
#[track_caller]
fn message(body: &str) -> String {
    let error = error(&task_text(body));
    error.splitn(4, ':').nth(3).unwrap_or_default().trim_start().to_owned()
}

/// Spec: CTS23
#[test]
fn a_services_condition_has_names_or_an_expression() {
    let prefix = "error validating `condition \"services\"` block: ";
    let services = |body: &str| message(&format!("condition \"services\" {{ {body} }}"));
    assert_eq!(
        services(""),
        format!("{prefix}either the regexp or names field must be configured")
    );
    let both = services("names = [\"a\"] regexp = \"a\"");
    assert!(both.starts_with(&format!(
        "{prefix}regexp and names fields cannot both be unconfigured. If both are needed, "
    )));
    assert_eq!(
        services("names = [\"\"]"),
        format!("{prefix}names field includes empty string(s). services names cannot be empty")
    );
    assert!(
        services("regexp = \"*\"")
            .starts_with(&format!("{prefix}unable to compile services regexp: "))
    );
    let all = task("condition \"services\" { regexp = \"\" }");
    assert!(matches!(all.service_selection(), Some((ServiceSelection::Matching(_), true))));
}

/// Spec: CTS24
#[test]
fn a_catalog_condition_needs_an_expression_which_may_be_empty() {
    assert_eq!(
        message("condition \"catalog-services\" {}"),
        "catalog-services 'regexp' field must be set"
    );
    let bad = message("condition \"catalog-services\" { regexp = \"(\" }");
    assert!(bad.starts_with("unable to compile catalog-services 'regexp': "), "{bad}");
    let all = task("condition \"catalog-services\" { regexp = \"\" }");
    assert!(
        matches!(all.condition, Condition::CatalogServices { services, use_as_module_input: true } if services.regexp.is_empty())
    );
}

/// Spec: CTS25
#[test]
fn only_some_conditions_and_inputs_go_together() {
    let services = "condition \"services\" { names = [\"a\"] }\n";
    let schedule = "condition \"schedule\" { cron = \"@daily\" }\n";
    let kv = "condition \"consul-kv\" {\n path = \"k\"\n use_as_module_input = false\n}\n";
    let services_input = "module_input \"services\" { names = [\"b\"] }\n";
    let kv_input = "module_input \"consul-kv\" { path = \"k\" }\n";
    let list = "services = [\"c\"]\n";

    assert_eq!(
        message(&format!("{schedule}{services_input}{services_input}")),
        "more than one 'module_input' block for the \"services\" variable. variable types must be unique"
    );
    assert_eq!(
        message(&format!("{services}{services_input}")),
        "task's condition block and module_input block both monitor \"services\" variable type. condition and module_input variable type must be unique"
    );
    assert_eq!(
        message(&format!("{kv}{kv_input}")),
        "task's condition block and module_input block both monitor \"consul_kv\" variable type. condition and module_input variable type must be unique"
    );
    assert_eq!(
        message(&format!("{list}{services}")),
        "task's `services` field and `condition 'services'` block both monitor \"services\" variable type. only one of these can be configured per task"
    );
    assert_eq!(
        message(&format!("{list}{schedule}{services_input}")),
        "task's `services` field and `module_input 'services'` block both monitor \"services\" variable type. only one of these can be configured per task"
    );

    let only = task(list);
    assert!(matches!(only.condition, Condition::Services { use_as_module_input: true, .. }));
    assert_eq!((only.service_names(), only.module_inputs.len()), (vec!["c".to_owned()], 0));
    let beside = task(&format!("{list}{kv}"));
    assert!(matches!(beside.condition, Condition::ConsulKv { use_as_module_input: false, .. }));
    assert!(matches!(&beside.module_inputs[..], [ModuleInput::Services(_)]));
    assert_eq!(task(&format!("{schedule}{services_input}{kv_input}")).module_inputs.len(), 2);
    assert!(task(schedule).module_inputs.is_empty());
}

/// Spec: CTS26
#[test]
fn a_schedule_is_a_cron_expression() {
    for cron in ["* * * * * * *", "* * * * *", "0 3 * * MON-FRI 2030", "@hourly", "0 0 L * *"] {
        let scheduled = task(&format!("condition \"schedule\" {{ cron = \"{cron}\" }}"));
        assert_eq!(scheduled.condition, {
            let mut expected = task("condition \"schedule\" { cron = \"@daily\" }").condition;
            if let Condition::Schedule { cron: text } = &mut expected {
                cron.clone_into(text);
            }
            expected
        });
    }
    let bad = message("condition \"schedule\" { cron = \"invalid\" }");
    assert!(
        bad.starts_with("unable to parse schedule condition's cron config \"invalid\": "),
        "{bad}"
    );
    for unset in ["", "cron = \"\""] {
        let unset = message(&format!("condition \"schedule\" {{ {unset} }}"));
        assert_eq!(unset, "cron config is required for schedule condition");
    }
}

/// Deviation from upstream, which checks module inputs only when a task runs.
#[test]
fn module_inputs_are_checked_as_conditions_are() {
    let input =
        |body: &str| message(&format!("condition \"schedule\" {{ cron = \"@daily\" }}\n{body}"));
    let bad = input("module_input \"services\" { regexp = \"[\" }");
    assert!(bad.starts_with(
        "error validating `module_input \"services\"`: unable to compile services regexp: "
    ));
    let bad = input("module_input \"consul-kv\" {}");
    assert!(bad.starts_with("error validating `module_input \"consul-kv\"`: path is required"));
    assert_eq!(input("module_input \"schedule\" {}"), "unsupported module_input type: schedule");
    let bad =
        input("module_input \"services\" {\n names = [\"a\"]\n use_as_module_input = true\n}");
    assert_eq!(bad, "invalid keys: use_as_module_input");
}

#[test]
fn every_field_of_a_condition_is_taken() {
    let config = load(&task_text(
        "condition \"services\" {\n names = [\"b\", \"a\", \"b\"]\n datacenter = \"dc\"\n namespace = \"ns\"\n filter = \"f\"\n\
         cts_user_defined_meta { k = \"v\" }\n use_as_module_input = false\n}",
    ));
    let Condition::Services { services: ServiceSelection::Named(named), use_as_module_input } =
        &config.tasks[0].condition
    else {
        panic!("{:?}", config.tasks[0].condition);
    };
    assert!(!use_as_module_input);
    let names: Vec<_> = named.iter().map(|service| service.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    let first = &named[0];
    assert_eq!((&*first.datacenter, &*first.namespace, &*first.filter), ("dc", "ns", "f"));
    assert_eq!(first.cts_user_defined_meta["k"], "v");
}
