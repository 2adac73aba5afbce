//! The state in each backend, on real servers: secrets, upgrades in place, moves, locks.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use consul_watch::testing::{Log, parts::Part, real::Consul};
use cts_driver_terraform::{Backend, RootModule};
use cts_tasks::{ApplyRequest, Error, Outcome};
use secrecy::ExposeSecret as _;
use serde_json::{Value as Json, json};

use crate::{
    crash::kill_the_tool,
    fixtures::{literals, provider, task},
    servers::{BUCKET, Moto, PASSWORD, Postgres},
    site::{SUITE, Site, context, counts, eventually, module, services, tools},
};

pub(crate) const KEY: &str = "AKIABACKEND";
pub(crate) const SECRET: &str = "s3-pl4nted-5ecret";

pub(crate) async fn moto(case: &str) -> Option<Moto> {
    let part = SUITE.part("moto_server", case)?;
    Some(Moto::start(&part.path).await)
}

async fn postgres(case: &str) -> Option<Postgres> {
    let (postgres, initdb) = (SUITE.part("postgres", case)?, SUITE.part("initdb", case)?);
    Some(Postgres::start(&postgres.path, &initdb.path).await)
}

/// The S3 backend as an operator writes it for a server that is not AWS's, in
/// the words that every tool here knows.
pub(crate) fn s3(moto: &Moto, key: &str, more: &Json) -> Json {
    let mut backend = json!({
        "bucket": BUCKET, "key": key, "region": "us-east-1",
        "endpoints": {"s3": moto.endpoint(), "sts": moto.endpoint(), "iam": moto.endpoint()},
        "skip_credentials_validation": true, "skip_requesting_account_id": true,
        "skip_metadata_api_check": true, "use_path_style": true,
    });
    backend.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    backend
}

/// A site whose tools know no credentials but those that a test gives.
fn site(tool: &Part, backend: &Json) -> Site {
    let mut site = Site::new(tool);
    site.options.environment.retain(|(name, _)| !name.to_string_lossy().starts_with("AWS_"));
    site.options.environment.push(("AWS_EC2_METADATA_DISABLED".into(), "true".into()));
    site.driver_block = json!({"backend": backend, "log": true});
    site
}

/// Prepares and applies; returns how the apply ended.
async fn apply(site: &Site, port: i64) -> Result<Outcome, Error> {
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await?;
    driver.apply(ApplyRequest::Inputs(&services(&[("a", port)])), &context()).await
}

/// A first run makes one rule, and a second one in the same folder finds it.
async fn assert_runs(site: &Site) {
    assert_eq!(counts(&apply(site, 80).await.unwrap()), (1, 0, 0));
    assert_eq!(apply(site, 80).await.unwrap(), Outcome::Unchanged);
    assert!(!site.task_dir().join("terraform.tfstate.d").exists());
}

