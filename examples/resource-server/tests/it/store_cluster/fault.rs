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
    /// Each time that a node syncs its files takes longer.
    SlowDisk(usize),
    /// The same with the one that leads.
    SlowDiskOfLeader,
    /// The same with all nodes.
    SlowDisks,
    /// A node whose disk is slow is killed, and starts again.
    KillOnSlowDisk(usize),
    /// All nodes, whose disks are slow, are killed at once, and start again.
    KillAllOnSlowDisks,
    /// The clock of a node jumps to some time of yesterday, today or tomorrow,
    /// and goes on from there.
    ClockJump(usize),
}

/// Which faults make sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Possible {
    /// There is a network between the nodes.
    pub(super) network: bool,
    /// Disks can be slowed.
    pub(super) disks: bool,
    /// Clocks can be set.
    pub(super) clocks: bool,
}

impl Fault {
    /// One that is possible. Nodes end and stand still everywhere.
    pub(super) fn random(random: &mut fastrand::Rng, nodes: usize, possible: Possible) -> Self {
        let node = random.usize(..nodes);
        let mut all = vec![Self::Kill(node), Self::KillAll, Self::Pause(node), Self::Restarts];
        if possible.network {
            all.extend([
                Self::KillLeader,
                Self::Replace(node),
                Self::Isolate(node),
                Self::Mute(node),
                Self::Deaf(node),
                Self::Split(node.max(1)),
                Self::Slow(node),
            ]);
        }
        if possible.disks {
            all.extend([
                Self::SlowDisk(node),
                Self::SlowDiskOfLeader,
                Self::SlowDisks,
                Self::KillOnSlowDisk(node),
                Self::KillAllOnSlowDisks,
            ]);
        }
        if possible.clocks {
            all.push(Self::ClockJump(node));
        }
        all.get(random.usize(..all.len())).copied().unwrap_or(Self::Kill(node))
    }
}
