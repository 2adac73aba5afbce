//! How `resource-server` speaks HTTP/2, as h2spec judges it.
//!
//! | case | why it does not hold |
//! |---|---|
//! | 3.5, an invalid preface | the port speaks HTTP/1.1, too, which answers what is no preface with 400 and then ends the connection |
//!
//! Cases that send another frame after the head of a request are races: where the
//! answer was sent before that frame came, it is what the case sees first. Most hold
//! in nearly every run. So cases that do not hold are repeated, and each has to hold
//! in one of ten runs; what the server does wrong fails in all of them.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use consul_watch::testing::parts::{Suite, find};
use regex::Regex;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_mins(1);
/// Number of cases of h2spec 2.2.1.
const CASES: usize = 145;
/// Number of runs at most.
const RUNS: usize = 10;
const PREFACE: (&str, &str) = ("http2/3.5", "Sends invalid connection preface");

/// Each case, by section and name, and whether it held.
type Verdicts = BTreeMap<(String, String), bool>;

async fn judge(program: &std::path::Path, address: &str) -> Verdicts {
    let (host, port) = address.split_once(':').unwrap();
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report.xml");
    let run = Command::new(program)
        .args(["-h", host, "-p", port, "-o", "2", "--junit-report"])
        .arg(&report)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, run).await.unwrap().unwrap();
    let text = std::fs::read_to_string(&report)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stdout)));
    let case = r#"<testcase package="([^"]+)" classname="([^"]+)" time="[^"]*">\s*(<)(/?)"#;
    let cases = Regex::new(case).unwrap();
    // What failed has an element within.
    cases
        .captures_iter(&text)
        .map(|found| ((found[1].to_owned(), found[2].to_owned()), &found[4] == "/"))
        .collect()
}

#[tokio::test]
async fn what_h2spec_asks_for_holds() {
    // Only Go builds it, so it is no missing part where there is no Go.
    let case = "what_h2spec_asks_for_holds";
    let suite = Suite("h2spec on resource-server");
    if find("h2spec").is_none() {
        suite.not_applicable("h2spec", case, "it is built where Go is on PATH");
        return;
    }
    let Some(part) = suite.part("h2spec", case) else { return };
    let mut server = Command::new(env!("CARGO_BIN_EXE_resource-server"))
        .args(["--listen", "127.0.0.1:0"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    let address = line.strip_prefix("listening at ").unwrap();

    let mut verdicts = judge(&part.path, address).await;
    assert_eq!(verdicts.len(), CASES);
    let key = |(section, name): (&str, &str)| (section.to_owned(), name.to_owned());
    for _ in 1..RUNS {
        let failed = verdicts.iter().filter(|(case, held)| !**held && **case != key(PREFACE));
        let failed: Vec<_> = failed.map(|(case, _)| case.clone()).collect();
        if failed.is_empty() {
            break;
        }
        let again = judge(&part.path, address).await;
        verdicts.extend(failed.into_iter().map(|case| (case.clone(), again[&case])));
    }
    let failed: Vec<_> =
        verdicts.iter().filter(|(_, held)| !**held).map(|(case, _)| case).collect();
    assert_eq!(failed, [&key(PREFACE)]);
    server.kill().await.unwrap();
}
