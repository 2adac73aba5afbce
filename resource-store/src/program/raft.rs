//! One node of a cluster: its options, and commands about the others.

use std::{num::NonZeroU16, path::PathBuf, time::Duration};

use crate::backend::raft::{PeerTls, RaftBackend, RaftConfig, Start};
use clap::Args;
use consul_watch::BoxError;

use tokio_util::sync::CancellationToken;

use super::{
    arguments::StorageOptions,
    files::{self, read},
};

/// Time that a node which starts waits to have what the others have. It serves then
/// anyway, because the others may come later.
const CATCH_UP: Duration = Duration::from_secs(10);

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
    #[arg(long, value_name = "PEER_ADDRESS", requires = "raft", value_parser = peer_address)]
    pub(crate) join: Option<String>,
    /// The dead node whose place it takes, as `cluster members` shows it: that
    /// is removed when this one may vote, and may have had the same address
    #[arg(long, value_name = "NODE", requires = "join", value_parser = node_id)]
    pub(crate) replaces: Option<u64>,
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
    /// Listens for other nodes beyond this machine also without certificates:
    /// whoever reaches the port can read and write everything
    #[arg(long, requires = "raft", conflicts_with = "tls_cert")]
    pub(crate) allow_plaintext: bool,
}

/// Certificates between nodes, all or none. A server reads them again when the
/// files change.
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
    /// The name that the certificates of all nodes and operators have to have;
    /// without it, the host of the address of the node
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    pub(crate) tls_name: Option<String>,
}

/// Reads the id of a node as the commands show it.
pub(super) fn node_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_number| {
        "an id of hexadecimal digits is expected, as `cluster members` shows it".to_owned()
    })
}

/// Reads the address of another node.
pub(super) fn peer_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && port.parse::<NonZeroU16>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err("the host and port at which that node listens for others (its --raft) are \
                  expected, as in 127.0.0.1:8602"
            .to_owned()),
    }
}

/// Returns `false` for what a URL has besides the host.
fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.contains(['/', '@'])
}

impl TlsOptions {
    pub(super) fn read(&self) -> Result<Option<PeerTls>, BoxError> {
        let (Some(ca), Some(certificate), Some(key)) =
            (&self.tls_ca, &self.tls_cert, &self.tls_key)
        else {
            return Ok(None);
        };
        let mut tls = PeerTls::new(read(ca)?, read(certificate)?, read(key)?.into());
        tls.server_name.clone_from(&self.tls_name);
        Ok(Some(tls))
    }

    /// Has a node show other certificates when the files change, until `stop`.
    pub(crate) async fn follow(&self, node: &RaftBackend, stop: CancellationToken) {
        let named = [&self.tls_ca, &self.tls_cert, &self.tls_key];
        let named: Vec<_> = named.into_iter().flatten().cloned().collect();
        if named.is_empty() {
            return;
        }
        let read_again = || {
            let replaced = self.read().and_then(|tls| match tls {
                Some(tls) => Ok(node.replace_tls(&tls)?),
                None => Ok(()),
            });
            files::told("certificates between nodes", replaced);
        };
        files::follow(named, stop, read_again).await;
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
        config.replaces = self.replaces;
        if let Some(entries) = self.raft_snapshot_threshold {
            config.snapshot_after_entries = entries;
        }
        if let Some(entries) = self.raft_trailing_logs {
            config.keep_entries = entries;
        }
        config.tls = self.tls.read()?;
        config.allow_plaintext = self.allow_plaintext;
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
