//! How a node of a Raft cluster runs.
//!
//! - [`faults`]: faults of a node that tests ask for;
//! - [`retired`]: types whose changes have no effect.

#[cfg_attr(
    not(any(test, feature = "testing")),
    expect(unreachable_pub, reason = "public for tests only")
)]
mod faults;
mod retired;

use std::{net::IpAddr, num::NonZeroU16, path::PathBuf, time::Duration};

use secrecy::SecretString;

#[cfg(not(any(test, feature = "testing")))]
pub(super) use self::faults::Faults;
#[cfg(any(test, feature = "testing"))]
pub use self::faults::{Faults, HeldCommits, HeldDisk};
pub use self::retired::RetiredTypes;
use crate::backend::{Error, Result, store::topics::DEFAULT_WATCH_BUFFER};

/// Advice for a node whose file is damaged. A copy of it would be old, and the node
/// would break its word.
pub(super) const WHEN_DAMAGED: &str =
    "remove this node from the cluster, empty its folder, and let it join again";

/// Settings of a node of a Raft cluster.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RaftConfig {
    /// The folder of the node's files: `raft-log` with the log and the vote, and
    /// `raft-snapshots`. Made if it is not there. No two nodes share one.
    pub data_dir: PathBuf,
    /// The address to listen at for other nodes: host and port. Port 0 takes
    /// any that is free, which another start will not get again.
    pub listen: String,
    /// The address at which other nodes reach this one, if it is not the one it
    /// listens at.
    pub advertise: Option<String>,
    /// The dead node whose place this one takes, if it joins: it is removed by the same change of
    /// the membership that lets this one vote, and may have had the same address.
    pub replaces: Option<u64>,
    /// Certificates for the connections between nodes; none by default, which
    /// means plain text and that whoever reaches the port is trusted: then the
    /// node listens at addresses of this machine only, unless `allow_plaintext`.
    pub tls: Option<PeerTls>,
    /// Listens beyond this machine's own addresses also without certificates;
    /// `false` by default. Whoever reaches the port can read and write
    /// everything then.
    pub allow_plaintext: bool,
    /// Interval at which the leader shows that it is there; 100 ms by default.
    pub heartbeat: Duration,
    /// After how long without a leader others want to become one: a random time
    /// between the two, after a lease of the longer one; 300 to 600 ms by
    /// default. A leader that is lost is so replaced after about a second.
    /// A leader whose disk is at one write for more than the longer one is
    /// replaced, too.
    pub election: (Duration, Duration),
    /// Time that a call waits for a leader, or for this node to catch up, before it
    /// fails with `Inconsistent`; 5 seconds by default.
    pub patience: Duration,
    /// Time that a write waits for its end, once it may have an effect; after that
    /// its outcome is unknown. A node that joins gives up after it, if it comes no
    /// nearer meanwhile. 30 seconds by default.
    pub write_timeout: Duration,
    /// After how many entries a snapshot is taken, so that the log before it
    /// can go; 20,000 by default.
    pub snapshot_after_entries: u64,
    /// Number of entries before a snapshot that are kept for nodes a little behind;
    /// 10,000 by default. A node that needs older ones gets a snapshot; what comes
    /// after that is kept as long as the node comes nearer to it.
    pub keep_entries: u64,
    /// Approximate bytes of entries that the log keeps, if fewer entries than
    /// `keep_entries` have so many; 256 MiB by default. A node that needs older
    /// ones gets a snapshot.
    pub keep_bytes: u64,
    /// Size of a file of the log in bytes, whose room is taken in advance; 64 MiB
    /// by default. The log is cut off by whole files.
    pub segment_bytes: u64,
    /// Bytes of changes that a leader takes before they are done; 128 MiB by
    /// default. Beyond that a change is refused with
    /// [`Error::Overloaded`](crate::backend::Error::Overloaded), and not begun,
    /// unless it is the only one.
    pub max_pending_bytes: usize,
    /// The largest resource that is written, in bytes; 64 MiB by default.
    pub max_resource_bytes: usize,
    /// Size of the part of a restore that goes into one entry of the log, in bytes,
    /// unless one resource alone is more. 1 MiB less 4 KiB by default: with what is
    /// around it, that fills a page of the log's file, whose sizes are powers of
    /// two.
    pub restore_part_bytes: usize,
    /// Number of changes that watchers may fall behind; 8192 by default.
    pub watch_buffer: usize,
    /// Types whose entries in the log have no effect. The same on all nodes.
    pub retired: RetiredTypes,
    /// Faults for tests.
    #[cfg(any(test, feature = "testing"))]
    pub faults: Faults,
}

