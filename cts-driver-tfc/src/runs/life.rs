//! The life of a run, as whoever waits for it follows it: what a look at the run leads to, and what is
//! done with the run when this process stops.
//!
//! | state | event | next state | action |
//! |---|---|---|---|
//! | queued | look | queued | look again as at queued |
//! | queued | behind | settled | return |
//! | planning | look | planning | look again as at planning |
//! | waiting | look | settled | return |
//! | waiting | passing | waiting | look again as at planning |
//! | applying | look | applying | look again as at applying |
//! | applied | look | ended | return |
//! | finished | look | ended | return |
//! | soft-failed | look | ended | return |
//! | failed | look | ended | return |
//! | queued | stop | ended | discard |
//! | planning | stop | ended | cancel |
//! | waiting | stop | ended | discard |
//! | applying | stop | applying | leave |
//! | applied | stop | applied | leave |
//! | finished | stop | finished | leave |
//! | soft-failed | stop | soft-failed | leave |
//! | failed | stop | failed | leave |
//!
//! The states are the [`Phase`]s of the platform's statuses. A wait that is for the end of the run
//! ([`Until::Ended`](super::Until)) looks again where it is `settled` only. When leadership is lost no
//! run is ended, whatever its state: it belongs to the next leader.
//!
//! Source: HCP Terraform documentation, run states and the runs API: `discard` for what waits, `cancel`
//! for what is at work.

use crate::types::Phase;

/// The findings of a look at a run, beside its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Nothing beside it.
    Look,
    /// A run of somebody else has the workspace and waits for a person.
    Behind,
    /// The run is applied by itself, and only passes through its state.
    Passing,
}

/// The action that a look leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterLook {
    /// Look again, at the pace of a run in this phase.
    LookAgain(Phase),
    /// The run goes no further before a person acts.
    Settled,
    /// The run is over.
    Ended,
}

/// The way to end a run when this process stops, or something newer takes its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By the call for a run that waits.
    Discard,
    /// By the call for a run that is at work.
    Cancel,
    /// Not at all: it changes infrastructure already, or is over.
    Leave,
}

/// Returns what a look at a run leads to.
#[expect(clippy::match_same_arms, reason = "one arm for each row of the table")]
pub(super) fn after_look(phase: Phase, event: Event) -> AfterLook {
    match (phase, event) {
        (Phase::Queued, Event::Behind) => AfterLook::Settled,
        (Phase::Queued, _) => AfterLook::LookAgain(Phase::Queued),
        (Phase::Planning, _) => AfterLook::LookAgain(Phase::Planning),
        // A state that only passes is looked at as soon as a run that goes on.
        (Phase::Waiting, Event::Passing) => AfterLook::LookAgain(Phase::Planning),
        (Phase::Waiting, _) => AfterLook::Settled,
        (Phase::Applying, _) => AfterLook::LookAgain(Phase::Applying),
        (Phase::Applied | Phase::Finished | Phase::SoftFailed | Phase::Failed, _) => {
            AfterLook::Ended
        }
    }
}