/// Files of the task's folder that hold the secret, with their modes.
pub(crate) fn files_with(secret: &str, directory: &Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            let path = entry.path();
            let text = fs::read(&path).map(|text| String::from_utf8_lossy(&text).into_owned());
            if entry.file_type().unwrap().is_dir() {
                directories.push(path);
            } else if text.is_ok_and(|text| text.contains(secret)) {
                found.push((path.display().to_string(), mode(&path)));
            }
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The secret stands where only the tool has to keep it, behind a closed door.
fn assert_kept(site: &Site, secret: &str, log: &Log) {
    let tool_directory = site.task_dir().join(".terraform");
    for (file, mode) in files_with(secret, &site.task_dir()) {
        assert_eq!(Path::new(&file).parent().unwrap(), tool_directory, "{file}");
        assert_eq!(mode, 0o600, "{file}");
    }
    assert_eq!(mode(&tool_directory), 0o700);
    assert!(!log.text().contains(secret));
    assert!(log.text().contains("-backend-config="), "commands are logged");
}

#[tokio::test]
async fn s3_takes_its_keys_from_the_block() {
    let Some(moto) = moto("s3_takes_its_keys_from_the_block").await else { return };
    for tool in tools("s3_takes_its_keys_from_the_block") {
        let keys = json!({"access_key": KEY, "secret_key": SECRET});
        let site = site(&tool, &json!({"s3": s3(&moto, &tool.version, &keys)}));
        let log = Log::start();
        assert_runs(&site).await;
        assert_kept(&site, SECRET, &log);
    }
}

#[tokio::test]
async fn s3_takes_its_keys_from_the_environment_of_the_daemon_or_a_profile() {
    let case = "s3_takes_its_keys_from_the_environment_of_the_daemon_or_a_profile";
    let Some(moto) = moto(case).await else { return };
    for tool in tools(case) {
        let mut by_environment =
            site(&tool, &json!({"s3": s3(&moto, &format!("e{}", tool.version), &json!({}))}));
        let keys = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)];
        let keys = keys.map(|(name, value)| (name.into(), value.into()));
        by_environment.options.environment.extend(keys);
        assert_runs(&by_environment).await;
        assert!(files_with(SECRET, &by_environment.task_dir()).is_empty());

        let credentials = by_environment.path().join("credentials");
        let profile =
            format!("[cts]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
        fs::write(&credentials, profile).unwrap();
        let backend = s3(&moto, &format!("p{}", tool.version), &json!({"profile": "cts"}));
        let mut by_profile = site(&tool, &json!({"s3": backend}));
        let file = ("AWS_SHARED_CREDENTIALS_FILE".into(), credentials.into());
        by_profile.options.environment.push(file);
        assert_runs(&by_profile).await;
    }
}

/// What the task's providers find in the environment is theirs, and what the
/// backend signs with is the backend's.
#[tokio::test]
async fn neither_the_backend_nor_the_task_sees_the_others_identity() {
    let case = "neither_the_backend_nor_the_task_sees_the_others_identity";
    let Some(moto) = moto(case).await else { return };
    moto.call("POST", "moto-api/recorder/start-recording").await;
    for tool in tools(case) {
        let keys = json!({"access_key": KEY, "secret_key": SECRET});
        let mut site = site(&tool, &json!({"s3": s3(&moto, &tool.version, &keys)}));
        let mut identity = provider("terraform", None, &json!({}));
        identity.task_env.insert("AWS_ACCESS_KEY_ID".into(), "AKIATASK".into());
        identity.task_env.insert("AWS_SECRET_ACCESS_KEY".into(), "the-tasks".into());
        site.providers = vec![identity];
        let driver =
            site.driver(&json!({"providers": ["terraform"], "module": module("identity")}));
        driver.prepare(&context()).await.unwrap();
        driver.apply(ApplyRequest::Inputs(&services(&[("a", 1)])), &context()).await.unwrap();
        assert_eq!(site.rules(), ["a=AKIATASK/the-tasks"]);
    }
    assert_eq!(moto.recorded_keys().await.into_iter().collect::<Vec<_>>(), [KEY]);
}

/// In one task the backend and a data source speak to AWS, each with its own credentials: the
/// data source of the tool's own provider reads the environment as the AWS provider does.
#[tokio::test]
async fn what_a_task_reads_of_aws_is_signed_by_its_own_identity() {
    let case = "what_a_task_reads_of_aws_is_signed_by_its_own_identity";
    let Some(moto) = moto(case).await else { return };
    for tool in tools(case) {
        let keys = json!({"access_key": KEY, "secret_key": SECRET});
        let (own, other) = (format!("own-{}", tool.version), format!("other-{}", tool.version));
        assert_runs(&site(&tool, &json!({"s3": s3(&moto, &other, &keys)}))).await;

        moto.call("POST", "moto-api/recorder/reset-recording").await;
        moto.call("POST", "moto-api/recorder/start-recording").await;
        let mut site = site(&tool, &json!({"s3": s3(&moto, &own, &keys)}));
        let mut identity = provider("terraform", None, &json!({}));
        identity.task_env.insert("AWS_ACCESS_KEY_ID".into(), "AKIATASK".into());
        identity.task_env.insert("AWS_SECRET_ACCESS_KEY".into(), "the-tasks".into());
        site.providers = vec![identity];
        let read = s3(&moto, &other, &json!({})).to_string();
        let variables = json!({"directory": site.path().join("rules"), "s3": read});
        let driver = site.driver(&json!({
            "providers": ["terraform"], "module": module("elsewhere"), "variables": variables,
        }));
        driver.prepare(&context()).await.unwrap();
        driver.apply(ApplyRequest::Inputs(&services(&[("a", 1)])), &context()).await.unwrap();
        assert_eq!(site.rules(), ["a=0"], "it has read a state without outputs");
        moto.call("POST", "moto-api/recorder/stop-recording").await;

        let (backends, tasks) = (moto.recorded_of(KEY).await, moto.recorded_of("AKIATASK").await);
        assert!(backends.iter().any(|one| one.contains(&own)), "{backends:?}");
        assert!(tasks.iter().any(|one| one.contains(&other)), "{tasks:?}");
        assert!(!backends.iter().any(|one| one.contains(&other)), "{backends:?}");
        assert!(!tasks.iter().any(|one| one.contains(&own)), "{tasks:?}");
    }
}

