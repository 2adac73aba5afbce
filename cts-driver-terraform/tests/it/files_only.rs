//! Files without a driver: out of a configuration, by one function, and with few packages.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
    sync::Arc,
};

use cts_driver_terraform::{Backend, Error, FilesKind, RootModule, Settings};
use cts_tasks::{
    Condition, Config, Source, Task, TaskInputs,
    config::{Loader, Registry},
};

use crate::fixtures::{api_instance, instances};

/// Reads a configuration as a program does that makes files only.
fn config(text: &str) -> Config {
    let loader = Loader::new(Registry::new().driver(Arc::new(FilesKind)))
        .environment(|_| None)
        .hostname(|| Ok("test".to_owned()))
        .base_dir("/srv/cts");
    let source = Source { path: "cts.hcl".into(), text: text.to_owned() };
    loader.load_sources(vec![source]).unwrap_or_else(|found| panic!("{found:#?}")).config
}

fn local(task: &Task) -> RootModule {
    let backend = Backend::new("local", std::collections::BTreeMap::default()).unwrap();
    RootModule::builder(task).backend(backend).build()
}

/// Returns the names and modes of the files of a directory.
fn modes(directory: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let mut found: Vec<_> = entries
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_configuration_without_a_driver_block_becomes_files() {
    let config = config(
        r#"
        terraform_provider "local" { attr = "pl4nted" }
        task {
          name      = "web"
          module    = "./modules/web"
          providers = ["local"]
          condition "services" { names = ["api"] }
        }
        "#,
    );
    let settings = Settings::of(&config, Path::new("/srv/cts")).unwrap();
    assert_eq!(settings.backend().label(), "consul", "the default");
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("deep/web");
    let root = settings.root_module(&config.tasks[0], None).unwrap();
    root.write(&directory, &instances(vec![api_instance()])).unwrap();

    let expected = ["main.tf", "providers.auto.tfvars", "terraform.tfvars"];
    let expected = expected.into_iter().chain(["terraform.tfvars.tmpl", "variables.tf"]);
    let modes = modes(&directory);
    assert_eq!(modes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), {
        expected.collect::<Vec<_>>()
    });
    for (name, mode) in modes {
        let secret = Path::new(&name).extension().is_some_and(|ending| ending == "tfvars");
        assert_eq!(mode, if secret { 0o600 } else { 0o640 }, "{name}");
    }
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
    for file in root.files() {
        assert_eq!(read(file.name), file.content, "{}", file.name);
    }
    assert!(read("main.tf").contains("source   = \"/srv/cts/modules/web\""), "{}", read("main.tf"));
    assert!(read("terraform.tfvars").contains("\"api"), "{}", read("terraform.tfvars"));
    assert!(
        !read("main.tf").contains("pl4nted") && read("providers.auto.tfvars").contains("pl4nted")
    );
}

#[test]
fn what_has_not_changed_is_left_and_what_is_no_more_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path();
    fs::write(directory.join("mine.tf"), "# mine\n").unwrap();
    let task = || {
        Task::new("web".parse().unwrap(), Condition::services(["api"])).with_module("org/web/aws")
    };
    let inputs = TaskInputs::default();
    local(&task().with_variable("port", 80)).write(directory, &inputs).unwrap();
    let inode = |name: &str| fs::metadata(directory.join(name)).unwrap().ino();
    let before = (inode("main.tf"), inode("terraform.tfvars"), inode("variables.auto.tfvars"));

    local(&task().with_variable("port", 81)).write(directory, &inputs).unwrap();
    assert_eq!((inode("main.tf"), inode("terraform.tfvars")), (before.0, before.1));
    assert_ne!(inode("variables.auto.tfvars"), before.2, "another value");

    local(&task()).write(directory, &inputs).unwrap();
    let left: Vec<_> = modes(directory).into_iter().map(|(name, _)| name).collect();
    assert!(!left.iter().any(|name| name.starts_with("variables.auto")), "{left:?}");
    assert!(left.contains(&"mine.tf".to_owned()), "somebody else's file: {left:?}");
}

#[test]
fn nothing_is_written_of_what_terraform_would_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("web");
    let task = Task::new("web".parse().unwrap(), Condition::services(["api"]))
        .with_module("org/web/aws")
        .with_variable("not a name", 1);
    let error = local(&task).write(&directory, &TaskInputs::default()).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    assert!(!directory.exists());

    let blocked = folder.path().join("file");
    fs::write(&blocked, "").unwrap();
    let task = Task::new("web".parse().unwrap(), Condition::services(["api"])).with_module("m");
    let error = local(&task).write(&blocked, &TaskInputs::default()).unwrap_err();
    assert!(error.to_string().contains(&*blocked.to_string_lossy()), "{error}");
}

#[tokio::test]
async fn a_kind_for_files_runs_nothing_and_other_drivers_have_no_settings() {
    let loader = Loader::new(Registry::new().driver(Arc::new(FilesKind))).environment(|_| None);
    let text = "task {\n  name = \"web\"\n  module = \"org/web/aws\"\n  condition \"services\" { names = \
                [\"a\"] }\n}\n";
    let source = Source { path: "cts.hcl".into(), text: text.to_owned() };
    let loaded = loader.load_sources(vec![source]).unwrap();
    let refused = loaded.driver.start().await.unwrap_err().to_string();
    assert!(refused.contains("runs none") && refused.contains("TerraformKind"), "{refused}");
    assert!(loaded.driver.driver(&loaded.config.tasks[0]).is_err());

    let mut other = loaded.config.clone();
    "haproxy".clone_into(&mut other.driver.label);
    let found = Settings::of(&other, Path::new("/srv")).unwrap_err();
    assert!(found[0].message.contains("haproxy"), "{found:?}");

    let wrong = "driver \"terraform\" {\n  backend \"elsewhere\" {}\n}\n";
    let source = Source { path: "cts.hcl".into(), text: format!("{wrong}{text}") };
    let found = loader.load_sources(vec![source]).unwrap_err();
    assert!(found[0].message.contains("elsewhere") && found[0].place.is_some(), "{found:?}");
}

/// Runs cargo on this crate, away from the target directory of the tests.
fn cargo(arguments: &[&str]) -> (bool, String) {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .args(["--offline", "--locked", "-p", "cts-driver-terraform", "--no-default-features"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("few-packages"))
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

#[test]
fn without_features_it_builds_with_few_packages() {
    let (ok, tree) = cargo(&["tree", "-e", "normal,build", "--prefix", "none", "--format", "{p}"]);
    assert!(ok, "{tree}");
    let mut packages: Vec<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    packages.sort_unstable();
    packages.dedup();
    assert!(packages.iter().any(|package| package.starts_with("cts-tasks ")), "{tree}");
    assert!(packages.len() < 60, "{}: {packages:#?}", packages.len());

    // Compiled here, because every other build of these tests has all features.
    let (ok, printed) = cargo(&["check", "--lib"]);
    let warned = printed.contains("(lib) generated");
    assert!(ok && !warned, "{printed}");
}
