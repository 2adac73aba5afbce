//! What whoever operates a cluster of `resource-server` does with it.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use resource_store::{
    GrpcClient, Resource, ResourceClient as _, ResourceData as _, backend::Consistency, demo, pb,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    PATIENCE,
    cluster_mistakes::{free_address, node, printed, said},
    resource_server::called,
    store_cluster::node::Node,
};

/// How many bytes the name of a label has that are there for its size.
const BYTES: usize = 20_000;

fn label(name: &str) -> pb::Resource {
    let data = demo::v1::RecordLabel { name: "x".repeat(BYTES), ..Default::default() };
    Resource::new(pb::Tenancy::new("default", ""), name, data).encode()
}

/// The names, with the versions.
async fn labels(client: &GrpcClient) -> Vec<(String, u64)> {
    let request = pb::ListRequest {
        r#type: Some(demo::v1::RecordLabel::resource_type()),
        tenancy: Some(pb::Tenancy::new("*", "")),
        name_prefix: String::new(),
    };
    let found = client.list(request).await.unwrap();
    found.iter().map(|found| (found.name().to_owned(), found.version.parse().unwrap())).collect()
}

async fn write(node: &Node, name: &str) -> u64 {
    let client = node.client(Consistency::Strong);
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.write(label(name)).await {
            Ok(written) => return written.version.parse().unwrap(),
            Err(error) if Instant::now() > deadline => panic!("{name}: {error}"),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Three nodes, and where each keeps its files and listens for others.
struct Three {
    nodes: Vec<Node>,
    data: Vec<String>,
    peers: Vec<String>,
    folder: tempfile::TempDir,
}

impl Three {
    async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    async fn start_in(folder: tempfile::TempDir) -> Self {
        let mut three = Self { nodes: vec![], data: vec![], peers: vec![], folder };
        for name in ["first", "second", "third"] {
            let (mut node, data, peer) = node(three.folder.path(), name);
            match three.peers.first() {
                None => node.start(&["--bootstrap"]).await,
                Some(first) => node.start(&["--join", first]).await,
            }
            three.nodes.push(node);
            three.data.push(data);
            three.peers.push(peer);
        }
        three
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    async fn stop(&mut self) {
        for node in &mut self.nodes {
            node.stop().await;
        }
    }
}

async fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&printed(&[arguments, &["--json"]].concat()).await).unwrap()
}

/// The nodes of a status, by their addresses for other nodes.
async fn status(peer: &str) -> Value {
    let output = called(&["cluster", "status", peer, "--json"]).await;
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The exit code is for scripts that read nothing.
    assert_eq!(output.status.success(), found["quorum"] == true, "{output:?}");
    found
}

fn of<'a>(status: &'a Value, peer: &str) -> &'a Value {
    let nodes = status["nodes"].as_array().unwrap();
    nodes.iter().find(|node| node["address"] == peer).unwrap()
}

fn leader_of(status: &Value) -> Option<String> {
    let nodes = status["nodes"].as_array()?;
    let leader = nodes.iter().find(|node| node["leads"] == true && node["quorum"] == true)?;
    Some(leader["address"].as_str()?.to_owned())
}

