//! Tasks, their providers and their variables.

use std::fs;

use cts_tasks::{Literal, Task, config::find_provider};

use super::support::{error, errors, load, loader, short, show, source, task, task_text};

const SERVICES: &str = "condition \"services\" { names = [\"a\"] }\n";

/// Spec: CTS11
#[test]
fn templates_are_refused_outside_of_providers() {
    let text = task_text(SERVICES).replace("\"t\"", "\"{{ env \\\"NAME\\\" }}\"");
    let errors = errors(&text);
    assert_eq!(
        short(&errors[0]),
        "test.hcl:2:8: dynamic configuration using template syntax is only supported for terraform_provider blocks"
    );
    let backend = error("driver \"terraform\" { backend \"x\" { a = [\"{{ key \\\"k\\\" }}\"] } }");
    assert!(backend.starts_with("test.hcl:1:41: dynamic configuration"), "{backend}");
}

/// Spec: CTS12
#[test]
fn templates_of_vault_need_vault() {
    let provider =
        "terraform_provider \"p\" { a = \"{{ with secret \\\"s\\\" }}{{ .Data.x }}{{ end }}\" }\n";
    assert_eq!(
        error(provider),
        "test.hcl:1:30: detected dynamic configuration using Vault: missing Vault configuration"
    );
    load(&format!("{provider}vault {{ address = \"https://v\" }}"));
}

/// Spec: CTS18
#[test]
fn providers_of_one_name_need_an_alias() {
    let two = "terraform_provider \"p\" {}\nterraform_provider \"p\" {}";
    assert_eq!(error(two), "test.hcl:2:1: duplicate provider configuration: p");
    let config = load(
        "terraform_provider \"p\" { alias = \"x\" }\nterraform_provider \"p\" { alias = \"y\" }\n",
    );
    let ids: Vec<_> = config.providers.iter().map(cts_tasks::ProviderBlock::id).collect();
    assert_eq!(ids, ["p.x", "p.y"]);
    let found = |id: &str| find_provider(&config.providers, id).map(cts_tasks::ProviderBlock::id);
    assert_eq!(found("p").as_deref(), Some("p.x"), "a bare name is the first");
    assert_eq!((found("p.y").as_deref(), found("q")), (Some("p.y"), None));
}

/// Spec: CTS19
#[test]
fn a_task_uses_one_instance_of_a_provider() {
    let block = "terraform_provider \"aws\" { alias = \"a\" }\n";
    let text = task_text(&format!("{SERVICES}providers = [\"aws.a\", \"aws\"]"));
    assert_eq!(
        error(&format!("{block}{text}")),
        "test.hcl:6:23: only one provider instance per task"
    );
    let text = task_text(&format!("{SERVICES}providers = [\"aws.a\", \"b\"]"));
    assert_eq!(load(&format!("{block}{text}")).tasks[0].providers, ["aws.a", "b"]);
}

