//! The command line.

use std::{ffi::OsString, path::PathBuf};

use crate::backend::durable::SyncPolicy;
use clap::{Args, Parser, Subcommand};
use consul_watch::GoDuration;
use tracing_subscriber::filter::LevelFilter;

use super::{
    access::AccessOptions,
    cluster::{ClusterCommand, MembersOptions, RemoveMemberOptions},
    etcd::EtcdOptions,
    postgres::PostgresOptions,
    raft::RaftOptions,
};

/// Serves resources over gRPC, and over HTTP under /api.
///
/// It stops at Ctrl-C or SIGTERM.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    pub(crate) serve: ServeOptions,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// Commands besides serving.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes all resources to a file
    ///
    /// Import that file to move them to another store. Uid, generation, owner,
    /// metadata and status stay what they are; versions change.
    Export(ExportOptions),
    /// Replaces what a store holds by the resources of an exported file
    ///
    /// Nothing is changed if the file is not sound and complete.
    Import(Box<ImportOptions>),
    /// Looks after a cluster: members, status, alarms, backup, restore and more
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Lists the nodes of a cluster; the same as cluster members
    Members(MembersOptions),
    /// Removes a node from a cluster, before or after it is stopped; the same as
    /// cluster remove
    RemoveMember(RemoveMemberOptions),
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
    /// Exports from the server at this address in place of a folder: the
    /// resources of one type after the other, each type as of one moment
    #[arg(
        long,
        value_name = "ADDRESS",
        required_unless_present_any = ["data_dir", "etcd", "postgres"],
        conflicts_with_all = ["data_dir", "etcd", "postgres"]
    )]
    pub(crate) server: Option<String>,
    /// The file to write; - is the standard output
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ImportOptions {
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
    #[command(flatten)]
    pub(crate) raft: RaftOptions,
    /// Replaces what there is; otherwise the store has to be empty
    #[arg(long)]
    pub(crate) replace: bool,
    /// The file to read; - is the standard input
    pub(crate) file: PathBuf,
}

/// Settings of a server.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// The address to listen at [default: 127.0.0.1:8502]
    #[arg(conflicts_with = "listen")]
    pub(crate) address: Option<String>,
    /// The address to listen at, too
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// Level of the log on the standard error: off, error, warn, info, debug or
    /// trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log_level: LevelFilter,
    /// Runs the demonstration controller, which writes albums for each artist
    #[arg(long)]
    pub(crate) demo: bool,
    /// Does as Consul does also where that is known to be wrong
    #[arg(long)]
    pub(crate) upstream_parity: bool,
    #[command(flatten)]
    pub(crate) access: AccessOptions,
    #[command(flatten)]
    pub(crate) storage: StorageOptions,
    #[command(flatten)]
    pub(crate) raft: RaftOptions,
}

/// The storage of resources.
#[derive(Debug, Args)]
pub(crate) struct StorageOptions {
    /// The folder with the file resources.redb, which holds the resources; a
    /// server or an import makes it if need be, and a server without it keeps
    /// them in memory
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// When a change reaches the disk: before it is acknowledged (each-commit);
    /// a time such as 50ms after it at the latest; or when the operating system
    /// comes to it (never)
    #[arg(
        long, value_name = "WHEN", default_value = "each-commit", value_parser = sync_policy,
        requires = "data_dir"
    )]
    pub(crate) sync: SyncPolicy,
    /// Part of the file that is kept in memory at most, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, requires = "data_dir")]
    pub(crate) cache: u32,
    #[command(flatten)]
    pub(crate) etcd: EtcdOptions,
    #[command(flatten)]
    pub(crate) postgres: PostgresOptions,
    /// Opens the file without checking all of it first
    #[arg(long, requires = "data_dir")]
    pub(crate) no_check: bool,
}

fn sync_policy(text: &str) -> Result<SyncPolicy, String> {
    match text {
        "each-commit" => Ok(SyncPolicy::EveryCommit),
        "never" => Ok(SyncPolicy::Never),
        _ => {
            let time: GoDuration = text.parse().map_err(|error| {
                format!("{error}; each-commit, never, or a time such as 50ms is expected")
            })?;
            Ok(SyncPolicy::Within(time.into()))
        }
    }
}

/// Takes one dash for two before help and the demonstration, as with the
/// other programs here.
pub(crate) fn as_clap_reads(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let two_dashes = |argument: OsString| match argument.to_str() {
        Some("-help") => OsString::from("--help"),
        Some("-demo") => OsString::from("--demo"),
        _ => argument,
    };
    arguments.map(two_dashes).collect()
}
