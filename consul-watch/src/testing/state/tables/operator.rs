//! What operators have set: autopilot's settings and snapshots.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Value, json};

use super::contents::Contents;
use crate::GoDuration;

/// Settings of autopilot, as Consul has them at first.
#[derive(Debug, Clone)]
pub(in crate::testing) struct AutopilotSettings {
    pub(in crate::testing) cleanup_dead_servers: bool,
    pub(in crate::testing) last_contact_threshold: Duration,
    pub(in crate::testing) max_trailing_logs: u64,
    pub(in crate::testing) min_quorum: u64,
    pub(in crate::testing) server_stabilization_time: Duration,
    pub(in crate::testing) redundancy_zone_tag: String,
    pub(in crate::testing) disable_upgrade_migration: bool,
    pub(in crate::testing) upgrade_version_tag: String,
    pub(in crate::testing) created: u64,
    pub(in crate::testing) modified: u64,
}

impl Default for AutopilotSettings {
    fn default() -> Self {
        Self {
            cleanup_dead_servers: true,
            last_contact_threshold: Duration::from_millis(200),
            max_trailing_logs: 250,
            min_quorum: 0,
            server_stabilization_time: Duration::from_secs(10),
            redundancy_zone_tag: String::new(),
            disable_upgrade_migration: false,
            upgrade_version_tag: String::new(),
            created: 4,
            modified: 4,
        }
    }
}

impl AutopilotSettings {
    pub(in crate::testing) fn json(&self) -> Value {
        let text = |duration| GoDuration::new(duration).to_string();
        json!({
            "CleanupDeadServers": self.cleanup_dead_servers,
            "LastContactThreshold": text(self.last_contact_threshold),
            "MaxTrailingLogs": self.max_trailing_logs, "MinQuorum": self.min_quorum,
            "ServerStabilizationTime": text(self.server_stabilization_time),
            "RedundancyZoneTag": self.redundancy_zone_tag,
            "DisableUpgradeMigration": self.disable_upgrade_migration,
            "UpgradeVersionTag": self.upgrade_version_tag,
            "CreateIndex": self.created, "ModifyIndex": self.modified,
        })
    }
}

/// The state of the operator's endpoints.
#[derive(Debug, Default)]
pub(in crate::testing) struct Operator {
    pub(in crate::testing) autopilot: AutopilotSettings,
    pub(in crate::testing) left: bool,
    /// States that snapshots name, by the archives.
    pub(in crate::testing) snapshots: BTreeMap<Vec<u8>, (u64, Contents)>,
}