/// A provider of which no block tells has no arguments; an alias must have its block.
#[test]
fn an_alias_without_a_block_is_refused() {
    let text = task_text(&format!("{SERVICES}providers = [\"aws.b\"]"));
    let block = |alias: &str| format!("terraform_provider \"aws\" {{ alias = \"{alias}\" }}\n");
    let missing = "provider \"aws.b\" is not configured: there is no terraform_provider block \
                   \"aws\" with the alias \"b\"";
    assert_eq!(error(&format!("{}{text}", block("a"))), format!("test.hcl:6:14: {missing}"));
    assert_eq!(load(&format!("{}{text}", block("b"))).tasks[0].providers, ["aws.b"]);
    // A block that has a mistake of its own is not missing.
    let faulty = "terraform_provider \"aws\" { alias = \"b\" task_env = 1 }\n";
    let errors = errors(&format!("{faulty}{text}"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    // The daemon has the blocks, not the file for `task create`.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("task.hcl");
    fs::write(&file, text).unwrap();
    assert_eq!(loader().load_task(&file).unwrap().providers, ["aws.b"]);
}

#[test]
fn a_task_has_no_guard_unless_it_says_so() {
    let guard = task("services = [\"a\"]").guard;
    assert_eq!((guard.is_set(), guard.max_destroy), (false, None));
    let guard = task("services = [\"a\"]\nmax_destroy = 0").guard;
    assert_eq!((guard.max_destroy, guard.require_approval), (Some(0), false));
    let guard = task("services = [\"a\"]\nrequire_approval = true").guard;
    assert_eq!((guard.max_destroy, guard.require_approval), (None, true));
}

/// Spec: CTS20
#[test]
fn a_provider_that_commits_belongs_to_one_task() {
    let provider = "terraform_provider \"panos\" { auto_commit = true }\n";
    let one = task_text(&format!("{SERVICES}providers = [\"panos\"]"));
    let two = format!("{one}{}", one.replace("\"t\"", "\"u\""));
    load(&format!("{provider}{one}"));
    assert_eq!(
        error(&format!("{provider}{two}")),
        "test.hcl:1:1: provider with autocommit (panos) cannot be used by more than one task"
    );
    load(&two);
}

/// The only task of a text whose relative paths start in `directory`.
fn task_in(directory: &std::path::Path, body: &str) -> Task {
    let text = task_text(&format!("{SERVICES}{body}"));
    match loader().base_dir(directory).load_sources(vec![source("test.hcl", &text)]) {
        Ok(mut loaded) => loaded.config.tasks.remove(0),
        Err(errors) => panic!("{}", show(&errors)),
    }
}

/// Spec: CTS21
#[test]
fn variable_files_start_at_the_working_directory() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    fs::write(directory.path().join("sub/a.tfvars"), "x = 1").unwrap();
    let task = task_in(directory.path(), "variable_files = [\"sub/a.tfvars\"]");
    assert_eq!(task.variables["x"].to_expression(), "1");
    let absolute = directory.path().join("sub/a.tfvars");
    let task = task_in("/".as_ref(), &format!("variable_files = [{absolute:?}]"));
    assert_eq!(task.variables.len(), 1);
}

/// Spec: CTS22
#[test]
fn later_variable_files_win_over_earlier_ones_and_over_presets() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.tfvars"), "x = \"a\"\ny = \"a\"").unwrap();
    fs::write(directory.path().join("b.tfvars"), "y = \"b\"").unwrap();
    let task = task_in(
        directory.path(),
        "variables = { x = \"\\\"preset\\\"\", z = \"[1, 2.50]\" }\nvariable_files = [\"a.tfvars\", \"b.tfvars\"]",
    );
    let values: Vec<_> =
        task.variables.iter().map(|(name, value)| (name.as_str(), value.to_expression())).collect();
    let expected = [("x", "\"a\""), ("y", "\"b\""), ("z", "[1,2.50]")];
    assert_eq!(values, expected.map(|(name, value)| (name, value.to_owned())));
}

/// Spec: CTS85
#[test]
fn large_variables_come_back_as_strings() {
    let directory = tempfile::tempdir().unwrap();
    let items: Vec<_> =
        (0..5000).map(|n| format!("  {{ id = {n}, name = \"item-{n}\" }},\n")).collect();
    let text = format!("items = [\n{}]\nlong = \"{}\"\n", items.concat(), "x".repeat(100_000));
    fs::write(directory.path().join("a.tfvars"), text).unwrap();
    fs::write(
        directory.path().join("t.hcl"),
        task_text(&format!("{SERVICES}variable_files = [\"a.tfvars\"]")),
    )
    .unwrap();
    let loader = loader().base_dir(directory.path());
    let task = loader.load_task(&directory.path().join("t.hcl")).unwrap();
    for value in task.variables.values() {
        assert_eq!(&value.to_expression().parse::<Literal>().unwrap(), value);
    }
    let items = task.variables["items"].to_expression();
    assert!(items.starts_with("[{\"id\":0,\"name\":\"item-0\"},{\"id\":1,"), "{items:.60}");
}

