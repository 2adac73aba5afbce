//! Commands about a cluster: for whoever operates it.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::backend::{
    Error,
    raft::{Founded, Member, NodeStatus, PeerTls, RaftBackend, RaftConfig, Remains},
};
use clap::{Args, Subcommand};
use consul_watch::BoxError;
use futures::future::join_all;
use serde_json::{Value, json};

use super::raft::{TlsOptions, node_id, peer_address};

/// The longest that another node may take to answer, or the leadership to move.
const PATIENCE: Duration = Duration::from_secs(30);

/// The commands on a cluster.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Lists the nodes, and asks each whether it is there
    Members(MembersOptions),
    /// Shows how each node is: leader, term, log, lag, disk, snapshot, alarms; fails if
    /// the cluster has no quorum
    Status(MembersOptions),
    /// Lists what an operator should look at, on any node; prints nothing if all is well
    ///
    /// An alarm goes by itself once its cause is gone.
    Alarms(MembersOptions),
    /// Writes all that the cluster holds to a file, while it runs
    ///
    /// The file has everything that was acknowledged before, as of one moment,
    /// with checksums. Once it is complete, it takes the place of one of its name.
    Backup(BackupOptions),
    /// Makes the first node of a new cluster, from a backup
    ///
    /// Start it afterwards with the same folder and address, and let others
    /// join it.
    Restore(RestoreOptions),
    /// Has another node lead
    MoveLeader(MoveLeaderOptions),
    /// Removes a node, before or after it is stopped
    ///
    /// To put another in the place of a dead one, start that with --join and
    /// --replaces.
    Remove(RemoveMemberOptions),
    /// Makes the first node of a new cluster, from what a node is left with of
    /// one that has lost its majority for good
    ///
    /// Without --accept-data-loss it only says what would be kept and what may
    /// be lost. The folder stays what it is.
    Recover(RecoverOptions),
}

