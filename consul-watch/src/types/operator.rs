//! The Raft configuration, and autopilot's view of the servers.

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::{from_go_text, nullable, timestamp};

/// The servers that hold Consul's log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct RaftConfiguration {
    /// The servers.
    #[serde(default, deserialize_with = "nullable")]
    pub servers: Vec<RaftServer>,
    /// Index of this configuration in the log.
    #[serde(default)]
    pub index: u64,
}

/// A server that holds Consul's log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct RaftServer {
    /// The server's id.
    #[serde(rename = "ID")]
    pub id: String,
    /// Name of its node; `(unknown)` if gossip does not know it.
    #[serde(default)]
    pub node: String,
    /// `host:port` for the log.
    #[serde(default)]
    pub address: String,
    /// `true` if it leads.
    #[serde(default)]
    pub leader: bool,
    /// Version of the protocol.
    #[serde(default)]
    pub protocol_version: String,
    /// `true` if it has a vote.
    #[serde(default)]
    pub voter: bool,
    /// The server's last index (Consul 1.14).
    #[serde(default)]
    pub last_index: u64,
}

/// Health of the servers, as autopilot sees them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AutopilotHealth {
    /// `true` if all servers are in order.
    pub healthy: bool,
    /// Number of servers that can fail before Consul cannot write any more.
    #[serde(default)]
    pub failure_tolerance: u64,
    /// Each of them.
    #[serde(default, deserialize_with = "nullable")]
    pub servers: Vec<ServerHealth>,
}

/// Health of a server, as autopilot sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ServerHealth {
    /// The server's id.
    #[serde(rename = "ID")]
    pub id: String,
    /// Name of its node.
    #[serde(default)]
    pub name: String,
    /// `host:port` for the log.
    #[serde(default)]
    pub address: String,
    /// State in gossip: `alive`, `failed`, `left`, …
    #[serde(default)]
    pub serf_status: String,
    /// The server's version.
    #[serde(default)]
    pub version: String,
    /// `true` if it leads.
    #[serde(default)]
    pub leader: bool,
    /// Time since it last heard from the leader; `None` is just now, or never.
    #[serde(default, deserialize_with = "from_go_text")]
    pub last_contact: Option<Duration>,
    /// Term of its last entry.
    #[serde(default)]
    pub last_term: u64,
    /// Index of its last entry.
    #[serde(default)]
    pub last_index: u64,
    /// `true` if it is in order.
    #[serde(default)]
    pub healthy: bool,
    /// `true` if it has a vote.
    #[serde(default)]
    pub voter: bool,
    /// Since when it has been so.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub stable_since: Option<SystemTime>,
}
