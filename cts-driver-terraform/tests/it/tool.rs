//! What real tools say of generated files, and of the strings in them.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use consul_watch::testing::parts::Part;
use cts_driver_terraform::RootModule;
use cts_tasks::{KvEntry, ServiceInstance, TaskInputs};
use proptest::{
    strategy::{Strategy as _, ValueTree as _},
    test_runner::TestRunner,
};
use serde_json::{Value as Json, json};
use tokio::process::Command;

use crate::{
    fixtures::{api_and_web, instances, keys, kv_condition, map, provider, task},
    properties::text,
    site::tools,
};

/// Runs a command of the tool; tells success and what it printed.
async fn run(tool: &Part, directory: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(&tool.path)
        .args(arguments)
        .current_dir(directory)
        .env_remove("TF_CLI_CONFIG_FILE")
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/golden")
}

/// Maps of catalog services and keys are not aligned, as specified.
const NOT_ALIGNED: [&str; 2] =
    ["catalog-services/terraform.tfvars", "consul-kv-recurse/terraform.tfvars"];

#[tokio::test]
async fn every_golden_file_is_laid_out_as_the_tool_does() {
    for tool in tools("every_golden_file_is_laid_out_as_the_tool_does") {
        let (clean, printed) =
            run(&tool, &golden(), &["fmt", "-check", "-recursive", "-no-color", "."]).await;
        let mut others: Vec<_> = printed.lines().collect();
        others.sort_unstable();
        assert_eq!(others, NOT_ALIGNED);
        assert!(!clean, "the two exceptions are seen");
    }
}

/// Every variable of the golden cases' modules.
const MODULE_VARIABLES: [&str; 13] = [
    "services",
    "catalog_services",
    "consul_kv",
    "b",
    "empty",
    "key",
    "l",
    "nothing",
    "num",
    "obj",
    "objs",
    "odd",
    "tup",
];

/// Cases whose `main.tf` names a provider that would have to be downloaded.
const FOREIGN_PROVIDERS: [&str; 2] = ["specification", "two-providers"];

/// The golden files of a case that make up its module, with a local module in
/// place of the one that it calls.
fn golden_module(case: &Path) -> Vec<(String, String)> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let foreign = FOREIGN_PROVIDERS.contains(&name(case).as_str());
    let paths = std::fs::read_dir(case).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "tf"));
    let mut files = Vec::new();
    for path in paths.filter(|path| !foreign || !path.ends_with("main.tf")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().map(|line| match line.trim_start().strip_prefix("source ") {
            Some(_) => "source = \"./m\"",
            None => line,
        });
        files.push((name(&path), lines.collect::<Vec<_>>().join("\n")));
    }
    if !files.is_empty() && !files.iter().any(|(name, _)| name == "variables.tf") {
        // It declares what these cases need.
        let variables = golden().join("consul-kv/variables.tf");
        files.push(("variables.tf".to_owned(), std::fs::read_to_string(variables).unwrap()));
    }
    files
}

/// But for modules and providers that would have to be downloaded.
#[tokio::test]
async fn every_golden_module_is_valid() {
    for tool in tools("every_golden_module_is_valid") {
        let mut whole = Vec::new();
        let mut variables_only = 0;
        for case in std::fs::read_dir(golden()).unwrap().map(|entry| entry.unwrap().path()) {
            let files = golden_module(&case);
            if files.is_empty() {
                continue;
            }
            let directory = tempfile::tempdir().unwrap();
            declare(directory.path(), &MODULE_VARIABLES);
            for (name, content) in &files {
                std::fs::write(directory.path().join(name), content).unwrap();
            }
            assert_valid(&tool, directory.path(), &case).await;
            if files.iter().any(|(name, _)| name == "main.tf") {
                whole.push(case.file_name().unwrap().to_str().unwrap().to_owned());
            } else {
                variables_only += 1;
            }
        }
        whole.sort_unstable();
        let expected =
            ["catalog-services", "consul-kv", "escapes", "no-description", "no-providers"];
        assert_eq!(whole, [&expected[..], &["variables"]].concat());
        assert_eq!(variables_only, 7);
    }
}

/// Makes a module `m` that takes these variables.
fn declare(directory: &Path, names: &[&str]) {
    std::fs::create_dir(directory.join("m")).unwrap();
    let variables: Vec<_> = names
        .iter()
        .map(|name| format!("variable \"{name}\" {{\n  type = any\n  default = null\n}}\n"))
        .collect();
    std::fs::write(directory.join("m/main.tf"), variables.concat()).unwrap();
}

async fn assert_valid(tool: &Part, directory: &Path, case: &Path) {
    let case = case.display();
    let (done, printed) = run(tool, directory, &["init", "-backend=false", "-no-color"]).await;
    assert!(done, "{case}: {printed}");
    let (_, printed) = run(tool, directory, &["validate", "-no-color"]).await;
    assert!(printed.contains("Success! The configuration is valid"), "{case}: {printed}");
}