#[tokio::test]
async fn postgres_takes_its_password_from_the_block() {
    let case = "postgres_takes_its_password_from_the_block";
    let Some(postgres) = postgres(case).await else { return };
    for tool in tools(case) {
        let schema = format!("cts_{}", tool.version.replace('.', "_"));
        let backend = json!({"pg": {"conn_str": postgres.connection(), "schema_name": schema}});
        let site = site(&tool, &backend);
        let log = Log::start();
        assert_runs(&site).await;
        assert_kept(&site, PASSWORD, &log);
    }
}

#[tokio::test]
async fn consul_takes_its_token_from_the_block() {
    let case = "consul_takes_its_token_from_the_block";
    for part in SUITE.parts("consul", case) {
        let master = if part.major_minor() < (1, 11) { "master" } else { "initial_management" };
        let acl = json!({"acl": {
            "enabled": true, "default_policy": "deny", "tokens": {master: ROOT},
        }});
        let consul = Consul::start_with(&part.path, acl).await.unwrap();
        for tool in tools(case) {
            let path = format!("p{}/terraform", tool.version);
            let backend = json!({"consul": {"access_token": ROOT, "path": path}});
            let mut site = site(&tool, &backend);
            site.consul.address = consul.address();
            let log = Log::start();
            assert_runs(&site).await;
            assert_kept(&site, ROOT, &log);
        }
    }
}

/// An open source Consul refuses to be asked for a namespace, which shows that it was asked.
#[tokio::test]
async fn a_namespace_of_the_state_reaches_the_tool() {
    let case = "a_namespace_of_the_state_reaches_the_tool";
    for part in SUITE.parts("consul", case) {
        let consul = Consul::start(&part.path).await.unwrap();
        for tool in tools(case) {
            let path = format!("p{}/terraform", tool.version);
            let mut site = site(&tool, &json!({"consul": {"path": path}}));
            site.consul.address = consul.address();
            assert_runs(&site).await;
            site.consul.kv_namespace = "team".to_owned();
            let error = apply(&site, 81).await.unwrap_err().to_string();
            assert!(error.contains("\"ns\"") && error.contains("Enterprise"), "{error}");
        }
    }
}

const ROOT: &str = "11111111-2222-3333-4444-555555555555";

/// An init that fails repeats lines of the file, and our error is shown to anybody.
#[tokio::test]
async fn a_secret_that_the_tool_repeats_is_masked() {
    for tool in tools("a_secret_that_the_tool_repeats_is_masked") {
        let secret = "postgres://cts:p4ss-w0rd@[::1:x/no such";
        let site = site(&tool, &json!({"pg": {"conn_str": secret}}));
        let log = Log::start();
        let error = apply(&site, 80).await.unwrap_err();
        let told = format!("{error} {error:?} {}", log.text());
        assert!(!told.contains("p4ss-w0rd"), "{told}");
        // The file is gone, although init failed.
        let left = fs::read_dir(std::env::temp_dir()).unwrap().filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            let ours = path.extension().is_some_and(|extension| extension == "tfbackend");
            ours && fs::read_to_string(path).is_ok_and(|text| text.contains("p4ss-w0rd"))
        });
        assert_eq!(left.count(), 0);
    }
}

