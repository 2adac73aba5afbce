//! Clients that are not ours, against `resource-server`: one that Python's
//! grpcio-tools generate, and curl.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use consul_watch::testing::parts::Suite;
use regex::Regex;
use tokio::{process::Command, time::timeout};

use crate::{PATIENCE, resource_server::ResourceServer};

const SUITE: Suite = Suite("resource-wire");

fn resource_store() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resource-store")
}

/// What a command prints, which has to succeed.
async fn printed(command: &mut Command) -> String {
    let running = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = timeout(PATIENCE, running).await.unwrap().unwrap();
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
    out
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_client_generated_for_python_does_every_call() {
    let Some(python) = SUITE.part("grpcio", "every call from Python") else { return };
    let server = ResourceServer::start().await;
    let script = resource_store().join("tests/wire/every_call.py");
    let printed = printed(Command::new(python.path).arg(script).arg(&server.address)).await;
    let expected = "\
WatchList: end_of_snapshot
MutateAndValidate: GENRE_DISCO
Write: uid, generation and version are set
Read: equal
ListByOwner: ['pastel-blues']
WriteStatus: updated_at is set, the generation is kept
List: ['nina']
Write of an old version: ABORTED: CAS operation failed because the given version doesn't match what is stored
Delete, then Read: NOT_FOUND: resource not found
WatchList: upsert, upsert, delete
";
    assert_eq!(printed, expected);
}

/// The block of a text that begins after a line, up to the end of its fence.
fn block_after<'a>(text: &'a str, line: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("{line}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// The same without what differs from run to run.
fn masked(transcript: &str) -> String {
    let ulids = Regex::new("[0-7][0-9A-HJKMNP-TV-Z]{25}").unwrap();
    let versions = Regex::new(r#"("version": ?)"[0-9]+""#).unwrap();
    let transcript = ulids.replace_all(transcript, "ULID");
    versions.replace_all(&transcript, r#"$1"N""#).into_owned()
}

#[tokio::test]
async fn the_readme_shows_what_curl_gets() {
    let Some(_curl) = SUITE.part("curl", "the transcript of HTTP") else { return };
    let server = ResourceServer::start().await;
    let script = resource_store().join("tests/wire/http");
    let printed = printed(Command::new(script).arg(&server.address)).await;
    let printed = printed.replace(&server.address, "127.0.0.1:8502");
    let readme = std::fs::read_to_string(resource_store().join("README.md")).unwrap();
    let shown = block_after(&readme, "$ resource-store/tests/wire/http 127.0.0.1:8502");
    assert_eq!(masked(&printed), masked(shown), "README.md needs this:\n{printed}");
}

#[test]
fn masking_hides_nothing_else() {
    let one = r#"{"uid": "01M7Z50252A08FFYMDQM4DQ44F", "version": "8", "name": "Nina"} # 200"#;
    assert_eq!(masked(one), r#"{"uid": "ULID", "version": "N", "name": "Nina"} # 200"#);
    assert_eq!(masked(r#""version":"12""#), r#""version":"N""#);
}
