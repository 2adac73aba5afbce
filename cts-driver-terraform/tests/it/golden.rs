//! Each generated file equals the one that was written from the specification.

use cts_driver_terraform::{Backend, RootModule, RootModuleBuilder};
use cts_tasks::{KvEntry, ProviderBlock, ServiceInstance, Task, TaskInputs};
use serde_json::{Value as Json, json};

use crate::fixtures::{
    api_and_web, api_instance, catalog_condition, instances, keys, kv_condition, literals, map,
    matching, named, provider, services_condition, task,
};

/// Compares all golden files of a case; those ending in `.tfvars` named
/// `terraform.tfvars` are rendered from the inputs.
fn assert_golden(case: &str, root: &RootModule, inputs: &TaskInputs) {
    let directory =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden").join(case);
    let mut files = root.files();
    files.push(root.tfvars(inputs).unwrap());
    let mut compared = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let expected = std::fs::read_to_string(entry.path()).unwrap();
        let file = files
            .iter()
            .find(|file| file.name == name)
            .unwrap_or_else(|| panic!("{case}: {name} was not generated"));
        assert!(
            file.content == expected,
            "{case}/{name} differs:\n--- expected\n{expected}\n--- generated\n{}",
            file.content
        );
        compared += 1;
    }
    assert!(compared > 0, "{case} has no golden files");
}

fn local() -> Backend {
    Backend::new("local", literals(&json!({}))).unwrap()
}

fn builder(task: &Task) -> RootModuleBuilder {
    RootModule::builder(task).base_dir("/srv/cts").backend(local())
}

fn assert_task(case: &str, overrides: &Json, inputs: &TaskInputs) {
    assert_golden(case, &builder(&task(overrides)).build(), inputs);
}

fn test_provider() -> ProviderBlock {
    let arguments = json!({"attr": "value", "count": 10, "obj": {"username": "name", "id": "id"}});
    provider("testProvider", Some("tp"), &arguments)
}

fn specification_task() -> Task {
    task(&json!({
        "module": "namespace/consul-terraform-sync/consul//modules/test",
        "version": "0.0.0",
        "providers": ["testProvider.tp"],
        "variables": {"one": 1, "bool_true": true},
        "condition": services_condition(&api_and_web(), true),
    }))
}

fn specification(task: &Task) -> RootModuleBuilder {
    let backend = json!({"scheme": "https", "path": "consul-terraform-sync/terraform"});
    builder(task)
        .backend(Backend::new("consul", literals(&backend)).unwrap())
        .required_providers(literals(&json!({
            "testProvider": {"version": "1.2.0", "source": "namespace/testProvider"},
            "unused": "1.0.0",
        })))
        .providers(&[test_provider()])
        .unwrap()
}

fn key_values(entries: &[(&str, &str)]) -> TaskInputs {
    let mut inputs = instances(vec![api_instance()]);
    let entry = |(path, value): &(&str, &str)| KvEntry {
        path: (*path).to_owned(),
        value: value.as_bytes().to_vec(),
    };
    inputs.consul_kv = Some(entries.iter().map(entry).collect());
    inputs
}

/// Spec: CTS28
/// Spec: CTS29
/// Spec: CTS34
/// Spec: CTS35
#[test]
fn the_examples_of_the_specification() {
    let root = specification(&specification_task()).build();
    assert_golden("specification", &root, &instances(vec![api_instance()]));
}

/// Spec: CTS30
#[test]
fn without_providers_two_blank_lines_stand_in_main_tf() {
    let overrides = json!({"condition": services_condition(&api_and_web(), true)});
    assert_task("no-providers", &overrides, &instances(Vec::new()));
}

#[test]
fn without_a_description_there_is_no_comment() {
    let task = task(&json!({"description": "", "module": "./modules/test"}));
    let consul = Backend::consul(&cts_tasks::ConsulConfig::default(), std::path::Path::new("/"));
    assert_golden(
        "no-description",
        &builder(&task).backend(consul).build(),
        &TaskInputs::default(),
    );
}

/// Spec: CTS28
/// Spec: CTS29
#[test]
fn two_providers_with_maps_lists_and_a_bare_version() {
    let backend = json!({
        "bucket": "states", "skip_regions": ["a", "b"], "endpoints": {"s3": "https://example.com"},
    });
    let aws = json!({
        "region": "eu",
        "allowed": ["a", 1, true],
        "headers": {"X-A b": "c"},
        "assume_role": {"role_arn": "arn:aws:iam::1:role/x", "tags": {"team": "net"}},
    });
    let root = builder(&task(&json!({"providers": ["null", "aws"]})))
        .backend(Backend::new("s3", literals(&backend)).unwrap())
        .required_providers(literals(&json!({
            "null": {"source": "hashicorp/null"}, "aws": "~> 5.0",
        })))
        .providers(&[provider("aws", None, &aws)])
        .unwrap()
        .build();
    assert_golden("two-providers", &root, &TaskInputs::default());
}

/// Spec: CTS31
#[test]
fn terraform_before_0_14_knows_no_sensitive_variables() {
    let task = specification_task();
    let root = specification(&task).terraform_version("0.13.7".parse().unwrap()).build();
    assert_golden("terraform-0.13", &root, &TaskInputs::default());
}

/// Spec: CTS28
#[test]
fn variables_of_every_type() {
    let overrides = json!({
        "variables": {
            "b": true, "key": "some_key", "l": [1, 2, 3], "num": 10, "nothing": null, "empty": {},
            "obj": {"argNum": -0.52, "argMap": {}, "argList": ["a", "b", "c"], "argStr": "value"},
            "objs": [{"a": 1}, {"bb": "x", "c": null}],
            "odd": {"a b": 1},
            "tup": ["abc", 123, false],
        },
        "condition": catalog_condition("", false, true),
        "module_inputs": [{"ConsulKv": keys("a", false, "")}],
    });
    assert_task("variables", &overrides, &TaskInputs::default());
}

