//! Large stores, and what is known of processes that have one.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use consul_watch::testing::real::free_port;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use resource_store::{pb, transfer};
use tokio::{process::Command, time::Instant};

use crate::{Settings, node::Node, print};

pub(crate) const SERVER: &str = env!("CARGO_BIN_EXE_resource-server");

pub(crate) fn free_address() -> String {
    format!("127.0.0.1:{}", free_port().unwrap())
}

/// A resource of a type that every server has, and no controller cares for.
pub(crate) fn concept(name: &str, bytes: usize) -> pb::Resource {
    let id = pb::Id::new(
        pb::Type::new("demo", "v1", "Concept"),
        pb::Tenancy::new("default", "default"),
        name,
    );
    let mut resource = pb::Resource::new(id);
    resource.metadata.insert("content".to_owned(), "x".repeat(bytes));
    resource
}

/// Writes an export.
pub(crate) async fn export(settings: &Settings, folder: &Path) -> PathBuf {
    let path = folder.join("export");
    let value = settings.value;
    let resources = (0..settings.count).map(move |number| {
        let mut resource = concept(&format!("large-{number:08}"), value);
        resource.version = (number + 1).to_string();
        "01ARZ3NDEKTSV4RRFFQ69G5FAV".clone_into(&mut resource.generation);
        resource.id = resource.id.map(|id| id.with_uid(&format!("{number:026}")));
        Ok(Arc::new(resource))
    });
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    let mut chunks = std::pin::pin!(transfer::export(stream::iter(resources).boxed()));
    while let Some(chunk) = chunks.try_next().await.unwrap() {
        file.write_all(&chunk).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    path
}

/// Runs `resource-server import`, and prints how long it took.
pub(crate) async fn import(what: &str, arguments: &[String], export: &Path) {
    let started = Instant::now();
    let mut command = Command::new(SERVER);
    let process =
        command.arg("import").arg("--replace").args(arguments).arg(export).spawn().unwrap();
    let memory = tokio::spawn(most_memory_until_it_ends(process.id().unwrap()));
    assert!({ process }.wait().await.unwrap().success());
    let (took, most) = (started.elapsed(), memory.await.unwrap());
    print(&format!("import {what}"), &format!("{}, {most} MB at most", seconds(took)));
}

async fn most_memory_until_it_ends(pid: u32) -> u64 {
    let mut most = 0;
    while let Some(now) = most_memory(pid) {
        most = now;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    most
}

/// The most memory that a process had at a time, in MB.
pub(crate) fn most_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024 / 1_000_000)
}

pub(crate) fn memory_of(node: &Node) -> String {
    let most = node.pid().and_then(most_memory).unwrap();
    format!("{most} MB at most")
}

/// The size of a file, or of the files in a folder.
pub(crate) fn size(path: &Path) -> String {
    let bytes: u64 = if path.is_dir() {
        let files = std::fs::read_dir(path).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
    } else {
        std::fs::metadata(path).unwrap().len()
    };
    format!("{} MB", bytes / 1_000_000)
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