/// Runs the tool by hand, as upstream does in its folder.
fn by_hand(site: &Site, tool: &Part, arguments: &[&str]) {
    let environment = site.options.environment.iter().map(|(name, value)| (name, value));
    let done = Command::new(&tool.path)
        .args(arguments)
        .current_dir(site.task_dir())
        .env_clear()
        .envs(environment)
        .env_remove("TF_CLI_CONFIG_FILE")
        .output()
        .unwrap();
    let printed = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&printed));
}

/// Makes a task's folder as upstream leaves it: everything of the backend,
/// secrets too, in the block in `main.tf`; initialised, and applied once.
fn as_upstream(site: &Site, tool: &Part, label: &str, backend: &Json) {
    let task = site.task(&json!({}));
    let root = RootModule::builder(&task).base_dir(site.path());
    let root = root.backend(Backend::new(label, literals(backend)).unwrap()).build();
    fs::create_dir_all(site.task_dir()).unwrap();
    let inputs = root.tfvars(&services(&[("a", 80)])).unwrap();
    for mut file in root.files().into_iter().chain([inputs]) {
        if file.name == "main.tf" {
            let opening = format!("backend {label:?} {{\n");
            let secrets = Backend::new(label, literals(backend)).unwrap().secret_attributes();
            let secrets = secrets.map(|text| text.expose_secret().to_owned()).unwrap_or_default();
            file.content = file.content.replace(&opening, &format!("{opening}{secrets}"));
        }
        fs::write(site.task_dir().join(file.name), file.content).unwrap();
    }
    by_hand(site, tool, &["init", "-no-color", "-force-copy", "-input=false"]);
    by_hand(site, tool, &["workspace", "new", "-no-color", "test"]);
    by_hand(site, tool, &["workspace", "select", "-no-color", "test"]);
    by_hand(site, tool, &["apply", "-no-color", "-auto-approve", "-input=false"]);
}