/// Returns how a run in this phase is ended.
pub(super) fn at_stop(phase: Phase) -> Ending {
    match phase {
        // The platform answers 409 to the other of the two calls.
        Phase::Queued | Phase::Waiting => Ending::Discard,
        Phase::Planning => Ending::Cancel,
        // To interrupt an apply leaves infrastructure and state apart.
        Phase::Applying | Phase::Applied | Phase::Finished | Phase::SoftFailed | Phase::Failed => {
            Ending::Leave
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PHASES: [(&str, Phase); 8] = [
        ("queued", Phase::Queued),
        ("planning", Phase::Planning),
        ("waiting", Phase::Waiting),
        ("applying", Phase::Applying),
        ("applied", Phase::Applied),
        ("finished", Phase::Finished),
        ("soft-failed", Phase::SoftFailed),
        ("failed", Phase::Failed),
    ];

    fn name(phase: Phase) -> &'static str {
        PHASES.iter().find(|(_name, other)| *other == phase).unwrap().0
    }

    /// Next state and action of the code, in the words of the table.
    fn row(phase: Phase, event: &str) -> (&'static str, String) {
        let event = match event {
            "stop" => {
                return match at_stop(phase) {
                    Ending::Discard => ("ended", "discard".to_owned()),
                    Ending::Cancel => ("ended", "cancel".to_owned()),
                    Ending::Leave => (name(phase), "leave".to_owned()),
                };
            }
            "look" => Event::Look,
            "behind" => Event::Behind,
            "passing" => Event::Passing,
            other => panic!("the table has an unknown event {other}"),
        };
        match after_look(phase, event) {
            AfterLook::LookAgain(pace) => (name(phase), format!("look again as at {}", name(pace))),
            AfterLook::Settled => ("settled", "return".to_owned()),
            AfterLook::Ended => ("ended", "return".to_owned()),
        }
    }

    #[test]
    fn the_code_does_what_the_table_says() {
        let mut rows = 0;
        for line in include_str!("life.rs").lines().filter_map(|line| line.strip_prefix("//! | ")) {
            let cells: Vec<&str> = line.trim_end_matches('|').split(" | ").map(str::trim).collect();
            let [state, event, next, action] = cells[..] else { panic!("{line}") };
            let Some((_name, phase)) = PHASES.iter().find(|(name, _)| *name == state) else {
                assert_eq!(state, "state", "an unknown state");
                continue;
            };
            assert_eq!(row(*phase, event), (next, action.to_owned()), "{line}");
            rows += 1;
        }
        // Each phase has a look and a stop, and two of them another event.
        assert_eq!(rows, 2 * PHASES.len() + 2);
    }

    /// The phases that a run may be in after this one, by itself or by a person.
    fn successors(phase: Phase) -> &'static [Phase] {
        use Phase::{Applied, Applying, Failed, Finished, Planning, Queued, SoftFailed, Waiting};
        match phase {
            Queued => &[Queued, Planning, Failed],
            Planning => &[Planning, Waiting, Applying, Finished, SoftFailed, Failed],
            Waiting => &[Waiting, Planning, Applying, Failed],
            Applying => &[Applying, Applied, Failed],
            Applied | Finished | SoftFailed | Failed => &[],
        }
    }

    proptest! {
        /// Walks through a run's life at the platform, looked at in each state, and stopped
        /// somewhere.
        #[test]
        fn a_wait_ends_with_its_run_and_never_breaks_an_apply(
            steps in proptest::collection::vec((0usize..8, 0usize..3), 1..60),
            stop_at in 0usize..60,
        ) {
            let mut phase = Phase::Queued;
            for (at, (choice, event)) in steps.into_iter().enumerate() {
                if at == stop_at {
                    let ended = at_stop(phase);
                    // What the platform accepts: it refuses the other call with 409.
                    let accepted = match ended {
                        Ending::Discard => matches!(phase, Phase::Queued | Phase::Waiting),
                        Ending::Cancel => phase == Phase::Planning,
                        Ending::Leave => phase == Phase::Applying || phase.is_final(),
                    };
                    prop_assert!(accepted, "{phase:?}: {ended:?}");
                    return Ok(());
                }
                let event = [Event::Look, Event::Behind, Event::Passing][event];
                match after_look(phase, event) {
                    AfterLook::Ended => {
                        prop_assert!(phase.is_final());
                        return Ok(());
                    }
                    AfterLook::Settled => {
                        prop_assert!(matches!(phase, Phase::Queued | Phase::Waiting));
                    }
                    AfterLook::LookAgain(pace) => {
                        prop_assert!(!phase.is_final(), "a run that is over is looked at for ever");
                        // A slow pace is for those that wait for others.
                        prop_assert!(pace == phase || pace == Phase::Planning);
                    }
                }
                let next = successors(phase);
                phase = next[choice % next.len()];
            }
        }
    }
}
