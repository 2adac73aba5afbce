//! The commands that look at a running daemon: `status`, `task list`, `show`, `events` and
//! `inputs`; and `doctor`, which looks at what `start` would need.

use std::{fs, path::Path, process::Stdio, time::Duration};

use consul_watch::{
    Client, QueryOptions,
    testing::{TestConsul, parts::Suite, real::Consul},
    types::HealthStatus,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    end_to_end::{firewall_task, instance},
    parts,
    secured::{daemon, mutual_daemon},
    sync::{PATIENCE, SyncProcess},
    world::{Transcript, operate, operate_with},
};

async fn put(consul: &Client, service: &str, number: u16) {
    consul.catalog_register(&instance(service, number, HealthStatus::Passing)).await.unwrap();
}

/// Asserts how a command ended, and returns what it said.
fn ended(transcript: &Transcript, code: i32) -> &str {
    let (said, complained) = (&transcript.said, &transcript.complained);
    assert_eq!(transcript.code, Some(code), "{said}\n{complained}");
    said
}

fn document(transcript: &Transcript, code: i32) -> Value {
    serde_json::from_str(ended(transcript, code)).unwrap()
}

/// The line that begins with this word, with its columns one space apart.
fn row(said: &str, name: &str) -> String {
    let line = said.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A task that runs by itself, and one whose plans have to be approved.
fn two_tasks(folder: &Path) -> String {
    let guarded = firewall_task(folder, "guarded", &["web"]);
    let guarded = guarded.replacen("task {\n", "task {\n  require_approval = true\n", 1);
    firewall_task(folder, "free", &["web", "api"]) + &guarded
}

/// A daemon with a task that ran, and one whose first plan waits.
async fn running(folder: &Path, consul: &Consul) -> SyncProcess {
    put(&consul.client(), "web", 1).await;
    let mut sync = SyncProcess::new(folder, &consul.address(), &two_tasks(folder));
    sync.start();
    sync.ran("free", 1).await;
    sync.waits("guarded").await;
    sync
}

#[tokio::test]
async fn a_look_tells_the_state_of_each_task() {
    let Some(consul) = parts::consul_and_terraform("look").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut sync = running(folder, &consul).await;

    let status = operate(&sync, folder, &["status"], "").await;
    let said = ended(&status, 17);
    assert!(said.starts_with("Health    healthy\nRole      single instance\n"), "{said}");
    let free = row(said, "free");
    assert!(free.starts_with("free successful yes 20"), "{said}");
    assert!(free.ends_with("services web, api"), "{said}");
    let guarded = row(said, "guarded");
    assert!(guarded.starts_with("guarded waiting yes 20"), "{said}");
    assert!(guarded.ends_with("approval, see task plan guarded"), "{said}");

    let status = document(&operate(&sync, folder, &["status", "-json"], "").await, 17);
    assert_eq!((&status["healthy"], &status["role"]), (&json!(true), &json!("single")));
    assert_eq!(status["tasks"][1]["status"], "waiting");
    assert!(status["tasks"][0]["last_run"].is_string() && status["tasks"][1]["error"].is_null());
    // Upstream's fields keep what upstream has, and the plan is counted by itself.
    let summary = sync.get("/v1/status").await.unwrap();
    let counts = json!({"successful": 1, "errored": 0, "critical": 0, "unknown": 0, "waiting": 1});
    assert_eq!(summary["task_summary"]["status"], counts);

    let list = operate(&sync, folder, &["task", "list"], "").await;
    assert_eq!(row(ended(&list, 0), "free"), free);
    let list = document(&operate(&sync, folder, &["task", "list", "-json"], "").await, 0);
    assert_eq!(list[0]["name"], "free");

    let shown = operate(&sync, folder, &["task", "show", "guarded"], "").await;
    let said = ended(&shown, 0);
    for part in [
        "Task         guarded\n",
        "Status       waiting, enabled\n",
        "Guard        every plan with changes has to be approved\n",
        "  service web: web-1 at 10.0.0.1:8001 on outside (passing)\n",
        "  Nothing was applied yet.\n",
        "waits because the task requires approval",
        "rules",
    ] {
        assert!(said.contains(part), "{part} is missing in\n{said}");
    }
    let shown = document(&operate(&sync, folder, &["task", "show", "free", "-json"], "").await, 0);
    assert_eq!(shown["task"]["name"], "free");
    assert_eq!(shown["inputs"]["since_applied"]["state"], "same");
    assert_eq!(shown["status"]["events"][0]["success"], true);

    let none = operate(&sync, folder, &["task", "show", "none"], "").await;
    ended(&none, 11);
    assert!(none.complained.contains("unable to show 'none'"), "{}", none.complained);
    assert!(none.complained.contains("404"), "{}", none.complained);
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn inputs_are_compared_with_what_was_applied() {
    let Some(consul) = parts::consul_and_terraform("look").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut sync = running(folder, &consul).await;
    let inputs = operate(&sync, folder, &["task", "inputs", "free"], "").await;
    assert_eq!(
        ended(&inputs, 0),
        "  service web: web-1 at 10.0.0.1:8001 on outside (passing)\n  \
         That is what was last applied.\n"
    );
    let approved =
        operate(&sync, folder, &["task", "approve", "-auto-approve", "guarded"], "").await;
    ended(&approved, 0);
    // Without a terminal what goes on is told as a log does.
    let progress = "[INFO]  progress: task_name=guarded";
    assert!(approved.complained.contains(progress), "{}", approved.complained);

    put(&consul.client(), "web", 2).await;
    sync.waits("guarded").await;
    let inputs = operate(&sync, folder, &["task", "inputs", "guarded"], "").await;
    let said = ended(&inputs, 0);
    assert_eq!(
        said,
        "  service web: web-1 at 10.0.0.1:8001 on outside (passing)\n\
         + service web: web-2 at 10.0.0.2:8002 on outside (passing)\n  \
         Since the last apply: 1 added, 0 changed, 0 removed.\n"
    );
    let inputs = operate(&sync, folder, &["task", "inputs", "-json", "guarded"], "").await;
    let difference = &document(&inputs, 0)["since_applied"]["difference"];
    assert_eq!(difference["added"].as_array().unwrap().len(), 1);

    ended(&operate(&sync, folder, &["task", "disable", "guarded"], "").await, 0);
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// A cluster's store says after a restart what differs from what was applied before it.
#[tokio::test]
async fn inputs_are_compared_with_what_an_earlier_process_applied() {
    let Some(consul) = parts::consul_and_terraform("look").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    put(&consul.client(), "web", 1).await;
    let guarded = firewall_task(folder, "guarded", &["web"]);
    let guarded = guarded.replacen("task {\n", "task {\n  require_approval = true\n", 1);
    let cluster = "high_availability {\n  cluster {\n    name = \"one\"\n    storage \"consul\" {\n      \
                   session_ttl = \"10s\"\n    }\n  }\n}\n";
    let mut sync = SyncProcess::new(folder, &consul.address(), &format!("{cluster}{guarded}"));
    sync.start();
    sync.waits("guarded").await;
    let approve = ["task", "approve", "-auto-approve", "guarded"];
    ended(&operate(&sync, folder, &approve, "").await, 0);
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());

    put(&consul.client(), "web", 2).await;
    fs::remove_file(folder.join("sync.log")).unwrap();
    sync.start();
    sync.waits("guarded").await;
    let inputs = operate(&sync, folder, &["task", "inputs", "guarded"], "").await;
    assert_eq!(
        ended(&inputs, 0),
        "  service web: web-1 at 10.0.0.1:8001 on outside (passing)\n\
         + service web: web-2 at 10.0.0.2:8002 on outside (passing)\n  \
         Since the last apply: 1 added, 0 changed, 0 removed.\n"
    );
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn a_task_is_followed_while_it_changes() {
    let Some(consul) = parts::consul_and_terraform("look").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut sync = running(folder, &consul).await;
    let events = operate(&sync, folder, &["task", "events", "free"], "").await;
    let said = ended(&events, 0);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("  successful in ") && said.contains("  +"), "{said}");
    let events =
        document(&operate(&sync, folder, &["task", "events", "free", "-json"], "").await, 0);
    assert_eq!(events[0]["success"], true);

    let mut following = Command::new(env!("CARGO_BIN_EXE_consul-terraform-sync"))
        .args(["task", "events", "-follow", "-http-addr", &sync.address().unwrap(), "free"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = timeout(PATIENCE, lines.next_line()).await;
        line.unwrap_or_else(|_late| panic!("nothing more\n{}", sync.log())).unwrap().unwrap()
    };
    assert!(next().await.contains("  successful in "));
    put(&consul.client(), "api", 3).await;
    // What the driver tells while it works, and then what the run came to.
    let mut told = Vec::new();
    while !told.last().is_some_and(|line: &String| line.contains("  successful in ")) {
        told.push(next().await);
    }
    assert!(told.iter().any(|line| line.contains("applying")), "{told:?}");
    following.kill().await.unwrap();
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// Every command that changes something, about a task that there is not; `task create` is given
/// one that the daemon refuses.
const CHANGES: [&[&str]; 8] = [
    &["task", "run", "none"],
    &["task", "plan", "none"],
    &["task", "approve", "-auto-approve", "none"],
    &["task", "discard", "none"],
    &["task", "enable", "-auto-approve", "none"],
    &["task", "disable", "none"],
    &["task", "delete", "-auto-approve", "none"],
    &["task", "create", "-auto-approve", "-task-file=none.hcl"],
];

/// Every command that looks, about a task that there is not.
const LOOKS: [&[&str]; 5] = [
    &["status"],
    &["task", "list"],
    &["task", "show", "none"],
    &["task", "events", "none"],
    &["task", "inputs", "none"],
];

/// Writes the file of a task whose provider has no block of its alias.
fn refused_task(folder: &Path) {
    let task = firewall_task(folder, "refused", &["web"]);
    let task = task.replacen("task {\n", "task {\n  providers = [\"aws.b\"]\n", 1);
    fs::write(folder.join("none.hcl"), task).unwrap();
}

#[tokio::test]
async fn every_command_takes_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    refused_task(folder);
    let (mut sync, _consul) = mutual_daemon(folder).await;
    let port = sync.address().unwrap().rsplit(':').next().unwrap().to_owned();
    let address = format!("-http-addr=https://localhost:{port}");
    for command in CHANGES.into_iter().chain(LOOKS) {
        let bare = [command, &[address.as_str(), "-ca-cert=ca.pem"]].concat();
        let refused = operate_with(folder, &bare, "", &[]).await;
        ended(&refused, 11);
        let complained = refused.complained.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(complained.contains("show a certificate with -client-cert"), "{complained}");
        let full = [&bare[..], &["-client-cert=client.pem", "-client-key=client.key"]].concat();
        let reached = operate_with(folder, &full, "", &[]).await;
        match command.last() {
            Some(&"-task-file=none.hcl") => {
                ended(&reached, 11);
                assert!(reached.complained.contains("400"), "{}", reached.complained);
            }
            Some(&"none") => {
                ended(&reached, 11);
                assert!(reached.complained.contains("404"), "{}", reached.complained);
            }
            _ => assert!(ended(&reached, 0).contains("There are no tasks."), "{}", reached.said),
        }
    }
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn every_command_wants_the_right_token() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    refused_task(folder);
    fs::write(folder.join("token"), "pl4nted-t0ken\n").unwrap();
    fs::write(folder.join("wrong"), "wr0ng-t0ken\n").unwrap();
    let (mut sync, _consul) = daemon(folder, "api_token_file = \"token\"\n").await;
    for command in CHANGES.into_iter().chain(LOOKS) {
        for flags in [&[][..], &["-token-file=wrong"]] {
            let refused = operate(&sync, folder, &[command, flags].concat(), "").await;
            ended(&refused, 11);
            assert!(refused.complained.contains("401"), "{}", refused.complained);
            assert!(refused.complained.contains("-token-file"), "{}", refused.complained);
        }
        let given = [command, &["-token-file=token"]].concat();
        let reached = operate(&sync, folder, &given, "").await;
        let about_none = command.last().is_some_and(|last| last.contains("none"));
        ended(&reached, if about_none { 11 } else { 0 });
        assert!(!reached.complained.contains("401"), "{}", reached.complained);
    }
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn no_daemon_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    refused_task(folder.path());
    for command in CHANGES.into_iter().chain(LOOKS) {
        let nobody = [command, &["-http-addr=http://127.0.0.1:1"]].concat();
        let refused = operate_with(folder.path(), &nobody, "", &[]).await;
        ended(&refused, 11);
        let complained = refused.complained.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(complained.contains("Is the daemon running"), "{complained}");
        if LOOKS.contains(&command) {
            assert!(refused.said.is_empty(), "{}", refused.said);
        }
    }
}

/// Runs `doctor` on a configuration with one task, and with these lines for Consul.
async fn doctor(folder: &Path, consul: &str, arguments: &[&str]) -> Transcript {
    let task = firewall_task(folder, "web", &["web"]);
    doctor_of(folder, &format!("consul {{\n{consul}\n}}\n{task}"), arguments).await
}

/// Runs `doctor` on a configuration.
async fn doctor_of(folder: &Path, text: &str, arguments: &[&str]) -> Transcript {
    let text = format!("port = 0\nworking_dir = \"tasks\"\n{text}");
    fs::write(folder.join("sync.hcl"), text).unwrap();
    let arguments = [&["doctor", "-config-file=sync.hcl"][..], arguments].concat();
    operate_with(folder, &arguments, "", &[]).await
}

#[tokio::test]
async fn the_doctor_finds_nothing_where_all_is_there_and_changes_nothing() {
    let Some(consul) = parts::consul_and_terraform("doctor").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let address = format!("address = \"{}\"", consul.address());
    for (flags, more) in [(&[][..], &[][..]), (&["-init"], &["init of task web"])] {
        let found = doctor(folder, &address, flags).await;
        let said = ended(&found, 0);
        let checks = [
            "configuration",
            "consul",
            "clock",
            "connections",
            "permissions",
            "driver terraform",
            "backend consul",
            "module of task web",
            "working_dir",
            "port",
            "limits",
        ];
        for part in checks.iter().chain(more) {
            let is_ok = |line: &str| line.starts_with("ok") && line.contains(part);
            assert!(said.lines().any(is_ok), "{part}: {said}");
        }
        assert_eq!(said.lines().count(), 1 + checks.len() + more.len(), "{said}");
        let mut left: Vec<_> =
            fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["sync.hcl", "web.tfvars"], "{flags:?}");
        let keys = consul.client().kv_list("", &QueryOptions::default()).await.unwrap().value;
        assert!(keys.is_empty(), "{keys:?}");
        let sessions = consul.client().session_list(&QueryOptions::default()).await.unwrap().value;
        assert!(sessions.is_empty(), "{sessions:?}");
    }
}

#[tokio::test]
async fn the_doctor_tries_providers_and_backend_only_when_it_is_asked_to() {
    let Some(consul) = parts::consul_and_terraform("doctor").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("file"), "").unwrap();
    let task = firewall_task(folder, "web", &["web"]);
    let with = |driver: &str, task: &str| {
        let consul = format!("consul {{\n  address = \"{}\"\n}}\n", consul.address());
        format!("{consul}driver \"terraform\" {{\n{driver}\n}}\n{task}")
    };
    // Nobody listens there, so that nothing leaves the machine.
    let nowhere = with(
        "required_providers {\n  none = {\n    source = \"localhost:1/none/none\"\n    \
         version = \"~> 1.2\"\n  }\n}",
        &format!(
            "terraform_provider \"none\" {{}}\n{}",
            task.replacen("task {\n", "task {\n  providers = [\"none\"]\n", 1)
        ),
    );
    let found = doctor_of(folder, &nowhere, &[]).await;
    let providers = row_of(ended(&found, 0), "providers");
    assert!(
        providers.starts_with("unchecked providers localhost:1/none/none ~> 1.2"),
        "{providers}"
    );
    let found = doctor_of(folder, &nowhere, &["-init"]).await;
    let init = row_of(ended(&found, 19), "init of task web");
    assert!(init.starts_with("missing") && init.contains("localhost:1/none/none"), "{init}");

    let s3 = with("backend \"s3\" {\n  bucket = \"b\"\n  key = \"k\"\n  region = \"r\"\n}", &task);
    let found = doctor_of(folder, &s3, &[]).await;
    let backend = row_of(ended(&found, 0), "backend s3");
    assert!(backend.starts_with("unchecked") && backend.ends_with("doctor -init tries it"));

    let below_a_file = folder.join("file").join("states");
    let local =
        with(&format!("backend \"local\" {{\n  workspace_dir = {below_a_file:?}\n}}"), &task);
    let found = doctor_of(folder, &local, &[]).await;
    let backend = row_of(ended(&found, 19), "backend local");
    assert!(backend.starts_with("missing") && backend.contains("is no folder"), "{backend}");
}

/// The line about this check, with its columns one space apart.
fn row_of(said: &str, check: &str) -> String {
    let line = said.lines().find(|line| line.contains(check));
    line.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_run_under_way_is_in_the_status() {
    let Some(consul) = parts::consul_and_terraform("look").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let module = folder.join("slow");
    fs::create_dir(&module).unwrap();
    // Ends once the test says so.
    fs::write(
        module.join("main.tf"),
        format!(
            "variable \"services\" {{\n  type = any\n}}\nresource \"terraform_data\" \"slow\" {{\n  \
             provisioner \"local-exec\" {{\n    command = \"until [ -e {} ]; do sleep 0.05; done\"\n  \
             }}\n}}\n",
            folder.join("go").display()
        ),
    )
    .unwrap();
    let task = format!(
        "task {{\n  name = \"slow\"\n  module = \"{}\"\n  condition \"services\" {{\n    \
         names = [\"web\"]\n  }}\n}}\n",
        module.display()
    );
    put(&consul.client(), "web", 1).await;
    let mut sync = SyncProcess::new(folder, &consul.address(), &task);
    sync.start();
    let waited = timeout(PATIENCE, async {
        loop {
            if sync.address().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
            let status = operate(&sync, folder, &["status"], "").await;
            let slow = row(&status.said, "slow");
            if slow.starts_with("slow running yes") && slow.contains("apply for ") {
                return document(&operate(&sync, folder, &["status", "-json"], "").await, 0);
            }
        }
    });
    let status = waited.await.expect("no run is under way");
    assert_eq!(status["tasks"][0]["under_way"]["step"], "apply", "{status}");
    assert_eq!(status["tasks"][0]["status"], "unknown", "{status}");
    fs::write(folder.join("go"), "").unwrap();
    sync.ran("slow", 1).await;
    let status = document(&operate(&sync, folder, &["status", "-json"], "").await, 0);
    assert!(status["tasks"][0]["under_way"].is_null(), "{status}");
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn the_doctor_names_what_the_token_may_not_do() {
    const SUITE: Suite = Suite("doctor");
    const ROOT: &str = "11111111-2222-3333-4444-555555555555";
    for part in SUITE.parts("consul", "what the token may not do") {
        let settings = json!({ "acl": {
            "enabled": true, "default_policy": "deny", "tokens": { "master": ROOT, "agent": ROOT },
        } });
        let Ok(consul) = Consul::start_with(&part.path, settings).await else {
            panic!("{} does not start", part.version);
        };
        let folder = tempfile::tempdir().unwrap();
        let address = format!("address = \"{}\"", consul.address());
        let found = doctor(folder.path(), &address, &["-json"]).await;
        let findings = document(&found, 19);
        let missing: Vec<&str> = findings
            .as_array()
            .unwrap()
            .iter()
            .filter(|finding| finding["result"] == "missing")
            .filter_map(|finding| finding["detail"].as_str())
            .collect();
        for wanted in [
            "service:read for \"web\"",
            "service:write for \"consul-terraform-sync\"",
            "key:write for \"consul-terraform-sync/terraform\"",
        ] {
            assert!(missing.iter().any(|it| it.contains(wanted)), "{wanted}: {findings}");
        }
        // Consul itself makes this token at its start.
        let rooted = format!("{address}\ntoken = \"{ROOT}\"");
        let found = doctor(folder.path(), &rooted, &[]).await;
        let said = ended(&found, 0);
        assert!(said.contains("the token may do all"), "{said}");
    }
}

#[tokio::test]
async fn the_doctor_names_what_does_not_answer_or_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let found = doctor(folder, "address = \"127.0.0.1:1\"", &[]).await;
    let said = ended(&found, 19);
    let consul = said.lines().find(|line| line.starts_with("missing  consul")).unwrap();
    assert!(consul.contains("127.0.0.1:1"), "{said}");

    let consul = TestConsul::new().serve().await.unwrap();
    let address = format!("address = \"{}\"", consul.address());
    let nothing =
        operate_with(folder, &["doctor", "-config-file=sync.hcl"], "", &[("PATH", "/none")]);
    let found = doctor(folder, &address, &[]).await;
    let answers = |line: &str| line.starts_with("ok") && line.contains("consul");
    assert!(found.said.lines().any(answers), "{}", found.said);
    let said = nothing.await;
    let without = ended(&said, 19);
    assert!(without.lines().any(|line| line.starts_with("missing") && line.contains("driver")));

    fs::write(folder.join("sync.hcl"), "task {\n").unwrap();
    let found = operate_with(folder, &["doctor", "-config-file=sync.hcl"], "", &[]).await;
    ended(&found, 15);
    ended(&operate_with(folder, &["doctor"], "", &[]).await, 13);
}
