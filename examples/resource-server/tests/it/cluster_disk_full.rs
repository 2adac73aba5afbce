//! A disk that is full makes a node of a cluster read-only, and not dead.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use resource_store::{Resource, ResourceClient as _, backend::Consistency, demo, pb};
use tokio::time::{Instant, sleep};

use crate::{
    PATIENCE,
    cluster_mistakes::{node, printed},
};

/// Two files of the log, of 64 MiB each, and half of another one.
const DISK: &str = "size=160m";
const BYTES: usize = 1 << 20;
/// What fills a file of the log, and more.
const MOST_WRITES: usize = 200;

/// A small disk of its own, in memory.
struct Disk(PathBuf);

impl Disk {
    /// None if this process may not make one.
    fn mount(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", DISK, "tmpfs"]).arg(at);
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self(at.to_owned()))
    }

    /// Leaves no room.
    fn fill(&self) {
        let mut filling = File::create(self.0.join("ballast")).unwrap();
        while filling.write_all(&[0; 1 << 16]).is_ok() {}
    }

    /// Makes room for more files of the log.
    fn enlarge(&self) {
        let larger = Command::new("mount").args(["-o", "remount,size=600m"]).arg(&self.0).status();
        assert!(larger.unwrap().success());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.unwrap().success() || std::thread::panicking());
    }
}

fn label(version: &str, fill: u8) -> pb::Resource {
    let name = char::from(b'a' + fill % 26).to_string().repeat(BYTES);
    let data = demo::v1::RecordLabel { name, ..Default::default() };
    let mut label = Resource::new(pb::Tenancy::new("default", ""), "large", data).encode();
    version.clone_into(&mut label.version);
    label
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_read_only_until_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("disk");
    fs::create_dir(&at).unwrap();
    let Some(disk) = Disk::mount(&at) else {
        eprintln!("skipped: a disk of its own cannot be mounted, which takes root");
        return;
    };
    let (mut node, _, peer) = node(&at, "node");
    node.start(&["--bootstrap"]).await;
    let client = node.client(Consistency::Strong);
    let mut stored = client.write(label("", 0)).await.unwrap();
    assert_eq!(printed(&["cluster", "alarms", &peer]).await, "");

    disk.fill();
    let mut refused = None;
    for number in 1..MOST_WRITES {
        match client.write(label(&stored.version, u8::try_from(number % 26).unwrap())).await {
            Ok(written) => stored = written,
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        }
    }
    let refused = refused.expect("the disk is never full");
    assert!(refused.contains("there is no room left on the disk"), "{refused}");
    let alarms = printed(&["cluster", "alarms", &peer]).await;
    assert!(alarms.contains(" NOSPACE there is no room left on the disk of "), "{alarms}");
    let read = client.read(stored.id.clone().unwrap()).await.unwrap();
    assert_eq!(read.version, stored.version, "what was acknowledged is read");
    let status = printed(&["cluster", "status", &peer]).await;
    assert!(status.contains(" leads ") && status.ends_with("quorum yes\n"), "{status}");

    disk.enlarge();
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = client.write(label(&stored.version, 1)).await {
        assert!(Instant::now() < deadline, "{error}");
        sleep(Duration::from_millis(100)).await;
    }
    while !printed(&["cluster", "alarms", &peer]).await.is_empty() {
        assert!(Instant::now() < deadline, "the alarm stays");
        sleep(Duration::from_millis(100)).await;
    }
    node.stop().await;
    drop(disk);
}

/// The others go on meanwhile, far beyond what its log has room for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_whose_disk_is_full_lives_on_and_catches_up_later() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("disk");
    fs::create_dir(&at).unwrap();
    let Some(disk) = Disk::mount(&at) else {
        eprintln!("skipped: a disk of its own cannot be mounted, which takes root");
        return;
    };
    let (mut first, _, first_peer) = node(folder.path(), "first");
    let (mut second, ..) = node(folder.path(), "second");
    let (mut third, _, third_peer) = node(&at, "third");
    first.start(&["--bootstrap"]).await;
    second.start(&["--join", &first_peer]).await;
    third.start(&["--join", &first_peer]).await;
    disk.fill();
    let client = first.client(Consistency::Strong);
    let mut stored = client.write(label("", 0)).await.unwrap();
    for number in 1..MOST_WRITES {
        let next = label(&stored.version, u8::try_from(number % 26).unwrap());
        stored = client.write(next).await.unwrap();
    }
    let alarms = printed(&["cluster", "alarms", &third_peer]).await;
    assert!(alarms.contains(" NOSPACE "), "{alarms}");
    assert!(third.pid().is_some());
    let own = third.client(Consistency::Eventual);
    own.read(stored.id.clone().unwrap()).await.unwrap();

    disk.enlarge();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = own.read(stored.id.clone().unwrap()).await.unwrap();
        if found.version == stored.version {
            break;
        }
        assert!(Instant::now() < deadline, "it does not catch up");
        sleep(Duration::from_millis(100)).await;
    }
    for mut node in [third, second, first] {
        node.stop().await;
    }
    drop(disk);
}