/// Waits until some node leads.
async fn leader(peer: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = status(peer).await;
        if let Some(leader) = leader_of(&status) {
            return leader;
        }
        assert!(Instant::now() < deadline, "{status:#}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_says_who_leads_and_who_is_behind() {
    let mut three = Three::start().await;
    let leads = leader(&three.peers[0]).await;
    for number in 0..20 {
        write(&three.nodes[number % 3], &format!("name-{number}")).await;
    }
    let lost = (0..3).find(|number| three.peers[*number] != leads).unwrap();
    let ask = (0..3).find(|number| three.peers[*number] != leads && *number != lost).unwrap();
    three.nodes[lost].strike();
    three.nodes[lost].gone().await;
    for number in 20..30 {
        write(&three.nodes[ask], &format!("name-{number}")).await;
    }
    let found = status(&three.peers[ask]).await;
    assert_eq!(found["quorum"], true, "{found:#}");
    let (leader, dead) = (of(&found, &leads), of(&found, &three.peers[lost]));
    assert_eq!((&leader["leads"], &leader["lag"]), (&Value::from(true), &Value::from(0)));
    assert_eq!(of(&found, &three.peers[ask])["leader"], leader["id"], "{found:#}");
    assert!(leader["applied"].as_u64().unwrap() >= 30 && leader["resources"] == 30, "{found:#}");
    assert!(leader["disk"]["syncs"].as_u64().unwrap() >= 30, "{found:#}");
    assert!(leader["disk"]["p99_ms"].as_f64().unwrap() > 0.0, "{found:#}");
    assert_eq!(leader["alarms"], Value::Array(Vec::new()), "{found:#}");
    assert!(dead["silent"].is_string() && dead["lag"].as_u64().unwrap() >= 10, "{found:#}");
    let alarms = printed(&["cluster", "alarms", &leads]).await;
    assert!(alarms.starts_with(&format!("{} SILENT ", dead["id"].as_str().unwrap())), "{alarms}");
    let text = printed(&["cluster", "status", &leads]).await;
    assert!(text.contains(" leads term ") && text.ends_with("quorum yes\n"), "{text}");

    // Without a majority it says so, and does not wait for one.
    three.nodes[ask].strike();
    three.nodes[ask].gone().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = status(&leads).await;
        let alarms = of(&found, &leads)["alarms"].to_string();
        if found["quorum"] == false && alarms.contains("NOQUORUM") {
            break;
        }
        assert!(Instant::now() < deadline, "{found:#}");
        sleep(Duration::from_millis(50)).await;
    }
    let text = said(&["cluster", "status", &leads]).await;
    assert!(
        text.contains(&format!(
            "{leads} has no quorum: no leader has a majority; 1 of 3 nodes answers"
        )),
        "{text}"
    );
    // What can be had without one is not what a backup promises, so it has to be asked for.
    let file = three.path("backup");
    let text = said(&["cluster", "backup", &leads, &file]).await;
    assert!(text.starts_with(&format!("{leads} gives no backup: ")), "{text}");
    assert!(text.contains("with --stale the backup is what this node holds"), "{text}");
    assert!(!text.contains("cannot satisfy consistency requirements"), "{text}");
    assert!(!Path::new(&file).exists());
    let taken = json(&["cluster", "backup", &leads, &file, "--stale"]).await;
    assert_eq!(taken["resources"], 30, "{taken}");
    three.stop().await;
}

/// Users write all the time, through every node, and no write fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leadership_moves_and_no_write_fails() {
    let mut three = Three::start().await;
    let first = leader(&three.peers[0]).await;
    let (ended, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let users = three.nodes.iter().enumerate().map(|(user, node)| {
        let (client, ended) = (node.client(Consistency::Strong), Arc::clone(&ended));
        let written = Arc::clone(&written);
        tokio::spawn(async move {
            for number in 0.. {
                if ended.load(Ordering::Acquire) {
                    return;
                }
                client.write(label(&format!("user-{user}-{number}"))).await.unwrap();
                written.fetch_add(1, Ordering::AcqRel);
            }
        })
    });
    let users: Vec<_> = users.collect();
    let mut before = first.clone();
    for turn in 0..6 {
        let found = status(&three.peers[turn % 3]).await;
        let target = three.peers.iter().find(|peer| **peer != before).unwrap();
        let id = of(&found, target)["id"].as_str().unwrap().to_owned();
        let moved = if turn % 2 == 0 {
            printed(&["cluster", "move-leader", &three.peers[turn % 3], &id]).await
        } else {
            printed(&["cluster", "move-leader", &three.peers[turn % 3]]).await
        };
        let now = leader(&three.peers[0]).await;
        assert_ne!(now, before, "{moved}");
        let found = status(&now).await;
        let leads = of(&found, &now)["id"].as_str().unwrap();
        assert_eq!(moved, format!("{leads} leads\n"));
        if turn % 2 == 0 {
            assert_eq!(leads, id);
        }
        before = now;
        let so_far = written.load(Ordering::Acquire);
        let deadline = Instant::now() + PATIENCE;
        while written.load(Ordering::Acquire) < so_far + 10 {
            assert!(Instant::now() < deadline, "writes do not go on");
            sleep(Duration::from_millis(20)).await;
        }
    }
    ended.store(true, Ordering::Release);
    for user in users {
        user.await.unwrap();
    }

    let none = said(&["cluster", "move-leader", &three.peers[0], "1"]).await;
    assert!(none.contains("the cluster has no node 0000000000000001 that votes"), "{none}");
    three.stop().await;
}

