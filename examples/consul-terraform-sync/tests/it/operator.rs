//! The life of a task, as an operator leads it on the command line.

use std::{fs, path::Path, process::Stdio};

use consul_watch::{Client, types::HealthStatus};
use regex::Regex;
use serde_json::Value;
use tokio::process::Command;

use crate::{
    end_to_end::instance,
    sync::SyncProcess,
    world::{World, applied, operate, slow_task},
};

/// `said` with what is another in each run replaced: ids, the request, the plan.
fn settled(said: &str) -> String {
    let replaced = [
        ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
        (r"(?s)    \{\n.*?\n    \}\n", "<request>\n"),
        (r"(?s)(    Plan: \n\n).*?(\n\n==> )", "$1<plan>$2"),
        (r"(?s)(use Terraform to execute\n\n)[^ ].*?(\n\n==> )", "$1<plan>$2"),
    ];
    replaced.iter().fold(said.to_owned(), |text, (pattern, with)| {
        Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
    })
}

async fn put(consul: &Client, number: u16) {
    consul.catalog_register(&instance("web", number, HealthStatus::Passing)).await.unwrap();
}

async fn task_answer(sync: &SyncProcess) -> Value {
    sync.get("/v1/tasks/web").await.unwrap()
}

const INSPECTED_TO_CREATE: &str = "\
==> Inspecting changes to resource if creating task 'web'...

    Generating plan that Consul-Terraform-Sync will use Terraform to execute

    Request ID: <id>
    Request Payload:

<request>

    Plan: 

<plan>

";

const INSPECTED_TO_ENABLE: &str = "\
==> Inspecting changes to resource if enabling 'web'...

    Generating plan that Consul-Terraform-Sync will use Terraform to execute

<plan>

";

const NOTES: &str = " - They cannot be taken back.
     - What is done may differ from this plan, if what the task depends on
       changes in Consul before it runs.

    Only 'yes' will be accepted to approve, enter 'no' or leave blank to reject.

Enter a value: 
";

fn asked(doing: &str) -> String {
    format!(
        "==> {doing} the task will perform the actions described above.\n    \
         Do you want to perform these actions for 'web'?\n    {NOTES}"
    )
}

