//! The choice among the ways to follow the catalog, and the change from one to another.

use std::time::Duration;

use super::{NO_NODES, Runner, Which};
use crate::watch::broad_queries::{
    broad_query::{BroadQuery, Kind},
    catalog::Catalog,
    mode::{DUMP, Mode, NODES},
};

/// Most checks, or services, with which that is tried. An instance with its check takes 450 bytes
/// at least, so there is room for metadata, and for instances without a check.
const MOST_DUMPED: usize = 4_000;

impl Runner {
    /// Chooses how the catalog is followed, by the number of nodes.
    pub(super) fn decide(&mut self, unknown: bool) {
        if unknown && self.mode != Mode::Lists {
            return self.list_everything();
        }
        if !self.queries.get(NODES).is_some_and(BroadQuery::has_baseline) {
            return;
        }
        let nodes = self.listed.len();
        let allowed = self.started.elapsed() >= self.no_nodes_until;
        // Some room, so that a node more or less does not make all watches read again.
        let follows = matches!(self.mode, Mode::Undecided | Mode::Nodes);
        let asked = if follows { nodes } else { nodes + nodes / 4 };
        let fits = allowed && self.settings.slots.reserve_nodes(asked);
        match (self.mode, fits) {
            (Mode::Undecided | Mode::Lists | Mode::Dump, true) => self.follow_nodes(),
            (Mode::Undecided | Mode::Nodes, false) => self.list_everything(),
            (Mode::Lists | Mode::Dump, false) | (Mode::Nodes, true) => {}
        }
    }

    /// Begins again with a broad query of each node.
    pub(super) fn follow_nodes(&mut self) {
        self.start(Mode::Nodes);
        // What the lists left to read past an index is read when all nodes have been listed.
        self.group.floor.set(Some(0));
        self.update_nodes(self.listed.clone(), self.listed_at);
    }

    /// Begins again with lists of everything.
    pub(super) fn list_everything(&mut self) {
        self.settings.slots.reserve_nodes(0);
        self.start(Mode::Lists);
        self.group.floor.set(None);
        self.catalog.nodes(self.listed_at, true, self.listed.clone());
        for at in (0..self.queries.len()).filter(|at| ![NODES, DUMP].contains(at)) {
            self.ask(Which::Whole(at), Duration::ZERO);
        }
    }

    /// Begins again with one query of everything on all nodes.
    pub(super) fn follow_all_nodes(&mut self) {
        self.start(Mode::Dump);
        self.group.floor.set(Some(0));
        for at in [NODES, DUMP] {
            self.ask(Which::Whole(at), Duration::ZERO);
        }
    }

    pub(super) fn give_dump_up(&mut self) {
        self.no_dump_until = self.started.elapsed() + NO_NODES;
        if self.mode == Mode::Dump {
            self.list_everything();
            self.ask(Which::Whole(NODES), Duration::ZERO);
        }
    }

    /// Returns `true` if one query of everything would have short answers, by what is listed.
    pub(super) fn is_small(&self) -> bool {
        self.started.elapsed() >= self.no_dump_until
            && self.queries.len() > DUMP
            && self.catalog.check_count().max(self.names) <= MOST_DUMPED
    }

    pub(super) fn start(&mut self, mode: Mode) {
        tracing::debug!(?mode, nodes = self.listed.len(), "the catalog is followed in another way");
        // Whatever was known of the other way is dropped: indexes and rows of two ways are not
        // compared.
        self.mode = mode;
        self.nodes_served = false;
        self.settled = false;
        self.group.members().unsettle();
        self.catalog = Catalog::default();
        self.nodes.clear();
        self.dumped.clear();
        self.parked = None;
        self.listings.clear();
        // The list of nodes goes on; it was not asked again yet when this is decided.
        self.asks.clear();
        let others = self.queries.iter_mut().enumerate().filter(|(at, _query)| *at != NODES);
        for (_at, broad_query) in others {
            broad_query.forget();
        }
    }

    pub(super) fn give_nodes_up(&mut self, time: Duration) {
        self.no_nodes_until = self.started.elapsed() + time;
        if self.mode == Mode::Nodes {
            self.list_everything();
            self.ask(Which::Whole(NODES), Duration::ZERO);
        }
    }

    /// Lets all members read when each broad query has an answer to compare with.
    pub(super) fn settle(&mut self, unknown: bool) {
        let complete = match self.mode {
            Mode::Undecided => false,
            Mode::Lists => self.queries.iter().all(|broad_query| {
                broad_query.kind == Kind::Everything || broad_query.has_baseline()
            }),
            Mode::Dump => [NODES, DUMP]
                .iter()
                .all(|at| self.queries.get(*at).is_some_and(BroadQuery::has_baseline)),
            Mode::Nodes => {
                self.queries.get(NODES).is_some_and(BroadQuery::has_baseline)
                    && self.nodes.values().all(|node| node.broad_query.has_baseline())
            }
        };
        if complete && !self.settled && self.mode == Mode::Lists && self.is_small() {
            // Before all read for the first time, so that they do not do it twice.
            self.wanted = Some(Mode::Dump);
            return;
        }
        if (complete && !self.settled) || (unknown && self.mode != Mode::Undecided) {
            self.settled = complete;
            self.group.members().settle();
        }
    }
}