#[test]
fn variable_files_hold_only_literals() {
    let directory = tempfile::tempdir().unwrap();
    let errors = |text: &str| {
        fs::write(directory.path().join("a.tfvars"), text).unwrap();
        let task = task_text(&format!("{SERVICES}variable_files = [\"a.tfvars\"]"));
        let loader = loader().base_dir(directory.path());
        let errors = loader.load_sources(vec![source("test.hcl", &task)]).unwrap_err();
        errors.iter().map(short).collect::<Vec<_>>()
    };
    assert_eq!(
        errors("a = 1\nb = [var.x]\nc = max(1, 2)\nblock {\n}\n"),
        [
            "a.tfvars:2:6: variable \"b\": the value is not a literal",
            "a.tfvars:3:5: variable \"c\": the value is not a literal",
            "a.tfvars:4:1: unexpected block \"block\"",
        ]
    );
    assert!(errors("a = \n")[0].starts_with("a.tfvars:1:5: not a list of variables: "));
}

/// Spec: CTS27
#[test]
fn deprecated_names_still_work_and_are_warned_about() {
    let config = load(
        "service {\n id = \"web-id\"\n name = \"web\"\n filter = \"f\"\n cts_user_defined_meta { a = \"b\" }\n}\n\
         task {\n name = \"t\"\n source = \"./m\"\n services = [\"web-id\", \"api\"]\n}\n\
         task {\n name = \"u\"\n module = \"./m\"\n source = \"./old\"\n\
         condition \"catalog-services\" {\n regexp = \"\"\n source_includes_var = false\n}\n\
         source_input \"consul-kv\" { path = \"k\" }\n}\n",
    );
    let (t, u) = (&config.tasks[0], &config.tasks[1]);
    assert_eq!((t.module.as_str(), u.module.as_str()), ("./m", "./m"));
    assert_eq!(t.service_names(), ["web", "api"]);
    assert!(t.services_listed && !u.services_listed);
    let condition = format!("{:?}", t.condition);
    assert!(
        condition.contains("filter: \"f\"") && condition.contains("{\"a\": \"b\"}"),
        "{condition}"
    );
    assert!(format!("{:?}", u.condition).contains("use_as_module_input: false"));
    assert_eq!(u.module_inputs.len(), 1);
    let warnings: Vec<_> = config.warnings.iter().map(short).collect();
    assert_eq!(
        warnings,
        [
            "test.hcl:1:9: service blocks are deprecated since 0.5",
            "test.hcl:9:11: source is deprecated since 0.5",
            "test.hcl:10:13: services is deprecated since 0.5",
            "test.hcl:15:11: source is deprecated since 0.5",
            "test.hcl:18:24: source_includes_var is deprecated since 0.5",
            "test.hcl:20:1: source_input is deprecated since 0.5",
        ]
    );
}

#[test]
fn meta_arguments_of_a_provider_are_no_arguments() {
    let config = load(
        "terraform_provider \"p\" {\n alias = \"a\"\n auto_commit = \"true\"\n host = \"h\"\n task_env = { \"A\" = \"{{ env \\\"B\\\" }}\" }\n}",
    );
    let provider = &config.providers[0];
    assert_eq!((provider.id().as_str(), provider.auto_commit), ("p.a", true));
    assert_eq!(provider.arguments.keys().collect::<Vec<_>>(), ["host"]);
    assert_eq!(provider.task_env.keys().collect::<Vec<_>>(), ["A"]);
}

#[test]
fn two_tasks_with_one_working_directory_are_refused() {
    let task = |name: &str, folder: &str| {
        format!(
            "task {{\nname = \"{name}\"\nmodule = \"m\"\nworking_dir = \"{folder}\"\n{SERVICES}}}\n"
        )
    };
    for (one, other) in [("w", "w"), ("w", "./x/../w"), ("sync-tasks/b", "")] {
        let second = task("b", other).replace("working_dir = \"\"\n", "");
        let text = task("a", one) + &second;
        let found = error(&text);
        assert!(found.contains("tasks a and b have the same working_dir "), "{found}");
        let line = if other.is_empty() { 8 } else { 10 };
        assert!(found.starts_with(&format!("test.hcl:{line}:")), "{found}");
    }
    let tasks = load(&(task("a", "w") + &task("b", "w/b"))).tasks;
    assert!(tasks.iter().all(|task| !task.working_dir_inherited));
}
