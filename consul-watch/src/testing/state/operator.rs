//! What operators set and ask: autopilot's settings, usage, snapshots, leaving.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use serde_json::{Map, Value, json};

use super::{Seen, State, tables::AutopilotSettings};
use crate::types::ServiceKind;

impl State {
    pub(in crate::testing) fn autopilot(&self) -> &AutopilotSettings {
        &self.operator.autopilot
    }

    /// Sets autopilot up; with a condition only if the settings have that index.
    pub(in crate::testing) fn set_autopilot(
        &mut self,
        new: AutopilotSettings,
        cas: Option<u64>,
    ) -> bool {
        let old = (self.operator.autopilot.created, self.operator.autopilot.modified);
        let index = self.commit();
        if cas.is_some_and(|cas| cas != old.1) {
            return false;
        }
        self.operator.autopilot = AutopilotSettings { created: old.0, modified: index, ..new };
        true
    }

    /// Leaves the cluster, as an agent does before it stops. The double goes on answering.
    pub(in crate::testing) fn leave(&mut self) {
        self.operator.left = true;
    }

    pub(in crate::testing) fn has_left(&self) -> bool {
        self.operator.left
    }

    /// Versions of Envoy that a server of this version supports.
    pub(in crate::testing) fn envoy_versions(&self) -> Value {
        if self.is_1_8() {
            json!(["1.14.5", "1.13.6", "1.12.7", "1.11.2"])
        } else {
            json!(["1.29.7", "1.28.5", "1.27.7", "1.26.8"])
        }
    }

    /// Returns the position of a read of what is never written.
    pub(in crate::testing) fn never_written() -> Seen {
        Seen::by_index(1)
    }

    /// Returns the position of a read of everything.
    pub(in crate::testing) fn whole(&self) -> Seen {
        Seen::by_index(self.index)
    }

    /// Counts services, instances and nodes.
    pub(in crate::testing) fn usage(&self) -> (Value, Seen) {
        let kinds = [
            ("api-gateway", ServiceKind::ApiGateway),
            ("connect-proxy", ServiceKind::ConnectProxy),
            ("ingress-gateway", ServiceKind::IngressGateway),
            ("mesh-gateway", ServiceKind::MeshGateway),
            ("terminating-gateway", ServiceKind::TerminatingGateway),
        ];
        let all: Vec<_> = self.nodes.values().flat_map(|node| node.services.values()).collect();
        let names: std::collections::BTreeSet<&str> =
            all.iter().map(|service| service.name.as_str()).collect();
        let mut mesh: Map<String, Value> = kinds
            .into_iter()
            .map(|(name, kind)| {
                (name.to_owned(), json!(all.iter().filter(|service| service.kind == kind).count()))
            })
            .collect();
        let native = all.iter().filter(|service| service.connect.native).count();
        mesh.insert("connect-native".to_owned(), json!(native));
        let billable = all
            .iter()
            .filter(|service| service.kind == ServiceKind::Typical && service.name != "consul")
            .count();
        let usage = json!({ "Usage": { "dc1": {
            "Services": names.len(), "ServiceInstances": all.len(),
            "ConnectServiceInstances": mesh, "BillableServiceInstances": billable,
            "Nodes": self.nodes.len(),
        } } });
        (usage, Seen::by_index(self.tables.nodes.max(self.tables.services)))
    }

    /// Returns the fields in which some answers describe themselves in their body.
    pub(in crate::testing) fn query_meta(&self, index: u64) -> Vec<(String, Value)> {
        let mut meta = vec![
            ("Index".to_owned(), json!(index)),
            ("LastContact".to_owned(), json!(0)),
            ("KnownLeader".to_owned(), json!(self.leader)),
            ("ConsistencyLevel".to_owned(), json!("")),
        ];
        if !self.is_1_8() {
            meta.push(("NotModified".to_owned(), json!(false)));
            meta.push(("Backend".to_owned(), json!(0)));
            meta.push(("ResultsFilteredByACLs".to_owned(), json!(false)));
        }
        meta
    }

    /// Keeps the present state under the archive that names it.
    pub(in crate::testing) fn save_snapshot(&mut self) -> std::io::Result<Vec<u8>> {
        let id = self.uuid();
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        writeln!(packed, "consul-watch test double, snapshot {id}, index {}", self.index)?;
        let archive = packed.finish()?;
        self.operator.snapshots.insert(archive.clone(), (self.index, self.contents()));
        Ok(archive)
    }

    /// Puts the state back that an archive names; `false` if this double did not make it.
    /// Every blocked read answers, as it does when a server restores a snapshot.
    pub(in crate::testing) fn restore_snapshot(&mut self, archive: &[u8]) -> bool {
        let Some((index, contents)) = self.operator.snapshots.get(archive).cloned() else {
            return false;
        };
        self.put_back(contents);
        self.index = index;
        self.abandon();
        true
    }
}
