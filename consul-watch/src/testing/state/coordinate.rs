//! Network coordinates in the double.

use serde_json::{Value, json};

use super::{NODE, Refused, Seen, State};
use crate::types::{Coordinate, NodeCoordinate};

/// Dimensions of every coordinate of a datacenter.
const DIMENSIONS: usize = 8;

impl State {
    /// Places the server itself, as it does when it starts.
    pub(super) fn place_server(&mut self, index: u64) {
        let start = Coordinate {
            vec: vec![0.0; DIMENSIONS],
            error: 1.5,
            adjustment: 0.0,
            height: 0.000_01,
        };
        self.coordinates.all.insert(NODE.to_owned(), NodeCoordinate::new(NODE, start));
        self.coordinates.index = index;
    }

    /// Takes a node's place; nodes that are not known are passed over.
    /// Servers gather such updates for some seconds, which is left out here.
    pub(in crate::testing) fn coordinate_update(
        &mut self,
        new: NodeCoordinate,
    ) -> Result<(), Refused> {
        if new.coord.vec.len() != DIMENSIONS {
            return Err(Refused::new(500, "incompatible coordinate"));
        }
        let index = self.commit();
        let key = new.node.to_lowercase();
        if self.nodes.contains_key(&key) {
            self.coordinates.all.insert(key, new);
            self.coordinates.index = index;
        }
        Ok(())
    }

    pub(super) fn forget_coordinate(&mut self, node: &str, index: u64) {
        if self.coordinates.all.remove(node).is_some() {
            self.coordinates.index = index;
        }
    }

    /// The places of nodes whose names `sees` takes.
    pub(in crate::testing) fn coordinate_list(&self, sees: impl Fn(&str) -> bool) -> (Value, Seen) {
        let found = self.coordinates.all.values().filter(|place| sees(&place.node));
        (found.map(coordinate_json).collect(), Seen::by_index(self.coordinates.index))
    }

    pub(super) fn lower_coordinates(&mut self, lower: impl Fn(&mut u64)) {
        lower(&mut self.coordinates.index);
    }
}

fn coordinate_json(place: &NodeCoordinate) -> Value {
    json!({ "Node": place.node, "Segment": place.segment, "Coord": place.coord })
}
