//! The queries of single nodes: which nodes there are, what their answers say, and those that are gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::{Runner, Which};
use crate::{
    Error, Result,
    client::Response,
    watch::broad_queries::{
        broad_query::{Kind, Move},
        catalog::Changes,
        mode::Mode,
        node::NodeRows,
        node_query::NodeQuery,
    },
};

/// So many answers in a row may say that a listed node is not there. They come [`SAME_NODES`]
/// apart, and the list of nodes is answered within that; more are those of a proxy that does not
/// pass the path on.
const MOST_ABSENT: u32 = 10;

impl Runner {
    /// Takes note of a failure of a node's query, and returns `true` if it is the first in a row:
    /// then what is on the node is read when the query is back. More in a row concern all.
    pub(super) fn is_first_failure(&mut self, which: &Which, index: u64) -> bool {
        let Which::Node(name) = which else { return false };
        let Some(node) = self.nodes.get_mut(name) else { return false };
        node.failures += 1;
        if node.failures == 1 {
            node.since = index;
        }
        node.failures == 1 && node.rows.is_some() && self.settled
    }

    /// Takes over a list of nodes with their `ModifyIndex`: starts and ends broad queries, and
    /// names what is on nodes that changed. `before` is the index of the list before.
    pub(super) fn update_nodes(&mut self, nodes: BTreeMap<String, u64>, before: u64) -> Changes {
        self.same_nodes = self.listed == nodes;
        let old = std::mem::replace(&mut self.listed, nodes);
        let mut changes = Changes::default();
        let listed = &self.listed;
        if self.mode == Mode::Dump {
            // What else there is on them, or was, the other query names.
            for (_name, rows) in self.dumped.iter().filter(|(name, _rows)| {
                let now = listed.get(*name);
                now.is_none_or(|modified| *modified == 0 || old.get(*name) != Some(modified))
            }) {
                rows.name_all(&mut changes.services);
            }
        }
        if self.mode != Mode::Nodes {
            return changes;
        }
        self.nodes.retain(|name, node| {
            let now = listed.get(name);
            if now.is_none_or(|modified| *modified == 0 || old.get(name) != Some(modified))
                && let Some(rows) = &node.rows
            {
                rows.name_all(&mut changes.services);
            }
            now.is_some()
        });
        let new: Vec<String> =
            self.listed.keys().filter(|name| !self.nodes.contains_key(*name)).cloned().collect();
        for name in new {
            let stop = CancellationToken::new();
            let node = NodeQuery {
                broad_query: self.settings.broad_query(Kind::Node(name.clone())),
                rows: None,
                since: before,
                failures: 0,
                absent: 0,
                _stop: stop.clone().drop_guard(),
                stop,
            };
            self.nodes.insert(name.clone(), node);
            self.ask(Which::Node(name), Duration::ZERO);
        }
        if self.settled {
            // A node may have come and gone between the lists, with what a read has seen.
            self.group.members().read_past(before);
        }
        self.raise_floor();
        changes
    }

    pub(super) fn node_answered(
        &mut self,
        name: &str,
        response: &Response,
        early: bool,
    ) -> Result<Move> {
        let Some(node) = self.nodes.get_mut(name) else { return Ok(Move::Same) };
        // A proxy that does not pass this path on says the same, but from the start.
        if response.status() == StatusCode::NOT_FOUND
            && self.nodes_served
            && node.absent < MOST_ABSENT
        {
            return Ok(self.node_gone(name));
        }
        let moved = node.broad_query.answered(response.meta().index, early);
        match moved {
            Move::Same => return Ok(moved),
            Move::Backwards => {
                self.settled = false;
                self.group.members().unsettle();
                return Ok(moved);
            }
            Move::Unknown => {
                let problem = "the answer about a node has no index";
                let source = problem.into();
                return Err(Error::Decode { operation: "internal.ui.node", source });
            }
            Move::Baseline | Move::Newer(_) => {}
        }
        let new = NodeRows::decode(response.body()).map_err(|error| Error::Decode {
            operation: "internal.ui.node",
            source: format!("{:?} at line {}", error.classify(), error.line()).into(),
        })?;
        let (mut names, mut different) = (BTreeSet::new(), moved == Move::Baseline);
        let first = moved == Move::Baseline;
        self.nodes_served = true;
        (node.failures, node.absent) = (0, 0);
        let old = node.rows.replace(new).unwrap_or_default();
        if let Some(new) = &node.rows {
            if moved == Move::Baseline {
                old.name_all(&mut names);
                new.name_all(&mut names);
            } else {
                different = new.name_changed(&old, &mut names);
            }
        }
        let since = node.since;
        if self.settled {
            let mut members = self.group.members();
            if different {
                members.moved(|scope| Kind::Node(String::new()).concerns(scope));
                members.changed(&Changes { services: names, ..Changes::default() });
            }
            if first {
                // What was on the node before this answer may have left it again.
                members.read_past(since);
            }
        }
        self.raise_floor();
        self.settle(false);
        Ok(moved)
    }

    /// A node is not there, and the answer that says so has no index: what was on it is read, and
    /// if the list of nodes has it still, or again, its query begins again.
    pub(super) fn node_gone(&mut self, name: &str) -> Move {
        let Some(node) = self.nodes.get_mut(name) else { return Move::Same };
        (node.failures, node.absent) = (0, node.absent + 1);
        if node.broad_query.has_baseline() {
            node.since = node.broad_query.index();
            node.broad_query.forget();
        }
        let mut names = BTreeSet::new();
        node.rows.take().unwrap_or_default().name_all(&mut names);
        if self.settled && !names.is_empty() {
            let members = self.group.members();
            members.moved(|scope| Kind::Node(String::new()).concerns(scope));
            members.changed(&Changes { services: names, ..Changes::default() });
        }
        self.raise_floor();
        Move::Unknown
    }

    /// The least index that the query of every node has passed.
    pub(super) fn raise_floor(&self) {
        let floor = self.nodes.values().map(|node| node.broad_query.index()).min();
        self.group.floor.set(Some(floor.unwrap_or_default()));
    }
}