/// Each backend that can be run here, with the secrets that upstream writes.
async fn all_backends(case: &str, tool: &Part) -> (Vec<(&'static str, Json)>, impl Sized) {
    let (mut backends, unique) = (Vec::new(), tool.version.replace('.', "_"));
    let moto = moto(case).await;
    if let Some(moto) = &moto {
        let keys = json!({"access_key": KEY, "secret_key": SECRET});
        backends.push(("s3", s3(moto, &unique, &keys)));
    }
    let postgres = postgres(case).await;
    if let Some(postgres) = &postgres {
        let schema = format!("up_{unique}");
        backends.push(("pg", json!({"conn_str": postgres.connection(), "schema_name": schema})));
    }
    let mut consuls = Vec::new();
    for part in SUITE.parts("consul", case) {
        let consul = Consul::start(&part.path).await.unwrap();
        let path = format!("{unique}/terraform");
        backends.push((
            "consul",
            json!({"address": consul.address(), "path": path, "gzip": true,
            "access_token": "any-t0ken"}),
        ));
        consuls.push(consul);
    }
    backends.push(("local", json!({})));
    (backends, (moto, postgres, consuls))
}

/// The daemon is replaced, and the folders stay.
#[tokio::test]
async fn a_folder_that_upstream_made_starts_in_each_backend() {
    let case = "a_folder_that_upstream_made_starts_in_each_backend";
    for tool in tools(case) {
        let (backends, _servers) = all_backends(case, &tool).await;
        for (label, backend) in backends {
            let site = site(&tool, &json!({label: &backend}));
            as_upstream(&site, &tool, label, &backend);
            assert_eq!(apply(&site, 80).await.unwrap(), Outcome::Unchanged, "{label} {tool:?}");
            assert_eq!(counts(&apply(&site, 81).await.unwrap()), (1, 0, 1), "{label}");
            let main = fs::read_to_string(site.task_dir().join("main.tf")).unwrap();
            for secret in [SECRET, PASSWORD, "any-t0ken"] {
                assert!(!main.contains(secret), "{label}");
            }
        }
    }
}

/// The state follows its configuration, whatever backend it comes from.
#[tokio::test]
async fn a_state_follows_when_the_backend_changes() {
    let case = "a_state_follows_when_the_backend_changes";
    for tool in tools(case) {
        let (backends, _servers) = all_backends(case, &tool).await;
        let last = backends.len() - 1;
        let mut site = site(&tool, &json!({backends[last].0: backends[last].1}));
        as_upstream(&site, &tool, backends[last].0, &backends[last].1);
        // From the last, local, through all others in turn and back, and then to
        // another path of the same backend.
        for (label, backend) in
            backends.iter().chain([&("local", json!({"workspace_dir": "states"}))])
        {
            site.driver_block = json!({"backend": {*label: backend}});
            assert_eq!(apply(&site, 80).await.unwrap(), Outcome::Unchanged, "{label}");
            assert!(!site.task_dir().join(".cts-move").exists());
        }
    }
}

/// The tool's own copy takes the states of all tasks along, over newer ones.
#[tokio::test]
async fn a_move_leaves_newer_states_of_other_tasks_alone() {
    for tool in tools("a_move_leaves_newer_states_of_other_tasks_alone") {
        let mut site = Site::new(&tool);
        let at = |path: &str| json!({"backend": {"local": {"workspace_dir": path}}});
        let (old, new) = (site.path().join("old"), site.path().join("new"));
        site.driver_block = at(old.to_str().unwrap());
        let other = json!({"name": "other", "working_dir": "sync-tasks/other"});
        for fields in [&json!({}), &other] {
            let driver = site.driver(fields);
            driver.prepare(&context()).await.unwrap();
            driver.apply(ApplyRequest::Inputs(&services(&[("a", 80)])), &context()).await.unwrap();
        }
        site.driver_block = at(new.to_str().unwrap());
        let first = site.driver(&json!({}));
        first.prepare(&context()).await.unwrap();
        let newer = services(&[("a", 80), ("b", 81)]);
        let applied = first.apply(ApplyRequest::Inputs(&newer), &context()).await.unwrap();
        assert_eq!(counts(&applied), (1, 0, 0));

        site.driver(&other).prepare(&context()).await.unwrap();
        let again = first.apply(ApplyRequest::Inputs(&newer), &context()).await.unwrap();
        assert_eq!(again, Outcome::Unchanged, "its newer state was replaced by the old one");
    }
}

/// Keys are rotated, and the old ones are worth nothing any more.
#[tokio::test]
async fn new_credentials_need_no_move() {
    let case = "new_credentials_need_no_move";
    let Some(moto) = moto(case).await else { return };
    for tool in tools(case) {
        let with = |secret: &str| {
            let keys = json!({"access_key": KEY, "secret_key": secret});
            json!({"backend": {"s3": s3(&moto, &format!("r{}", tool.version), &keys)}})
        };
        let mut site = site(&tool, &json!({}));
        site.driver_block = with("before");
        assert_eq!(counts(&apply(&site, 80).await.unwrap()), (1, 0, 0));
        site.driver_block = with("after");
        let log = Log::start();
        assert_eq!(apply(&site, 80).await.unwrap(), Outcome::Unchanged);
        assert!(!log.text().contains("the backend changed"), "{}", log.text());
    }
}

/// A state whose old place does not answer is never taken for none.
#[tokio::test]
async fn an_old_place_that_does_not_answer_stops_the_start() {
    for tool in tools("an_old_place_that_does_not_answer_stops_the_start") {
        let site = Site::new(&tool);
        let remembered = site.task_dir().join(".terraform/terraform.tfstate");
        fs::create_dir_all(remembered.parent().unwrap()).unwrap();
        let config = json!({"address": "127.0.0.1:1", "path": "x", "access_token": SECRET});
        let saved =
            json!({"version": 3, "backend": {"type": "consul", "config": config, "hash": 1}});
        fs::write(&remembered, saved.to_string()).unwrap();
        let error = site.driver(&json!({})).prepare(&context()).await.unwrap_err();
        let told = error.to_string();
        assert!(told.contains("cannot move the state of the task from backend \"consul\" (address = \"127.0.0.1:1\", path = \"x\") to backend \"local\" ()"), "{told}");
        assert!(
            told.contains(&format!("if there is nothing to move, remove {}", remembered.display())),
            "{told}"
        );
        assert!(error.is_retryable() && !told.contains(SECRET), "{told}");
        fs::remove_file(&remembered).unwrap();
        assert_eq!(counts(&apply(&site, 80).await.unwrap()), (1, 0, 0));
    }
}

/// A kill in the middle of an apply leaves a lock that stays for ever in S3.
#[tokio::test]
async fn a_lock_that_a_killed_apply_left_is_named_and_given_back() {
    let case = "a_lock_that_a_killed_apply_left_is_named_and_given_back";
    let Some(moto) = moto(case).await else { return };
    for tool in tools(case) {
        if tool.major_minor() < (1, 10) {
            SUITE.not_applicable(&tool.name, case, "it cannot lock a state in S3 without DynamoDB");
            continue;
        }
        let more = json!({"access_key": KEY, "secret_key": SECRET, "use_lockfile": true});
        let mut site = site(&tool, &json!({"s3": s3(&moto, &format!("l{}", tool.version), &more)}));
        site.driver_block["lock_timeout"] = json!("1s");
        let slow = json!({"variables": {"directory": site.path().join("rules"), "pause": 600}});
        let driver = site.driver(&slow);
        driver.prepare(&context()).await.unwrap();
        let log = Log::start();
        let running = tokio::spawn(async move {
            driver.apply(ApplyRequest::Inputs(&services(&[("a", 80)])), &context()).await
        });
        eventually("the apply", || site.provisions()).await;
        let note = site.task_dir().join(".cts-held");
        eventually("the note of the lock", || note.is_file()).await;
        kill_the_tool(&site);
        let error = running.await.unwrap().unwrap_err();
        assert!(error.to_string().contains("killed by a signal"), "{error}");
        let told = log.text();
        let command = format!("-chdir={} force-unlock ", site.task_dir().display());
        let (_, id) = told.split_once(&command).unwrap_or_else(|| panic!("{told}"));
        let id: String = id.chars().take_while(|c| c.is_ascii_hexdigit() || *c == '-').collect();
        assert_eq!(id.len(), 36, "{told}");

        // Somebody else's lock would look like this one, but for the note.
        let saved = fs::read(&note).unwrap();
        fs::write(
            &note,
            br#"{"step":"apply","started":"2020-01-01T00:00:00Z","held":"2020-01-01T00:00:01Z"}"#,
        )
        .unwrap();
        let error = apply(&site, 80).await.unwrap_err();
        assert!(error.to_string().contains("Lock Info"), "{error}");
        assert!(log.text().contains("not provably by a killed command"));

        fs::write(&note, saved).unwrap();
        // The interrupted provisioner may have left the resource tainted or unknown.
        apply(&site, 80).await.unwrap();
        assert_eq!(site.rules(), ["a=10.0.0.1:80"]);
        assert!(!note.exists());
        assert!(log.text().contains("gave back the lock on the state"));
    }
}

/// Two tasks of one folder would apply each other's module.
#[tokio::test]
async fn a_folder_belongs_to_one_task() {
    for tool in tools("a_folder_belongs_to_one_task") {
        let mut site = Site::new(&tool);
        // Commands that other tests start hold this process's files for a moment, between fork
        // and exec, so that whoever is to get the folder has to wait.
        let patient = json!({"backend": {"local": {}}, "lock_timeout": "10s"});
        site.driver_block = patient.clone();
        let first = site.driver(&json!({}));
        first.prepare(&context()).await.unwrap();
        site.driver_block = json!({"backend": {"local": {}}, "lock_timeout": "0s"});
        let second = site.driver(&json!({"name": "other"}));
        let error = second.prepare(&context()).await.unwrap_err();
        let told = error.to_string();
        let holder = format!("is in use by task test, process {} on ", std::process::id());
        assert!(told.contains(&holder), "{told}");
        assert!(error.is_retryable());
        // A daemon that was started twice has the same task; they take turns.
        site.driver_block = patient;
        let twin = site.driver(&json!({}));
        twin.prepare(&context()).await.unwrap();
        let inputs = services(&[("a", 80)]);
        twin.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap();
        assert_eq!(
            first.apply(ApplyRequest::Inputs(&inputs), &context()).await.unwrap(),
            Outcome::Unchanged
        );
        drop((first, twin));
        site.driver(&json!({"name": "other"})).prepare(&context()).await.unwrap();
    }
}

/// What each backend says in `main.tf`, and what in the file for `init`.
const GOLDEN: [&str; 9] =
    ["azurerm", "consul", "cos", "gcs", "kubernetes", "local", "manta", "pg", "s3"];

fn golden_backend(label: &str) -> Json {
    match label {
        "azurerm" => json!({
            "storage_account_name": "acc", "container_name": "states", "key": "cts",
            "access_key": SECRET, "sas_token": SECRET, "client_secret": SECRET,
        }),
        "consul" => json!({"path": "cts/terraform", "access_token": SECRET, "http_auth": SECRET}),
        "cos" => json!({
            "region": "ap-guangzhou", "bucket": "states-1", "secret_id": SECRET, "secret_key": SECRET,
        }),
        "gcs" => json!({
            "bucket": "states", "prefix": "cts", "credentials": "{\n  \"private_key\": \"${x}\"\n}",
            "encryption_key": SECRET,
        }),
        "kubernetes" => json!({
            "secret_suffix": "cts", "host": "https://k.example.com", "token": SECRET,
            "client_key": "-----BEGIN KEY-----\nabc\n-----END KEY-----\n", "password": SECRET,
        }),
        "local" => json!({"workspace_dir": "states"}),
        "manta" => json!({"account": "a", "key_id": "k", "path": "cts", "key_material": SECRET}),
        "pg" => json!({"conn_str": "postgres://u:p@h/d", "schema_name": "cts"}),
        "s3" => json!({
            "bucket": "states", "key": "cts", "region": "eu-central-1", "access_key": KEY,
            "secret_key": SECRET, "token": SECRET,
        }),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn every_backend_is_written_and_valid() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/backends");
    let tools = tools("every_backend_is_written_and_valid");
    for label in GOLDEN {
        let task = task(&json!({"module": module("rules")}));
        let backend = Backend::new(label, literals(&golden_backend(label))).unwrap();
        let secrets = backend.secret_attributes();
        let secrets = secrets.map(|text| text.expose_secret().to_owned()).unwrap_or_default();
        let root = RootModule::builder(&task).base_dir("/srv").backend(backend).build();
        let main = root.files().into_iter().find(|file| file.name == "main.tf").unwrap().content;
        let (_, block) = main.split_once("  backend ").unwrap();
        let (block, _) = block.split_once("\n}\n").unwrap();
        let written = format!("backend {block}\n---\n{secrets}");
        let path = golden.join(format!("{label}.txt"));
        let expected = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(written, expected, "{}", path.display());
        assert!(!block.contains(SECRET) && !block.contains("private_key"));
        for tool in &tools {
            validate(tool, label, block, &secrets);
        }
    }
}

/// Validates the block alone, and the block with its secrets, as the tool sees it after `init`.
fn validate(tool: &Part, label: &str, block: &str, secrets: &str) {
    const UNKNOWN: &str = "Unsupported backend type";
    let opening = format!("{label:?} {{\n");
    for block in [block.to_owned(), block.replace(&opening, &format!("{opening}{secrets}"))] {
        let directory = tempfile::tempdir().unwrap();
        let main = format!("terraform {{\n  backend {block}\n}}\n");
        fs::write(directory.path().join("main.tf"), main).unwrap();
        for arguments in
            [["init", "-backend=false", "-no-color"], ["validate", "-no-color", "-json"]]
        {
            let done = Command::new(&tool.path)
                .args(arguments)
                .current_dir(directory.path())
                .env_remove("TF_CLI_CONFIG_FILE")
                .output()
                .unwrap();
            let printed =
                String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            if label == "manta" && printed.contains(UNKNOWN) {
                SUITE.not_applicable(&tool.name, label, "it knows this backend no more");
                continue;
            }
            assert!(done.status.success(), "{label} {tool:?} {arguments:?}: {printed}");
        }
    }
}