/// Spec: CTS28
#[test]
fn catalog_services_as_input() {
    let mut inputs = TaskInputs::default();
    let tags = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
    inputs.catalog_services = Some(std::collections::BTreeMap::from([
        ("web".to_owned(), tags(&["tag_a", "tag_b"])),
        ("consul".to_owned(), tags(&[])),
        ("api".to_owned(), tags(&["tag"])),
    ]));
    let overrides = json!({"condition": catalog_condition("^web.*|^api.*", true, true)});
    assert_task("catalog-services", &overrides, &inputs);
}

/// Spec: CTS28
#[test]
fn catalog_services_without_input_and_services_beside() {
    let overrides = json!({
        "condition": catalog_condition(".*", false, false),
        "module_inputs": [{"Services": api_and_web()}],
    });
    assert_task("catalog-services-no-input", &overrides, &instances(vec![api_instance()]));
}

/// Spec: CTS28
#[test]
fn consul_kv_of_one_key_and_of_a_prefix() {
    let one = keys("key-path", false, "");
    let prefix = keys("key-path", true, "");
    let overrides = json!({
        "condition": kv_condition(&one, true),
        "module_inputs": [{"Services": api_and_web()}],
    });
    assert_task("consul-kv", &overrides, &key_values(&[("key-path", "red")]));

    let absent = json!({"condition": kv_condition(&one, true)});
    assert_task("consul-kv-absent", &absent, &TaskInputs::default());

    let in_namespace = json!({"condition": kv_condition(&keys("key-path", true, "ns1"), true)});
    let entries = [("key-path/", ""), ("key-path/a", "blue"), ("key-path/a/b", "green")];
    assert_task("consul-kv-recurse", &in_namespace, &key_values(&entries));

    let unused = json!({"condition": kv_condition(&one, false)});
    assert_task("consul-kv-no-input", &unused, &key_values(&[("key-path", "red")]));
    let unused = json!({"condition": kv_condition(&prefix, false)});
    assert_task("consul-kv-recurse-no-input", &unused, &key_values(&entries));
}

/// Spec: CTS28
#[test]
fn services_by_name_or_expression_as_input_or_only_watched() {
    let inputs = instances(vec![api_instance()]);
    for (case, services, used) in [
        ("services-no-input", api_and_web(), false),
        ("services-regex", matching(), true),
        ("services-regex-no-input", matching(), false),
    ] {
        assert_task(case, &json!({"condition": services_condition(&services, used)}), &inputs);
    }
}

/// The condition and the other inputs follow the deprecated list.
///
/// Spec: CTS28
#[test]
fn listed_services_stand_before_another_condition() {
    let overrides = json!({
        "condition": kv_condition(&keys("key-path", false, ""), true),
        "module_inputs": [{"Services": api_and_web()}],
        "services_listed": true,
    });
    assert_task("services-listed", &overrides, &key_values(&[("key-path", "red")]));
    let overrides = json!({
        "condition": services_condition(&api_and_web(), true),
        "module_inputs": [{"ConsulKv": keys("key-path", false, "")}],
        "services_listed": true,
    });
    assert_task("services-listed", &overrides, &key_values(&[("key-path", "red")]));
}

/// Spec: CTS28
#[test]
fn schedules_with_and_without_inputs() {
    assert_task("schedule", &json!({}), &TaskInputs::default());
    let inputs = json!({"module_inputs": [
        {"Services": api_and_web()}, {"ConsulKv": keys("key-path", true, "")},
    ]});
    assert_task("schedule-inputs", &inputs, &TaskInputs::default());
}

/// Spec: CTS32
#[test]
fn keys_are_aligned_whether_quoted_or_not() {
    let full = ServiceInstance {
        id: "web".into(),
        name: "web".into(),
        kind: "typical".into(),
        address: "10.0.0.1".into(),
        port: 80,
        meta: map(&[("a", "1")]),
        namespace: "ns".into(),
        status: "warning".into(),
        node: "n".into(),
        node_datacenter: "dc1".into(),
        node_tagged_addresses: map(&[("lan", "::1")]),
        node_meta: map(&[("b", "2")]),
        cts_user_defined_meta: map(&[
            ("spaced key", "value"),
            ("key", "value"),
            ("key-2", "value"),
        ]),
        ..ServiceInstance::default()
    };
    let bare = ServiceInstance { id: "x".into(), ..ServiceInstance::default() };
    let overrides = json!({"condition": services_condition(&matching(), true)});
    assert_task("alignment", &overrides, &instances(vec![full, bare]));
}

/// Spec: CTS36
#[test]
fn whatever_the_language_could_misread_is_escaped() {
    let filter = "Service.Meta.x matches \"a\\\\.b\" and\n\"c=d\" in Service.Tags";
    let overrides = json!({
        "description": "first ${line}\r\nsecond {{ line }}",
        "module": "/a \"b\" ${c}",
        "condition": kv_condition(
            &json!({"path": "a\"b\\c", "recurse": true, "datacenter": "", "namespace": ""}),
            true,
        ),
        "module_inputs": [{"Services": {"Named": [named("api", "", "", filter)]}}],
    });
    let mut inputs = key_values(&[("k\"1", "a\\b\n\"c\" ${d} %{e} \0")]);
    inputs.services = Some(vec![std::sync::Arc::new(ServiceInstance {
        id: "x\n".into(),
        name: "${x}".into(),
        meta: map(&[("${k}", "%{v}")]),
        tags: vec!["\"}".into(), "é語".into()],
        ..ServiceInstance::default()
    })]);
    assert_task("escapes", &overrides, &inputs);
}
