//! Network coordinates of nodes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::nullable;

/// Place of a node in the space of round-trip times.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Coordinate {
    /// The position, in seconds.
    #[serde(deserialize_with = "nullable")]
    pub vec: Vec<f64>,
    /// Uncertainty of the place.
    #[serde(default)]
    pub error: f64,
    /// A correction to distances, in seconds.
    #[serde(default)]
    pub adjustment: f64,
    /// Time that every path from the node takes besides, in seconds.
    #[serde(default)]
    pub height: f64,
}

impl Coordinate {
    /// The expected round-trip time between two nodes. Zero if the positions do not fit.
    ///
    /// Source: Serf 0.10 `coordinate/coordinate.go` (`DistanceTo`).
    pub fn distance(&self, other: &Self) -> Duration {
        if self.vec.len() != other.vec.len() {
            return Duration::ZERO;
        }
        let squares = self.vec.iter().zip(&other.vec).map(|(a, b)| (a - b) * (a - b));
        let plain = squares.sum::<f64>().sqrt() + self.height + other.height;
        let adjusted = plain + self.adjustment + other.adjustment;
        let seconds = if adjusted > 0.0 { adjusted } else { plain };
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

/// The coordinate of a node.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct NodeCoordinate {
    /// The node.
    pub node: String,
    /// Enterprise network segment.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub segment: String,
    /// Place of the node.
    pub coord: Coordinate,
}

impl NodeCoordinate {
    /// The coordinate of a node.
    pub fn new(node: impl Into<String>, coord: Coordinate) -> Self {
        Self { node: node.into(), segment: String::new(), coord }
    }
}

/// The coordinates of a datacenter's servers.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct DatacenterCoordinates {
    /// The datacenter.
    pub datacenter: String,
    /// The gossip pool, `wan` or an Enterprise area.
    #[serde(default, rename = "AreaID")]
    pub area_id: String,
    /// The datacenter's servers.
    #[serde(default, deserialize_with = "nullable")]
    pub coordinates: Vec<NodeCoordinate>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_round_trip_times() {
        let at = |x: f64, adjustment: f64| Coordinate {
            vec: vec![x, 0.0],
            adjustment,
            height: 0.001,
            ..Coordinate::default()
        };
        assert_eq!(at(0.0, 0.0).distance(&at(0.003, 0.0)), Duration::from_millis(5));
        assert_eq!(at(0.0, -1.0).distance(&at(0.003, 0.0)), Duration::from_millis(5));
        assert_eq!(at(0.0, 0.0).distance(&Coordinate::default()), Duration::ZERO);
        assert_eq!(at(f64::NAN, 0.0).distance(&at(0.0, 0.0)), Duration::ZERO);
    }
}
