//! What README.md shows of the commands, against what they print.
//!
//! `README=write` writes it anew.

use std::{fmt::Write as _, fs, os::unix::fs::symlink, path::Path, process::Stdio};

use consul_watch::types::HealthStatus;
use regex::Regex;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    end_to_end::instance,
    parts,
    sync::{PATIENCE, SyncProcess},
    world::{Transcript, operate, operate_with},
};

/// Line of README.md after which the transcripts stand.
const HEAD: &str = "<!-- transcripts -->\n";

const TASKS: &str = r#"task {
  name = "firewall"
  module = "./examples/modules/firewall-rules"
  variable_files = ["firewall.tfvars"]
  condition "services" {
    names = ["web", "api"]
  }
}
task {
  name = "dmz"
  module = "./examples/modules/firewall-rules"
  variable_files = ["dmz.tfvars"]
  require_approval = true
  condition "services" {
    names = ["web"]
  }
}
"#;

/// The commands so far, each with what it printed.
#[derive(Default)]
struct Transcripts(String);

impl Transcripts {
    fn add(&mut self, command: &str, printed: &Transcript) {
        // Both streams reach a terminal; progress comes before the last word.
        let Transcript { said, complained, .. } = printed;
        let end = said.rfind("==> '").filter(|_| !complained.is_empty()).unwrap_or(said.len());
        let (before, last) = said.split_at(end);
        self.add_text(command, &format!("{before}{complained}{last}"));
    }

    fn add_text(&mut self, command: &str, printed: &str) {
        let printed = printed.trim_end();
        writeln!(self.0, "\n```text\n$ consul-terraform-sync {command}\n{printed}\n```").unwrap();
    }
}

/// Puts one word in place of what differs from run to run: times, ids, ports, widths of columns.
fn without_chance(text: &str) -> String {
    let patterns = [
        (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*( ?[+-]\d\d:?\d\d|Z)?", "TIME"),
        (r"[0-9a-f]{64}", "ID"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "UUID"),
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\b\d+\.\ds\b", "TOOK"),
        (r#""duration_ms": \d+"#, "DURATION"),
        (r"\d+ (is free|open files)", "N $1"),
        (r"within \d s", "within N s"),
        (r"(Terraform|OpenTofu) \d+\.\d+\.\d+", "TOOL"),
        (r"[ \t]+", " "),
    ];
    let text = patterns.iter().fold(text.to_owned(), |text, (pattern, word)| {
        Regex::new(pattern).unwrap().replace_all(&text, *word).into_owned()
    });
    // How much of a short apply's progress reaches the command before its answer is chance.
    let lines = text.lines().filter(|line| !line.starts_with("TIME [INFO] progress:"));
    lines.collect::<Vec<_>>().join("\n")
}

async fn follow(sync: &SyncProcess, change: impl Future<Output = ()>) -> String {
    let mut following = Command::new(env!("CARGO_BIN_EXE_consul-terraform-sync"))
        .args(["task", "events", "-follow", "-http-addr", &sync.address().unwrap(), "firewall"])
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
    let mut told = format!("{}\n{}\n", next().await, next().await);
    change.await;
    loop {
        let line = next().await;
        writeln!(told, "{line}").unwrap();
        if line.contains("  successful in ") {
            following.kill().await.unwrap();
            return told;
        }
    }
}

async fn transcripts(folder: &Path, consul: &consul_watch::testing::real::Consul) -> String {
    let client = consul.client();
    let put = async |number| {
        let web = instance("web", number, HealthStatus::Passing);
        client.catalog_register(&web).await.unwrap();
    };
    let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    symlink(fs::canonicalize(modules).unwrap(), folder.join("examples")).unwrap();
    for task in ["firewall", "dmz"] {
        let rules = folder.join(format!("{task}.txt"));
        let variables = format!("rules_file = \"{}\"\n", rules.display());
        fs::write(folder.join(format!("{task}.tfvars")), variables).unwrap();
    }
    put(1).await;
    let mut sync = SyncProcess::new(folder, &consul.address(), TASKS);
    let mut all = Transcripts::default();
    let doctor = ["doctor", "-config-file", "sync.hcl"];
    all.add("doctor -config-file sync.hcl", &operate_with(folder, &doctor, "", &[]).await);
    sync.start();
    sync.ran("firewall", 1).await;
    sync.waits("dmz").await;
    for command in ["status", "task list", "task approve -auto-approve dmz"] {
        let words: Vec<&str> = command.split(' ').collect();
        all.add(command, &operate(&sync, folder, &words, "").await);
    }
    put(2).await;
    sync.ran("firewall", 2).await;
    sync.waits("dmz").await;
    for command in ["task show dmz", "task inputs dmz", "task events firewall"] {
        let words: Vec<&str> = command.split(' ').collect();
        all.add(command, &operate(&sync, folder, &words, "").await);
    }
    all.add_text("task events -follow firewall", &follow(&sync, put(3)).await);
    sync.until("dmz has planned again", || sync.log().matches("waits for approval").count() >= 3)
        .await;
    all.add("status -json", &operate(&sync, folder, &["status", "-json"], "").await);
    assert_eq!(sync.end("-TERM").await.code(), Some(0), "{}", sync.log());
    // Folders and ports of the test are none that a reader has.
    let text = all.0.replace(&folder.display().to_string(), "/srv/sync");
    let text =
        text.replace(&consul.address(), "127.0.0.1:8500").replace(" 0 is free", " 8558 is free");
    let leader = Regex::new(r"leader is 127\.0\.0\.1:\d+").unwrap();
    leader.replace_all(&text, "leader is 127.0.0.1:8300").into_owned()
}

#[tokio::test]
async fn the_readme_shows_what_the_commands_print() {
    let Some(consul) = parts::consul_and_terraform("readme").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let printed = transcripts(folder.path(), &consul).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(&path).unwrap();
    let (before, shown) = readme.split_once(HEAD).expect("README.md has its transcripts");
    if std::env::var("README").is_ok_and(|value| value == "write") {
        fs::write(path, format!("{before}{HEAD}{printed}")).unwrap();
        return;
    }
    let progress = "[INFO]  progress: task_name=dmz applying";
    assert!(printed.contains(progress) && shown.contains(progress), "{printed}");
    let (shown, printed) = (without_chance(shown), without_chance(&printed));
    for (number, (shown, printed)) in shown.lines().zip(printed.lines()).enumerate() {
        assert_eq!(shown, printed, "line {} of the transcripts", number + 1);
    }
    assert_eq!(shown.lines().count(), printed.lines().count());
}