/// Spec: CTS43, CTS44, CTS45, CTS55, CTS78
#[tokio::test]
async fn a_task_is_created_disabled_enabled_and_deleted_on_the_command_line() {
    let world = World::new("operator").await;
    let consul = world.client();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    put(&consul, 1).await;
    // A task beside, which shows when a change has reached the daemon.
    let mut sync = SyncProcess::new(folder, &world.address(), &slow_task(folder, "witness", "web"));
    sync.start_with(|command| world.set_path(command));
    sync.ran("witness", 1).await;
    fs::write(folder.join("web.hcl"), slow_task(folder, "web", "web")).unwrap();
    let create = ["task", "create", "-task-file=web.hcl"];

    // Declined, nothing is there.
    let no = operate(&sync, folder, &create, "no\n").await;
    let expected =
        format!("{INSPECTED_TO_CREATE}{}==> Cancelled creating task 'web'\n", asked("Creating"));
    assert_eq!((settled(&no.said), no.code), (expected, Some(0)), "{}", no.complained);
    assert!(task_answer(&sync).await["error"]["message"].is_string());
    assert_eq!(applied(folder, "web"), "");

    // Without anybody to ask, nothing is approved, and a job notices.
    nobody_approves(&sync, folder, &create).await;
    let yes = operate(&sync, folder, &create, "yes\n").await;
    let expected = format!(
        "{INSPECTED_TO_CREATE}{}==> Creating and running task 'web'...\n    \
         This may take some time. The daemon goes on with it, even if this command\n    ends.\n\n\
         ==> Task 'web' created\n    Request ID: '<id>'\n",
        asked("Creating")
    );
    assert_eq!((settled(&yes.said), yes.code), (expected, Some(0)), "{}", yes.complained);
    sync.ran("web", 1).await;
    assert_eq!(applied(folder, "web"), "web-1");

    // Once more is refused.
    let again = operate(&sync, folder, &create, "yes\n").await;
    assert_eq!(again.code, Some(11));
    let expected = "==> Error: unable to generate plan for 'web'\n    \
                    400 Bad Request: task with name web already exists, see logs for more\n    \
                    details (Request ID: <id>)\n";
    assert_eq!(settled(&again.complained), expected);

    // Disabled, a change runs the other task only.
    let disabled = operate(&sync, folder, &["task", "disable", "web"], "").await;
    let expected = "==> Waiting to disable 'web'...\n\n==> 'web' disable complete!\n";
    assert_eq!((disabled.said.as_str(), disabled.code), (expected, Some(0)));
    put(&consul, 2).await;
    sync.ran("witness", 2).await;
    sync.ran("web", 1).await;
    assert_eq!(applied(folder, "web"), "web-1");

    // Enabling is declined, and then approved.
    let enable = ["task", "enable", "web"];
    let no = operate(&sync, folder, &enable, "\n").await;
    let expected =
        format!("{INSPECTED_TO_ENABLE}{}==> Cancelled enabling task 'web'\n", asked("Enabling"));
    assert_eq!((settled(&no.said), no.code), (expected, Some(0)), "{}", no.complained);
    nobody_approves(&sync, folder, &enable).await;
    assert_eq!(task_answer(&sync).await["task"]["enabled"], false);
    let yes = operate(&sync, folder, &enable, "yes\n").await;
    let expected = format!(
        "{INSPECTED_TO_ENABLE}{}==> Enabling and running 'web'...\n\n==> 'web' enable complete!\n",
        asked("Enabling")
    );
    assert_eq!((settled(&yes.said), yes.code), (expected, Some(0)), "{}", yes.complained);
    sync.ran("web", 2).await;
    assert_eq!(applied(folder, "web"), "web-1 web-2");

    // Where nothing would change, nothing is asked.
    let nothing = operate(&sync, folder, &enable, "").await;
    let expected = format!("{INSPECTED_TO_ENABLE}==> 'web' enable complete!\n");
    assert_eq!((settled(&nothing.said), nothing.code), (expected, Some(0)));
    sync.ran("web", 2).await;

    nobody_approves(&sync, folder, &["task", "delete", "web"]).await;

    // Deleted while it runs, it ends its run and is gone.
    fs::remove_file(folder.join("web/begun")).unwrap();
    put(&consul, 3).await;
    sync.until("the run has begun", || folder.join("web/begun").exists()).await;
    let deleted = operate(&sync, folder, &["task", "delete", "web"], "yes\n").await;
    let expected = format!(
        "==> Do you want to delete 'web'?\n     - This cannot be taken back.\n     \
         - The infrastructure that the task manages is not destroyed.\n     \
         - A task that does not run is deleted at once.\n     \
         - A task that runs is deleted as soon as the run has ended.\n\n    {}\n\
         Enter a value: \n==> Marking task 'web' for deletion...\n\n\
         ==> Task 'web' has been marked for deletion and will be deleted when not running.\n",
        "Only 'yes' will be accepted to approve, enter 'no' or leave blank to reject.\n"
    );
    assert_eq!((deleted.said, deleted.code), (expected, Some(0)), "{}", deleted.complained);
    sync.until("the run has ended", || applied(folder, "web") == "web-1 web-2 web-3").await;
    sync.gone("web").await;

    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// The end of standard input at the question is no approval, and no success either.
async fn nobody_approves(sync: &SyncProcess, folder: &Path, command: &[&str]) {
    let ended = operate(sync, folder, command, "").await;
    assert_eq!(ended.code, Some(11), "{command:?}: {}", ended.said);
    assert!(ended.complained.contains("Standard input has ended"), "{}", ended.complained);
}

#[tokio::test]
async fn completion_asks_the_daemon_for_tasks_that_fit() {
    let world = World::new("operator").await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let off = slow_task(folder, "off", "none").replace("task {", "task {\n  enabled = false");
    let config = slow_task(folder, "on", "none") + &off;
    let mut sync = SyncProcess::new(folder, &world.address(), &config);
    sync.start_with(|command| world.set_path(command));
    sync.ran("on", 1).await;
    for (line, expected) in [
        ("consul-terraform-sync task enable ", "off\n"),
        ("consul-terraform-sync task disable ", "on\n"),
        ("consul-terraform-sync task delete o", "off\non\n"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_consul-terraform-sync"))
            .env("COMP_LINE", line)
            .env("CTS_ADDRESS", sync.address().unwrap())
            .output()
            .await
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{line}");
    }
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

#[tokio::test]
async fn a_plan_that_waits_is_shown_approved_and_discarded_on_the_command_line() {
    let world = World::new("operator").await;
    let consul = world.client();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    put(&consul, 1).await;
    let task = slow_task(folder, "web", "web");
    let guarded = task.replace("task {", "task {\n  require_approval = true");
    let config = guarded + &slow_task(folder, "witness", "web");
    let mut sync = SyncProcess::new(folder, &world.address(), &config);
    sync.start_with(|command| world.set_path(command));
    sync.ran("witness", 1).await;

    let plan = operate(&sync, folder, &["task", "plan", "web"], "").await;
    assert_eq!(plan.code, Some(0), "{}", plan.complained);
    for part in
        ["==> A plan of 'web' waits for approval since 20", "requires approval", "Plan ID: "]
    {
        assert!(plan.said.contains(part), "{}", plan.said);
    }
    let no = operate(&sync, folder, &["task", "approve", "web"], "no\n").await;
    assert_eq!(no.code, Some(0));
    let expected = "Enter a value: \n==> Cancelled approving the plan of task 'web'\n";
    assert!(no.said.ends_with(expected), "{}", no.said);
    assert_eq!(applied(folder, "web"), "");
    let yes = operate(&sync, folder, &["task", "approve", "web"], "yes\n").await;
    assert_eq!(yes.code, Some(0), "{}", yes.complained);
    assert!(
        yes.said.ends_with("==> Applying the plan of 'web'...\n\n==> 'web' approve complete!\n"),
        "{}",
        yes.said
    );
    assert_eq!(applied(folder, "web"), "web-1");

    // No plan is left.
    let none = operate(&sync, folder, &["task", "approve", "web"], "yes\n").await;
    assert_eq!(none.code, Some(11));
    assert!(none.complained.contains("unable to find a plan of 'web'"), "{}", none.complained);

    // A discarded plan is not applied; the next run makes it anew and waits.
    put(&consul, 2).await;
    sync.ran("witness", 2).await;
    sync.waits("web").await;
    let discarded = operate(&sync, folder, &["task", "discard", "web"], "").await;
    assert_eq!(discarded.code, Some(0), "{}", discarded.complained);
    assert!(discarded.said.contains("==> 'web' discard complete!"), "{}", discarded.said);
    let run = operate(&sync, folder, &["task", "run", "web"], "").await;
    assert_eq!((run.code, run.said.as_str()), (Some(17), "==> Running 'web'...\n\n"));
    assert!(run.complained.contains("a plan of 'web' waits for approval"), "{}", run.complained);
    assert_eq!(applied(folder, "web"), "web-1");
    let approved = operate(&sync, folder, &["task", "approve", "-auto-approve", "web"], "").await;
    assert_eq!(approved.code, Some(0), "{}", approved.complained);
    assert_eq!(applied(folder, "web"), "web-1 web-2");
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
}

/// A command with a daemon that is not there: its status, and what it says.
async fn refused(folder: &Path, arguments: &[&str], code: i32, parts: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_consul-terraform-sync"))
        .args(arguments)
        .current_dir(folder)
        .env("CTS_ADDRESS", "http://127.0.0.1:9")
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    // Lines are broken where they are long.
    let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(flat.contains(part), "{arguments:?}: {said}");
    }
}

#[tokio::test]
async fn mistakes_of_commands_tell_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, code, parts) in [
        (&["enable", "web"][..], 11, &["unable to generate plan for 'web'", "-http-addr"][..]),
        (&["disable", "web"], 11, &["unable to disable 'web'", "Connection refused"]),
        (&["delete", "-auto-approve", "web"], 11, &["unable to delete 'web'"]),
        (&["enable"], 13, &["this command requires one argument: [options] <task name>"]),
        (&["enable", "-http-addr=localhost:1", "web"], 11, &["unknown protocol scheme:"]),
        (&["enable", "-http-addr=http://", "web"], 11, &["invalid address, host value is empty"]),
        (
            &["enable", "-client-cert=x", "web"],
            11,
            &["both client cert and client key must be provided"],
        ),
        (
            &["enable", "-http-addr=https://localhost:9", "-ca-cert=/nowhere/at/all/ca.pem", "web"],
            11,
            &["/nowhere/at/all/ca.pem"],
        ),
    ] {
        refused(folder.path(), &[&["task"], arguments].concat(), code, parts).await;
    }
}