/// All inputs, variables of every type, and a provider that is built in.
#[tokio::test]
async fn generated_modules_are_valid() {
    let all = json!({"b": true, "l": [1, 2], "o": {"a": {"b": null}}, "odd": {"a b": 1}});
    for tool in tools("generated_modules_are_valid") {
        let directory = tempfile::tempdir().unwrap();
        declare(
            directory.path(),
            &["services", "catalog_services", "consul_kv", "b", "l", "o", "odd"],
        );
        let fields = json!({
            "module": directory.path().join("m"),
            "providers": ["terraform"],
            "variables": all,
            "condition": crate::fixtures::catalog_condition("", true, true),
            "module_inputs": [{"ConsulKv": keys("a", true, "")}, {"Services": api_and_web()}],
        });
        let root = RootModule::builder(&task(&fields))
            .providers(&[provider("terraform", Some("x"), &json!({}))])
            .unwrap()
            .build();
        for file in root.files() {
            std::fs::write(directory.path().join(file.name), file.content).unwrap();
        }
        assert_valid(&tool, directory.path(), Path::new("all inputs")).await;
    }
}

/// Strings from the generator, and the awkward ones of the specification.
fn strings() -> Vec<String> {
    let mut runner = TestRunner::deterministic();
    let random = (0..300).map(|_| text().new_tree(&mut runner).unwrap().current());
    let awkward = [
        "",
        "\"",
        "\\",
        "ends with \\",
        "\n",
        "\r\n",
        "\0",
        "\u{1b}[0m",
        "${a}",
        "$${a}",
        "$$${",
        "%{if}",
        "%%{",
        "\u{2028}",
        "\u{feff}",
        "\u{fffe}",
        "\u{10ffff}",
        "e\u{301}",
        "for",
        "null",
        "true",
        "if",
        "#",
        "<<EOT\nx\nEOT",
        "{{ key }}",
        "~",
    ];
    random.chain(awkward.map(str::to_owned)).collect()
}

/// Every kind of string that a module gets, under numbered keys.
fn awkward_inputs(strings: &[String]) -> TaskInputs {
    let instance = |(number, text): (usize, &String)| ServiceInstance {
        id: number.to_string(),
        name: text.clone(),
        address: text.clone(),
        tags: vec![text.clone(), text.clone()],
        meta: map(&[("key", text), (text, "value")]),
        ..ServiceInstance::default()
    };
    let mut inputs = instances(strings.iter().enumerate().map(instance).collect());
    let entry = |(number, text): (usize, &String)| {
        let entry = |path: String, value: &str| KvEntry { path, value: value.as_bytes().into() };
        [entry(number.to_string(), text), entry(format!("key {text}"), "value")]
    };
    inputs.consul_kv = Some(strings.iter().enumerate().flat_map(entry).collect());
    inputs
}

/// The same in JSON, where every character outside ASCII is escaped, so that
/// nothing but the tool's own normalisation touches it.
fn expected(inputs: &TaskInputs) -> String {
    let mut services = serde_json::Map::new();
    for instance in inputs.services.iter().flatten() {
        let fields = json!({
            "name": instance.name, "address": instance.address, "tags": instance.tags,
            "meta": instance.meta.iter().collect::<Vec<_>>(),
        });
        services.insert(instance.id.clone(), fields);
    }
    let kv = inputs.consul_kv.iter().flatten();
    let kv: Vec<Json> = kv
        .map(|entry| json!([entry.path, String::from_utf8(entry.value.clone()).unwrap()]))
        .collect();
    let text = json!({"services": services, "kv": kv}).to_string();
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii() {
            escaped.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(escaped, "\\u{unit:04x}").unwrap();
        }
    }
    escaped
}

const COMPARISON: &str = r#"
locals {
  expected = jsondecode(file("expected.json"))
}
output "services" {
  value = [for id, s in var.services : id if
    s.name != local.expected.services[id].name || s.address != local.expected.services[id].address ||
    s.tags != tolist(local.expected.services[id].tags) ||
    anytrue([for pair in local.expected.services[id].meta : lookup(s.meta, pair[0], null) != pair[1]])]
}
output "kv" {
  value = [for pair in local.expected.kv : pair if lookup(var.consul_kv, pair[0], null) != pair[1]]
}
output "counts" {
  value = [length(var.services), length(local.expected.kv)]
}
"#;

/// What survives is compared by the tool itself, which normalises both sides.
#[tokio::test]
async fn every_string_reaches_the_module_unchanged() {
    let strings = strings();
    let inputs = awkward_inputs(&strings);
    let fields = json!({
        "condition": kv_condition(&keys("", true, ""), true),
        "module_inputs": [{"Services": api_and_web()}],
    });
    let root = RootModule::builder(&task(&fields)).build();
    for tool in tools("every_string_reaches_the_module_unchanged") {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        for file in root.files().into_iter().filter(|file| file.name == "variables.tf") {
            std::fs::write(place(file.name), file.content).unwrap();
        }
        std::fs::write(place("terraform.tfvars"), root.tfvars(&inputs).unwrap().content).unwrap();
        std::fs::write(place("expected.json"), expected(&inputs)).unwrap();
        std::fs::write(place("compare.tf"), COMPARISON).unwrap();
        let (done, printed) = run(&tool, directory.path(), &["init"]).await;
        assert!(done, "{printed}");
        let arguments = ["apply", "-auto-approve", "-no-color", "-input=false"];
        let (done, printed) = run(&tool, directory.path(), &arguments).await;
        assert!(done, "{printed}");
        let (_, printed) = run(&tool, directory.path(), &["output", "-json"]).await;
        let outputs: Json = serde_json::from_str(&printed).unwrap();
        assert_eq!(
            outputs["services"]["value"],
            json!([]),
            "names, addresses, tags or meta differ"
        );
        assert_eq!(outputs["kv"]["value"], json!([]), "keys or values differ");
        assert_eq!(outputs["counts"]["value"], json!([strings.len(), 2 * strings.len()]));
    }
}
