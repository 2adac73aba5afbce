//! What may happen to a cluster.

/// One fault. Nodes are given by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// A node is killed, and starts again.
    Kill(usize),
    /// The same with the one that leads.
    KillLeader,
    /// All nodes are killed at once, and start again.
    KillAll,
    /// A node stands still for a while.
    Pause(usize),
    /// One node after the other ends and starts again.
    Restarts,
    /// A node is removed; a new one, without data, joins in its place.
    Replace(usize),
    /// Nothing passes between a node and the others.
    Isolate(usize),
    /// What a node sends does not arrive.
    Mute(usize),
    /// What is sent to a node does not arrive.
    Deaf(usize),
    /// Nothing passes between the nodes before this one and the rest.
    Split(usize),
    /// What a node sends and gets takes longer.
    Slow(usize),
}

/// Which faults make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Possible {
    /// There is a network between the nodes.
    network: bool,
}

impl Possible {
    pub(super) const ALL: Self = Self { network: true };
    /// Nodes only end and stand still.
    pub(super) const PROCESSES: Self = Self { network: false };
}

impl Fault {
    pub(super) fn random(random: &mut fastrand::Rng, nodes: usize, possible: Possible) -> Self {
        let node = random.usize(..nodes);
        let processes = [Self::Kill(node), Self::KillAll, Self::Pause(node), Self::Restarts];
        let others = [
            Self::KillLeader,
            Self::Replace(node),
            Self::Isolate(node),
            Self::Mute(node),
            Self::Deaf(node),
            Self::Split(node.max(1)),
            Self::Slow(node),
        ];
        let mut all = processes.to_vec();
        if possible.network {
            all.extend(others);
        }
        all.get(random.usize(..all.len())).copied().unwrap_or(Self::Kill(node))
    }
}
