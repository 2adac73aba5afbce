//! The purposes of a run, and what follows from each for its making.

/// Purpose of a run.
///
/// | Kind | Changes | Variables | Confirmed by |
/// | --- | --- | --- | --- |
/// | `Apply` | yes | of the workspace | the workspace's setting |
/// | `Plan` | once confirmed | of the workspace | the approval |
/// | `Inspect` | no (`plan-only`) | of the run | nobody |
/// | `Drift` | no (`plan-only`, `refresh-only`) | of the run | nobody |
/// | `Destroy` | yes (`is-destroy`) | of the workspace | the workspace's setting |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Applies what the inputs call for.
    Apply,
    /// Waits for confirmation, which may come later.
    Plan,
    /// Shows what would change.
    Inspect,
    /// Finds what changed outside.
    Drift,
    /// Destroys everything.
    Destroy,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Plan => "plan",
            Self::Inspect => "inspect",
            Self::Drift => "drift",
            Self::Destroy => "destroy",
        }
    }

    /// Returns `true` if the run changes nothing, and does not wait for others in the workspace.
    pub(super) fn is_speculative(self) -> bool {
        matches!(self, Self::Inspect | Self::Drift)
    }
}
