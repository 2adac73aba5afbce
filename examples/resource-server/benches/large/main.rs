//! What a large store takes: restarts of `resource-server` over a file and of
//! a node of three, and a new node that joins them under load.
//!
//! `cargo bench -p resource-server --bench large -- [file] [raft]`
//!
//! Real processes, real sockets, each change on the disk before it is
//! acknowledged. `COUNT` is how many resources there are (100,000), `VALUE` how
//! large each is, in bytes (10,000), `WRITERS` how many clients write (16), and
//! `SECONDS` how long they do before anything happens (10).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench: it panics to fail, and prints"
)]

mod file;
mod load;
#[path = "../../tests/it/store_cluster/node.rs"]
mod node;
mod raft;
mod store;

use std::time::Duration;

struct Settings {
    count: usize,
    value: usize,
    writers: usize,
    time: Duration,
}

fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[tokio::main]
async fn main() {
    let settings = Settings {
        count: setting("COUNT", 100_000),
        value: setting("VALUE", 10_000),
        writers: setting("WRITERS", 16),
        time: Duration::from_secs(setting("SECONDS", 10).try_into().unwrap()),
    };
    let asked = |what: &str| std::env::args().any(|argument| argument == what);
    let all = !asked("file") && !asked("raft");
    println!("{} resources of {} bytes", settings.count, settings.value);
    let folder = tempfile::Builder::new().prefix("large-").tempdir().unwrap();
    let export = store::export(&settings, folder.path()).await;
    if all || asked("file") {
        file::figures(folder.path(), &export).await;
    }
    if all || asked("raft") {
        raft::figures(&settings, folder.path(), &export).await;
    }
}

fn print(what: &str, figure: &str) {
    println!("{what:<60} {figure}");
}
