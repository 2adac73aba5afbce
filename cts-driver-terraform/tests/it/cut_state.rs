//! A local state that the tool was killed while writing: empty, or cut short.

use std::{
    fs::{self, File, OpenOptions},
    path::{Path, PathBuf},
    sync::Arc,
};

use cts_tasks::{ApplyRequest, Driver, Outcome};
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde_json::json;

use crate::site::{Site, context, counts, services, tools};

/// What is left of a state.
type Keep = fn(&[u8]) -> Vec<u8>;

fn state(site: &Site) -> PathBuf {
    site.task_dir().join("terraform.tfstate.d/test/terraform.tfstate")
}

fn beside(state: &Path, suffix: &str) -> PathBuf {
    let mut name = state.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

async fn apply(driver: &Arc<dyn Driver>, instances: &[(&str, i64)]) -> Outcome {
    driver.apply(ApplyRequest::Inputs(&services(instances)), &context()).await.unwrap()
}

/// Two applies, so that the tool has a backup with `a` and `b`; then the state
/// is cut, as a kill between the tool's truncation and its write does.
async fn cut(site: &Site, keep: Keep) -> Vec<u8> {
    let driver = site.driver(&json!({}));
    driver.prepare(&context()).await.unwrap();
    apply(&driver, &[("a", 80), ("b", 80)]).await;
    apply(&driver, &[("a", 80), ("b", 80), ("c", 80)]).await;
    let whole = fs::read(state(site)).unwrap();
    let left = keep(&whole);
    fs::write(state(site), &left).unwrap();
    left
}

/// Without it, `b` would be in no state, and nothing would ever remove it.
#[tokio::test]
async fn a_state_that_was_cut_short_is_restored_from_the_tools_backup() {
    for tool in tools("a_state_that_was_cut_short_is_restored_from_the_tools_backup") {
        let cuts: [Keep; 3] = [
            |_| Vec::new(),
            |whole| whole[..whole.len() / 2].to_vec(),
            |whole| vec![0; whole.len()],
        ];
        for keep in cuts {
            let site = Site::new(&tool);
            let left = cut(&site, keep).await;
            let begun_again = site.driver(&json!({}));
            begun_again.prepare(&context()).await.unwrap();
            assert_eq!(counts(&apply(&begun_again, &[("a", 80), ("c", 80)]).await), (1, 0, 1));
            assert_eq!(site.rules(), ["a=10.0.0.1:80", "c=10.0.0.1:80"]);
            assert_eq!(apply(&begun_again, &[("a", 80), ("c", 80)]).await, Outcome::Unchanged);
            let kept = fs::read(beside(&state(&site), ".cut-short")).ok();
            assert_eq!(kept, (!left.is_empty()).then_some(left), "what was there is kept");
        }
    }
}

/// The move to another place reads the state of the old one.
#[tokio::test]
async fn a_state_that_was_cut_short_follows_a_changed_backend_whole() {
    for tool in tools("a_state_that_was_cut_short_follows_a_changed_backend_whole") {
        let mut site = Site::new(&tool);
        cut(&site, |_| Vec::new()).await;
        let elsewhere = site.path().join("states");
        site.driver_block = json!({"backend": {"local": {"workspace_dir": elsewhere}}});
        let moved = site.driver(&json!({}));
        moved.prepare(&context()).await.unwrap();
        assert_eq!(counts(&apply(&moved, &[("a", 80)]).await), (0, 0, 1));
        assert!(elsewhere.join("test/terraform.tfstate").is_file());
    }
}

/// What a person broke is for a person to mend; and a command that holds the
/// state, started by hand, may be about to write it.
#[tokio::test]
async fn a_state_that_is_wrong_or_in_use_is_left_as_it_is() {
    for tool in tools("a_state_that_is_wrong_or_in_use_is_left_as_it_is") {
        let site = Site::new(&tool);
        let left = cut(&site, |_| b"{\"version\": oops}".to_vec()).await;
        let begun_again = site.driver(&json!({}));
        begun_again.prepare(&context()).await.unwrap_err();
        assert_eq!(fs::read(state(&site)).unwrap(), left);

        let held = OpenOptions::new().read(true).write(true).open(state(&site)).unwrap();
        held.set_len(0).unwrap();
        lock(&held, libc::F_WRLCK);
        // Reading the state, the tool itself fails on the lock.
        begun_again.prepare(&context()).await.unwrap();
        assert_eq!(fs::metadata(state(&site)).unwrap().len(), 0);
        lock(&held, libc::F_UNLCK);
        begun_again.prepare(&context()).await.unwrap();
        assert_ne!(fs::metadata(state(&site)).unwrap().len(), 0);
    }
}

/// Locks as the tool does (`fcntl`), and against this process as well.
fn lock(file: &File, kind: libc::c_int) {
    let lock = libc::flock {
        l_type: i16::try_from(kind).unwrap(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&lock)).unwrap();
}