impl RaftConfig {
    /// A node with its files in `data_dir`, at the address `listen`.
    pub fn new(data_dir: impl Into<PathBuf>, listen: &str) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: listen.to_owned(),
            advertise: None,
            replaces: None,
            tls: None,
            allow_plaintext: false,
            heartbeat: Duration::from_millis(100),
            election: (Duration::from_millis(300), Duration::from_millis(600)),
            patience: Duration::from_secs(5),
            write_timeout: Duration::from_secs(30),
            snapshot_after_entries: 20_000,
            keep_entries: 10_000,
            keep_bytes: 256 << 20,
            segment_bytes: 64 << 20,
            max_pending_bytes: 128 << 20,
            max_resource_bytes: 64 << 20,
            restore_part_bytes: (1 << 20) - (4 << 10),
            watch_buffer: DEFAULT_WATCH_BUFFER,
            retired: RetiredTypes::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: Faults::default(),
        }
    }

    /// Refuses what is too large to be written.
    pub(crate) fn check_size(&self, bytes: usize) -> Result<()> {
        let most = self.max_resource_bytes;
        if bytes <= most {
            return Ok(());
        }
        let text = format!("the resource has {bytes} bytes, and at most {most} are taken");
        Err(Error::failed("write", text))
    }

    #[cfg_attr(
        not(any(test, feature = "testing")),
        expect(clippy::unused_self, reason = "only tests set faults")
    )]
    pub(crate) fn faults(&self) -> Faults {
        #[cfg(any(test, feature = "testing"))]
        let faults = self.faults.clone();
        #[cfg(not(any(test, feature = "testing")))]
        let faults = Faults::default();
        faults
    }
}

/// Refuses an address that no other node can reach.
pub(super) fn check_address(address: &str) -> Result<()> {
    let split = address.rsplit_once(':');
    let split = split.filter(|(host, port)| !host.is_empty() && port.parse::<NonZeroU16>().is_ok());
    let what = match split {
        None => "a host and a port are expected, as in host:port",
        Some((host, _)) if is_unspecified(host) => {
            "say which address they can, as `advertise` (--advertise)"
        }
        Some(_) => return Ok(()),
    };
    let text = format!("no other node can reach {address}: {what}");
    Err(Error::failed("start", text))
}

/// Returns `true` if `host` stands for all addresses of the machine.
fn is_unspecified(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

/// The certificates of a node, in PEM. Both sides of a connection show theirs.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PeerTls {
    /// The certificates that sign those of the nodes.
    pub ca_pem: String,
    /// The certificate of this node, followed by those between it and the root.
    pub certificate_pem: String,
    /// The key of this node.
    pub key_pem: SecretString,
    /// The name that the certificate of each node, and of each operator, has to
    /// have. Without one, that of a node has to have the host of its address,
    /// and that of an operator the host of any node.
    pub server_name: Option<String>,
}

impl PeerTls {
    /// Certificates whose names are the hosts of the nodes.
    pub fn new(ca_pem: String, certificate_pem: String, key_pem: SecretString) -> Self {
        Self { ca_pem, certificate_pem, key_pem, server_name: None }
    }
}

/// The way in which a node comes to its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// It makes a cluster of its own, which others then join. Of no effect on
    /// a node that belongs to one.
    Bootstrap,
    /// It joins a cluster through the node at an address. Of no effect on a
    /// node that belongs to one, except that the cluster is notified of a new address of its own.
    Join(String),
    /// It belongs to a cluster already.
    Resume,
}
