//! One node of a cluster: its options, and commands about the others.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::backend::raft::{PeerTls, RaftBackend, RaftConfig, Start};
use clap::Args;
use consul_watch::BoxError;

use super::arguments::StorageOptions;

/// Time that a node which starts waits to have what the others have. It serves then
/// anyway, because the others may come later.
const CATCH_UP: Duration = Duration::from_secs(10);
/// Time limit of another node's answer.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Default, Args)]
pub(crate) struct RaftOptions {
    /// Keeps resources together with other nodes, and listens for them at this
    /// address, which they have to reach
    #[arg(
        long,
        value_name = "PEER_ADDRESS",
        requires = "data_dir",
        conflicts_with_all = ["sync", "cache"]
    )]
    pub(crate) raft: Option<String>,
    /// Founds a cluster, if the folder does not belong to one
    #[arg(long, requires = "raft", conflicts_with = "join")]
    pub(crate) bootstrap: bool,
    /// Joins the cluster of the node at this address, if the folder does not
    /// belong to one
    #[arg(long, value_name = "PEER_ADDRESS", requires = "raft")]
    pub(crate) join: Option<String>,
    /// The address at which other nodes reach this one, if it is another
    #[arg(long, value_name = "PEER_ADDRESS", requires = "raft")]
    pub(crate) advertise: Option<String>,
    /// After how many entries of the log a snapshot is taken; 20000 if not given
    #[arg(long, value_name = "ENTRIES", requires = "raft",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) raft_snapshot_threshold: Option<u64>,
    /// Entries of the log before a snapshot that stay for nodes that are a little
    /// behind; 10000 if not given
    #[arg(long, value_name = "ENTRIES", requires = "raft")]
    pub(crate) raft_trailing_logs: Option<u64>,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

/// Certificates between nodes, all or none.
#[derive(Debug, Default, Args)]
#[expect(clippy::struct_field_names, reason = "the options have these names")]
pub(crate) struct TlsOptions {
    /// The certificates that sign those of the nodes, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"])]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The certificate of this node, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_key"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of this node, in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_ca", "tls_cert"])]
    pub(crate) tls_key: Option<PathBuf>,
    /// The name in the certificates of the nodes, if it is not the host of
    /// their addresses
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MembersOptions {
    /// The address of any node for other nodes
    pub(crate) peer: String,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveMemberOptions {
    /// The address of any node for other nodes
    pub(crate) peer: String,
    /// The node to remove, as the command members shows it
    #[arg(value_parser = |text: &str| u64::from_str_radix(text, 16))]
    pub(crate) node: u64,
    #[command(flatten)]
    pub(crate) tls: TlsOptions,
}

impl TlsOptions {
    fn read(&self) -> Result<Option<PeerTls>, BoxError> {
        let (Some(ca), Some(certificate), Some(key)) =
            (&self.tls_ca, &self.tls_cert, &self.tls_key)
        else {
            return Ok(None);
        };
        let read = |path: &Path| {
            let text = std::fs::read_to_string(path);
            text.map_err(|error| format!("{} cannot be read: {error}", path.display()))
        };
        let mut tls = PeerTls::new(read(ca)?, read(certificate)?, read(key)?.into());
        tls.server_name.clone_from(&self.tls_name);
        Ok(Some(tls))
    }
}

impl RaftOptions {
    /// Starts a node, if there is to be one.
    pub(crate) async fn start(
        &self,
        storage: &StorageOptions,
    ) -> Result<Option<RaftBackend>, BoxError> {
        let (Some(address), Some(data_dir)) = (&self.raft, &storage.data_dir) else {
            return Ok(None);
        };
        let mut config = RaftConfig::new(data_dir, address);
        config.advertise.clone_from(&self.advertise);
        if let Some(entries) = self.raft_snapshot_threshold {
            config.snapshot_after_entries = entries;
        }
        if let Some(entries) = self.raft_trailing_logs {
            config.keep_entries = entries;
        }
        config.tls = self.tls.read()?;
        let start = match &self.join {
            Some(other) => Start::Join(other.clone()),
            None if self.bootstrap => Start::Bootstrap,
            None => Start::Resume,
        };
        let node = RaftBackend::start(config, start).await?;
        if let Err(error) = node.wait_until_caught_up(CATCH_UP).await {
            tracing::warn!(%error, "serving what the node has so far");
        }
        Ok(Some(node))
    }
}

/// Lists the nodes of a cluster.
#[expect(clippy::print_stdout, reason = "the answer to a command")]
pub(crate) async fn members(options: &MembersOptions) -> Result<(), BoxError> {
    let tls = options.tls.read()?;
    let members = RaftBackend::members_at(&options.peer, tls.as_ref()).await?;
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