#[derive(Debug, Args)]
pub(crate) struct MembersOptions {
    /// The address of any node for other nodes
    #[arg(value_parser = peer_address)]
    pub(crate) peer: String,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveMemberOptions {
    /// The address of any node for other nodes
    #[arg(value_parser = peer_address)]
    pub(crate) peer: String,
    /// The node to remove, as `cluster members` shows it
    #[arg(value_parser = node_id)]
    pub(crate) node: u64,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// The address of any node for other nodes
    #[arg(value_parser = peer_address)]
    pub(crate) peer: String,
    /// The file to write
    pub(crate) file: PathBuf,
    /// Takes what that node holds, also without a majority; others may have more
    #[arg(long)]
    pub(crate) stale: bool,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

#[derive(Debug, Args)]
pub(crate) struct MoveLeaderOptions {
    /// The address of any node for other nodes
    #[arg(value_parser = peer_address)]
    pub(crate) peer: String,
    /// The node that is to lead, as `cluster members` shows it; without one,
    /// that which has the most of the log
    #[arg(value_parser = node_id)]
    pub(crate) node: Option<u64>,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

/// The first node of a new cluster.
#[derive(Debug, Args)]
pub(crate) struct FirstNode {
    /// The address at which the node will listen for others
    #[arg(long, value_name = "PEER_ADDRESS")]
    pub(crate) raft: String,
    /// The address at which other nodes reach it, if it is another
    #[arg(long, value_name = "PEER_ADDRESS")]
    pub(crate) advertise: Option<String>,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
    /// Listens for other nodes beyond this machine also without certificates
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) allow_plaintext: bool,
    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The backup
    pub(crate) file: PathBuf,
    /// The folder of the node to make, which is empty or not there
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    pub(crate) node: FirstNode,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverOptions {
    /// The folder of the node that is left, which is not running
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: PathBuf,
    /// The folder of the node to make, which is empty or not there
    #[arg(long, value_name = "DIR")]
    pub(crate) into: PathBuf,
    /// Gives up what only lost nodes have
    #[arg(long)]
    pub(crate) accept_data_loss: bool,
    #[command(flatten)]
    pub(crate) node: FirstNode,
}

impl FirstNode {
    fn config(&self, folder: &Path) -> Result<RaftConfig, BoxError> {
        let mut config = RaftConfig::new(folder, &self.raft);
        config.advertise.clone_from(&self.advertise);
        config.tls = self.tls.read()?;
        config.allow_plaintext = self.allow_plaintext;
        Ok(config)
    }

    fn founded(&self, founded: &Founded, folder: &Path) -> String {
        let Founded { cluster, node, resources, .. } = founded;
        if self.json {
            let id = |id: &u64| format!("{id:016x}");
            return line(&json!({
                "cluster": id(cluster), "node": id(node), "resources": resources,
            }));
        }
        format!(
            "{resources} resources are in the new cluster {cluster:016x}, of node {node:016x}\n\
             start it with --data-dir {} --raft {}, and let others join it\n",
            folder.display(),
            self.raft
        )
    }
}

fn line(value: &Value) -> String {
    format!("{value:#}\n")
}

fn hex(id: u64) -> String {
    format!("{id:016x}")
}

/// Removes what the errors of a store begin with for its users: an operator wants the reason.
pub(super) fn plain(error: BoxError) -> BoxError {
    match error.downcast::<Error>().map(|error| *error) {
        Ok(Error::Inconsistent { reason }) if !reason.is_empty() => reason.into(),
        Ok(other) => other.into(),
        Err(other) => other,
    }
}

/// Runs a command.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
pub(crate) async fn run(command: &ClusterCommand) -> Result<(), BoxError> {
    let said = match command {
        ClusterCommand::Members(options) => return members(options).await,
        ClusterCommand::Remove(options) => return remove_member(options).await,
        ClusterCommand::Status(options) => return status(options).await,
        ClusterCommand::Alarms(options) => alarms(options).await?,
        ClusterCommand::Backup(options) => backup(options).await?,
        ClusterCommand::Restore(options) => {
            let config = options.node.config(&options.data_dir)?;
            let founded = RaftBackend::restore_backup(&options.file, config).await?;
            options.node.founded(&founded, &options.data_dir)
        }
        ClusterCommand::MoveLeader(options) => {
            let tls = options.tls.read()?;
            let (peer, to) = (&options.peer, options.node);
            let leader = RaftBackend::move_leader_at(peer, tls.as_ref(), to, PATIENCE).await?;
            format!("{leader:016x} leads\n")
        }
        ClusterCommand::Recover(options) => recover(options).await?,
    };
    print!("{said}");
    Ok(())
}

/// Lists the nodes of a cluster.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
pub(crate) async fn members(options: &MembersOptions) -> Result<(), BoxError> {
    let tls = options.tls.read()?;
    let members = RaftBackend::members_at(&options.peer, tls.as_ref()).await?;
    if options.json {
        print!("{}", members_as_json(&members));
        return Ok(());
    }
    for member in &members {
        let votes = if member.voter { "votes" } else { "joins" };
        let leads = if member.leader { " leads" } else { "" };
        let silent = member.silent.as_ref().map(|why| format!(" silent ({why})"));
        let silent = silent.unwrap_or_default();
        println!("{:016x} {} {votes}{leads}{silent}", member.id, member.address);
    }
    if !members.iter().any(|member| member.leader) {
        println!("{} knows no leader", options.peer);
    }
    Ok(())
}

/// Removes a node from a cluster.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
pub(crate) async fn remove_member(options: &RemoveMemberOptions) -> Result<(), BoxError> {
    let tls = options.tls.read()?;
    let members = RaftBackend::members_at(&options.peer, tls.as_ref()).await?;
    if !members.iter().any(|member| member.id == options.node) {
        let text = format!("the cluster of {} has no node {:016x}", options.peer, options.node);
        return Err(text.into());
    }
    RaftBackend::remove_member_at(&options.peer, tls.as_ref(), options.node, PATIENCE).await?;
    println!("{:016x} removed", options.node);
    Ok(())
}

async fn backup(options: &BackupOptions) -> Result<String, BoxError> {
    let tls = options.tls.read()?;
    let (peer, file) = (&options.peer, &options.file);
    let taken = RaftBackend::backup_at(peer, tls.as_ref(), options.stale, file).await?;
    if options.json {
        return Ok(line(&json!({
            "index": taken.index, "resources": taken.resources, "bytes": taken.bytes,
        })));
    }
    Ok(format!(
        "{} resources in {} bytes, as of entry {}, are in {}\n",
        taken.resources,
        taken.bytes,
        taken.index,
        file.display()
    ))
}

/// Shows what would be kept and what may be lost.
fn consequences(remains: &Remains) -> String {
    let Remains { node, cluster, term, last, committed, resources, members, .. } = remains;
    let unsure = if last > committed {
        format!("; what comes after entry {committed} may be writes that were never acknowledged")
    } else {
        String::new()
    };
    let mut text = format!(
        "node {node:016x} of cluster {cluster:016x} has {resources} resources, and its log up to \
         entry {last} of term {term}, of which it knows those up to {committed} to be committed\n\
         kept: all up to entry {last}{unsure}\n\
         lost: what was acknowledged and is only on other nodes. Run this command on each node \
         that can be read, and take the one with the highest term, and of these the highest \
         entry\n\
         These nodes belong to the old cluster for ever; never start them again, or clients may \
         write there:\n"
    );
    for member in members.iter().filter(|member| member.id != *node) {
        // Writing to a string does not fail.
        writeln!(text, "  {:016x} {}", member.id, member.address).unwrap_or_default();
    }
    text
}

async fn recover(options: &RecoverOptions) -> Result<String, BoxError> {
    let mut config = options.node.config(&options.into)?;
    config.data_dir.clone_from(&options.data_dir);
    let remains = RaftBackend::remains(&config).await?;
    if !options.accept_data_loss {
        let text = consequences(&remains);
        return Err(format!("{text}nothing was done; to do it, give --accept-data-loss").into());
    }
    config.data_dir.clone_from(&options.into);
    let founded = RaftBackend::recover(&remains, config).await?;
    Ok(options.node.founded(&founded, &options.into))
}

/// A node, and how it is, or why that is not known.
type Known = (Member, Result<NodeStatus, String>);

/// Asks each node that the node at an address knows for its status.
async fn all(options: &MembersOptions) -> Result<Vec<Known>, BoxError> {
    let tls = options.tls.read()?;
    let tls: Option<&PeerTls> = tls.as_ref();
    let members = RaftBackend::members_at(&options.peer, tls).await?;
    let known = members.into_iter().map(|member| async move {
        let status = match &member.silent {
            Some(why) => Err(why.clone()),
            None => RaftBackend::status_at(&member.address, tls).await.map_err(|e| e.to_string()),
        };
        (member, status)
    });
    Ok(join_all(known).await)
}

fn quorum(known: &[Known]) -> bool {
    known.iter().any(|(_, status)| {
        status.as_ref().is_ok_and(|status| status.quorum && status.leader == Some(status.id))
    })
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// By how many entries a node is behind, as the leader knows it.
fn lag(known: &[Known], id: u64) -> Option<u64> {
    let leader = known.iter().filter_map(|(_, status)| status.as_ref().ok());
    let leader = leader.filter(|status| status.leader == Some(status.id)).max_by_key(|s| s.term)?;
    if leader.id == id {
        return Some(0);
    }
    leader.followers.iter().find(|follower| follower.id == id).map(|follower| follower.lag)
}

/// Prints how each node is, and then fails if there is no quorum.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
async fn status(options: &MembersOptions) -> Result<(), BoxError> {
    let known = all(options).await?;
    print!("{}", status_text(options, &known));
    if quorum(&known) {
        return Ok(());
    }
    let (nodes, answers) = (known.len(), known.iter().filter(|(_, s)| s.is_ok()).count());
    let verb = if answers == 1 { "answers" } else { "answer" };
    let peer = &options.peer;
    let text = format!(
        "the cluster of {peer} has no quorum: no leader has a majority; {answers} of {nodes} nodes {verb}"
    );
    Err(text.into())
}

fn status_text(options: &MembersOptions, known: &[Known]) -> String {
    if options.json {
        let nodes: Vec<_> =
            known.iter().map(|known_node| node_as_json(known, known_node)).collect();
        let cluster = known.iter().find_map(|(_, s)| s.as_ref().ok()).map(|s| hex(s.cluster));
        return line(&json!({ "cluster": cluster, "quorum": quorum(known), "nodes": nodes }));
    }
    let mut text: String = known.iter().map(|known_node| as_line(known, known_node)).collect();
    text.push_str(if quorum(known) { "quorum yes\n" } else { "quorum no\n" });
    text
}

fn node_as_json(known: &[Known], (member, status): &Known) -> Value {
    let mut shown = json!({
        "id": hex(member.id), "address": member.address, "voter": member.voter,
        "lag": lag(known, member.id),
    });
    let more = match status {
        Err(why) => json!({ "silent": why }),
        Ok(status) => as_json(status),
    };
    if let (Some(shown), Value::Object(more)) = (shown.as_object_mut(), more) {
        shown.extend(more);
    }
    shown
}

fn as_line(known: &[Known], (member, status): &Known) -> String {
    let (id, address) = (hex(member.id), &member.address);
    let status = match status {
        Err(why) => return format!("{id} {address} silent ({why})\n"),
        Ok(status) => status,
    };
    let role = match (status.leader == Some(status.id), status.voter) {
        (true, _) => "leads",
        (false, true) => "follows",
        (false, false) => "joins",
    };
    let lag = lag(known, member.id).map_or("unknown".to_owned(), |lag| lag.to_string());
    let alarms: Vec<_> = status.alarms.iter().map(|alarm| alarm.name.as_str()).collect();
    let alarms = if alarms.is_empty() { "none".to_owned() } else { alarms.join(",") };
    format!(
        "{id} {address} {role} term {} last {} committed {} applied {} lag {lag} sync-p99 {:.1}ms \
         sync-max {:.1}ms snapshot {} ({} bytes) resources {} alarms {alarms}\n",
        status.term,
        status.last,
        status.committed,
        status.applied,
        millis(status.disk.p99),
        millis(status.disk.max),
        status.snapshot,
        status.snapshot_bytes,
        status.resources,
    )
}

fn as_json(status: &NodeStatus) -> Value {
    let alarms = status.alarms.iter();
    let alarms = alarms.map(|alarm| json!({ "name": alarm.name, "text": alarm.text }));
    json!({
        "leader": status.leader.map(hex),
        "leads": status.leader == Some(status.id),
        "quorum": status.quorum,
        "term": status.term,
        "last": status.last,
        "committed": status.committed,
        "applied": status.applied,
        "snapshot": status.snapshot,
        "snapshot_bytes": status.snapshot_bytes,
        "disk": {
            "syncs": status.disk.syncs,
            "mean_ms": millis(status.disk.mean),
            "p99_ms": millis(status.disk.p99),
            "max_ms": millis(status.disk.max),
        },
        "alarms": alarms.collect::<Vec<_>>(),
        "version": status.version,
        "resources": status.resources,
    })
}

async fn alarms(options: &MembersOptions) -> Result<String, BoxError> {
    let known = all(options).await?;
    let mut found = Vec::new();
    for (member, status) in &known {
        let id = hex(member.id);
        match status {
            Err(why) => found.push((id, "SILENT".to_owned(), format!("{}: {why}", member.address))),
            Ok(status) => found.extend(
                status
                    .alarms
                    .iter()
                    .map(|alarm| (id.clone(), alarm.name.clone(), alarm.text.clone())),
            ),
        }
    }
    if options.json {
        let found: Vec<_> = found
            .iter()
            .map(|(node, name, text)| json!({ "node": node, "name": name, "text": text }))
            .collect();
        return Ok(line(&Value::Array(found)));
    }
    Ok(found.iter().fold(String::new(), |mut said, (node, name, text)| {
        // Writing to a string does not fail.
        writeln!(said, "{node} {name} {text}").unwrap_or_default();
        said
    }))
}

/// The nodes of a cluster, as JSON.
fn members_as_json(members: &[Member]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|member| {
            json!({
                "id": hex(member.id), "address": member.address, "voter": member.voter,
                "leader": member.leader, "silent": member.silent,
            })
        })
        .collect();
    line(&Value::Array(members))
}
