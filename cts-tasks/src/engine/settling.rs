//! Health reads that a run on new service names waits for.
//!
//! Consul lists a service as soon as its first instance is registered, and
//! before its checks pass. A task that runs on names and also takes instances
//! would run without those of the name that it runs for, and nothing would run
//! it again: instances that are no more than an input trigger nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::dependency::Dependency;

/// Longest time that a run waits for the instances of a name.
///
/// Source: Consul-Terraform-Sync 0.9 sleeps this long after every answer of the
/// catalog.
const SETTLE: Duration = Duration::from_secs(1);

/// Reads whose next answer is to agree with a change of names.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    expected: BTreeMap<Arc<Dependency>, Expected>,
    /// End of the wait of the next run.
    held_until: Option<Instant>,
}

#[derive(Debug)]
struct Expected {
    /// `true` for a name that came, `false` for one that went.
    instances: bool,
    until: Instant,
    /// A run has begun without it.
    missed: bool,
}

impl Settling {
    /// Expects instances of a read to come, or to go, within a second.
    pub(crate) fn expect(&mut self, dependency: Arc<Dependency>, instances: bool, now: Instant) {
        let until = now + SETTLE;
        // Not moved by names that come later: the wait has to end.
        self.held_until.get_or_insert(until);
        self.expected.insert(dependency, Expected { instances, until, missed: false });
    }

    /// Notes an answer; returns `true` if it was expected and a run has begun
    /// without it, so that it has to run the task once more.
    pub(crate) fn answered(
        &mut self,
        dependency: &Dependency,
        instances: bool,
        now: Instant,
    ) -> bool {
        let met =
            self.expected.get(dependency).is_some_and(|expected| expected.instances == instances);
        let expected = if met { self.expected.remove(dependency) } else { None };
        expected.is_some_and(|expected| expected.missed && now < expected.until)
    }

    /// Notes that a run takes what there is.
    pub(crate) fn run_begins(&mut self) {
        self.held_until = None;
        // They stay expected: their answers within the second call for one more run.
        self.expected.values_mut().for_each(|expected| expected.missed = true);
    }

    /// Returns until when a run has to wait, at most; `None` if it need not.
    ///
    /// Names that go on coming do not put off a run for longer than a second:
    /// instances that come after it within theirs run the task once more.
    pub(crate) fn holds(&mut self, now: Instant) -> Option<Instant> {
        self.expected.retain(|_, expected| now < expected.until);
        if self.expected.values().all(|expected| expected.missed) {
            self.held_until = None;
        }
        self.held_until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependency(name: &str) -> Arc<Dependency> {
        Arc::new(Dependency::Key {
            path: name.to_owned(),
            datacenter: String::new(),
            namespace: String::new(),
        })
    }

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_run_waits_until_what_is_expected_is_there_or_a_second_has_passed() {
        let (mut settling, start) = (Settling::default(), Instant::now());
        assert_eq!(settling.holds(start), None);
        settling.expect(dependency("a"), true, start);
        assert_eq!(settling.holds(start + ms(999)), Some(start + SETTLE));
        assert!(!settling.answered(&dependency("a"), false, start + ms(1)), "not yet");
        assert!(settling.holds(start + ms(2)).is_some());
        assert!(!settling.answered(&dependency("a"), true, start + ms(3)), "the run is to come");
        assert_eq!(settling.holds(start + ms(3)), None);
        settling.expect(dependency("a"), false, start + ms(4));
        assert_eq!(settling.holds(start + ms(1004)), None, "its second is over");
    }

    #[test]
    fn names_that_go_on_coming_do_not_put_off_a_run_and_lose_nothing() {
        let (mut settling, start) = (Settling::default(), Instant::now());
        settling.expect(dependency("a"), true, start);
        settling.expect(dependency("b"), true, start + ms(900));
        assert_eq!(settling.holds(start + ms(950)), Some(start + SETTLE));
        assert_eq!(settling.holds(start + SETTLE), None);
        settling.run_begins();
        settling.expect(dependency("c"), true, start + ms(1100));
        assert!(
            settling.answered(&dependency("b"), true, start + ms(1200)),
            "within its own second"
        );
        assert_eq!(settling.holds(start + ms(1200)), Some(start + ms(2100)));
    }
}
