//! The place in Consul's history that a blocking read goes on from.

/// Place of a watch in Consul's history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Position {
    /// Nothing seen yet, or the history is void: answer at once.
    #[default]
    Start,
    /// The index of the last answer; never 0.
    Index(u64),
    /// The content hash of the last answer.
    Hash(String),
}