/// A backup is taken while users write: what was acknowledged before it is in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_cluster_that_serves_founds_another_one() {
    let mut three = Three::start().await;
    for number in 0..60 {
        write(&three.nodes[number % 3], &format!("before-{number:02}")).await;
    }
    let before = labels(&three.nodes[0].client(Consistency::Strong)).await;
    let ended = Arc::new(AtomicBool::new(false));
    let user = tokio::spawn({
        let (client, ended) = (three.nodes[1].client(Consistency::Strong), Arc::clone(&ended));
        async move {
            let mut written = 0;
            while !ended.load(Ordering::Acquire) {
                client.write(label(&format!("during-{written:04}"))).await.unwrap();
                written += 1;
            }
            written
        }
    });
    let file = three.path("backup");
    let taken = json(&["cluster", "backup", &three.peers[2], &file]).await;
    ended.store(true, Ordering::Release);
    let during: usize = user.await.unwrap();
    assert_eq!(taken["bytes"], fs::metadata(&file).unwrap().len(), "{taken}");
    assert!(!Path::new(&format!("{file}.part")).exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // Damage is found, and leaves nothing behind.
    let (damaged, folder) = (three.path("damaged"), three.path("new"));
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let (cut, peer) = (three.path("cut"), free_address());
    fs::write(&cut, &bytes[..at]).unwrap();
    for bad in [&damaged, &cut] {
        let restore = ["cluster", "restore", bad, "--data-dir", &folder, "--raft", &peer];
        let text = said(&restore).await;
        assert!(text.contains(&format!("{bad} is damaged at byte ")), "{text}");
        assert!(!Path::new(&folder).exists());
    }
    let taken_folder = &three.data[0];
    let restore = ["cluster", "restore", &file, "--data-dir", taken_folder, "--raft", &peer];
    let text = said(&restore).await;
    assert!(text.contains("has to be empty or not to be there"), "{text}");

    let (mut new, new_data, new_peer) = node(three.folder.path(), "restored");
    let restore = ["cluster", "restore", &file, "--data-dir", &new_data, "--raft", &new_peer];
    let founded = json(&restore).await;
    let old = status(&three.peers[0]).await;
    assert_ne!(founded["cluster"], old["cluster"]);
    new.start(&[]).await;
    let found = labels(&new.client(Consistency::Strong)).await;
    // A prefix of what the user wrote, and all that was there before, each with its version.
    assert!(found.starts_with(&before), "{found:?}");
    let more: Vec<_> = found[before.len()..].iter().map(|(name, _)| name.clone()).collect();
    let expected: Vec<_> = (0..more.len()).map(|number| format!("during-{number:04}")).collect();
    assert_eq!(more, expected);
    assert!(more.len() <= during + 1 && taken["resources"] == founded["resources"], "{founded}");
    let highest = found.iter().map(|(_, version)| *version).max().unwrap();
    assert!(write(&new, "later").await > highest, "versions go on");

    // A node of the old cluster is no node of the new one.
    three.nodes[2].stop().await;
    let (data, peer) = (&three.data[2], &three.peers[2]);
    let listen = free_address();
    let join = ["--listen", &listen, "--data-dir", data, "--raft", peer, "--join", &new_peer];
    let text = said(&join).await;
    assert!(text.contains("belongs to cluster "), "{text}");
    let (mut second, _, _) = node(three.folder.path(), "second-of-new");
    second.start(&["--join", &new_peer]).await;
    assert_eq!(status(&new_peer).await["nodes"].as_array().unwrap().len(), 2);
    new.stop().await;
    second.stop().await;
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_node_is_replaced_at_its_address() {
    let mut three = Three::start().await;
    let leads = leader(&three.peers[0]).await;
    let found = status(&leads).await;
    let dead = (0..3).find(|number| three.peers[*number] != leads).unwrap();
    let id = of(&found, &three.peers[dead])["id"].as_str().unwrap().to_owned();
    write(&three.nodes[0], "before").await;

    // One that is there keeps its place.
    let (data, peer, listen) = (three.path("refused"), free_address(), free_address());
    let join = [
        "--listen",
        &listen,
        "--data-dir",
        &data,
        "--raft",
        &peer,
        "--join",
        &leads,
        "--replaces",
        &id,
    ];
    let text = said(&join).await;
    assert!(text.contains(&format!("node {id} still answers at {}", three.peers[dead])), "{text}");

    three.nodes[dead].strike();
    three.nodes[dead].gone().await;
    fs::remove_dir_all(&three.data[dead]).unwrap();
    // Without the word of the operator two nodes would have one address.
    let data = &three.data[dead];
    let join =
        ["--listen", &listen, "--data-dir", data, "--raft", &three.peers[dead], "--join", &leads];
    let text = said(&join).await;
    assert!(text.contains("take its place with --replaces"), "{text}");
    fs::remove_dir_all(data).unwrap();
    // A mistyped id would leave the dead node a voter, beside a fourth one.
    let (other, free) = (three.path("mistyped"), free_address());
    let join = ["--listen", &listen, "--data-dir", &other, "--raft", &free, "--join", &leads];
    let text = said(&[&join[..], &["--replaces", "1"]].concat()).await;
    let expected = "the cluster has no node 0000000000000001 whose place another could take";
    assert!(text.contains(expected), "{text}");
    assert_eq!(status(&leads).await["nodes"].as_array().unwrap().len(), 3);
    three.nodes[dead].start(&["--join", &leads, "--replaces", &id]).await;
    let found = status(&leads).await;
    let nodes = found["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3, "{found:#}");
    assert!(nodes.iter().all(|node| node["voter"] == true && node["id"] != id.as_str()));
    assert_ne!(of(&found, &three.peers[dead])["id"], id.as_str());
    write(&three.nodes[dead], "after").await;
    let names: Vec<_> = labels(&three.nodes[dead].client(Consistency::Strong)).await;
    assert_eq!(names.len(), 2, "{names:?}");
    three.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_majority_is_recovered_from_one_node() {
    let mut three = Three::start().await;
    for number in 0..30 {
        write(&three.nodes[number % 3], &format!("name-{number:02}")).await;
    }
    let before = labels(&three.nodes[0].client(Consistency::Strong)).await;
    let old = status(&three.peers[0]).await;
    let (new_data, into) = (three.data[0].clone(), three.path("into"));
    let recover = |more: &[&'static str]| {
        let raft = three.peers[0].clone();
        let all = ["cluster", "recover", "--data-dir", &new_data, "--into", &into, "--raft", &raft];
        all.iter().copied().chain(more.iter().copied()).map(str::to_owned).collect::<Vec<_>>()
    };
    // Not while it runs.
    let arguments = recover(&["--accept-data-loss"]);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    assert!(!called(&arguments).await.status.success());
    assert!(!Path::new(&into).exists());
    for node in &mut three.nodes {
        node.strike();
    }
    for node in &mut three.nodes {
        node.gone().await;
    }

    let arguments_dry = recover(&[]);
    let arguments_dry: Vec<_> = arguments_dry.iter().map(String::as_str).collect();
    let text = said(&arguments_dry).await;
    for expected in [
        "has 30 resources",
        "kept: all up to entry",
        "lost: what was acknowledged and is only",
        "belong to the old cluster for ever",
        &three.peers[1],
        &three.peers[2],
        "nothing was done; to do it, give --accept-data-loss",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!Path::new(&into).exists());
    let done = printed(&arguments).await;
    assert!(done.starts_with("30 resources are in the new cluster "), "{done}");

    let server = env!("CARGO_BIN_EXE_resource-server");
    let arguments = ["--data-dir", &into, "--raft", &three.peers[0]].map(str::to_owned).to_vec();
    let log = three.folder.path().join("recovered.log");
    let mut recovered = Node::new(server, free_address(), arguments, log);
    recovered.start(&[]).await;
    assert_eq!(labels(&recovered.client(Consistency::Strong)).await, before);
    write(&recovered, "after").await;
    assert_ne!(status(&three.peers[0]).await["cluster"], old["cluster"]);

    // A lost node comes back after all, at its address: nothing comes of it in either cluster.
    let _starting = three.nodes[1].launch(&[]);
    sleep(Duration::from_secs(2)).await;
    let found = status(&three.peers[0]).await;
    assert_eq!((found["nodes"].as_array().unwrap().len(), &found["quorum"]), (1, &true.into()));
    write(&recovered, "still").await;
    three.nodes[1].strike();
    three.nodes[1].gone().await;
    recovered.stop().await;
}