#[tokio::test]
async fn mistakes_in_task_files_tell_what_to_do() {
    const CONDITION: &str = "condition \"services\" {\n    names = [\"x\"]\n  }";
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let old = format!("task {{\n  name = \"a\"\n  source = \"./m\"\n  {CONDITION}\n}}\n");
    let own = format!(
        "task {{\n  name = \"a\"\n  module = \"org/m\"\n  working_dir = \"own\"\n  {CONDITION}\n}}\n"
    );
    for (file, text, parts) in [
        ("own", own.as_str(), &["working_dir has no effect here", "-http-addr"][..]),
        (
            "two",
            "task {\n  name = \"a\"\n}\ntask {\n  name = \"b\"\n}\n",
            &[
                "Error: unable to create request",
                "task file 'two.hcl' cannot contain more than 1 task, contains 2 tasks",
            ],
        ),
        ("none", "port = 1\n", &["does not contain a task, must contain at least one task"]),
        ("old", &old, &["unable to create request", "old.hcl:3:", "module"]),
    ] {
        fs::write(folder.join(format!("{file}.hcl")), text).unwrap();
        let argument = format!("-task-file={file}.hcl");
        refused(folder, &["task", "create", &argument], 11, parts).await;
    }
    refused(folder, &["task", "create", "-task-file=gone.hcl"], 11, &["gone.hcl"]).await;
}
