//! Looking for what the contract rules out.

use std::collections::{BTreeMap, HashMap};

use super::{Action, History, Operation, Seen, WatchLog};

/// A violation of the contract, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

type Result<T = ()> = std::result::Result<T, Violation>;

fn violation<T>(text: String) -> Result<T> {
    Err(Violation(text))
}

/// The states of one name in the order in which they came; at first nothing is
/// stored.
struct Timeline<'a> {
    name: &'a str,
    states: Vec<State<'a>>,
    /// The place of each version.
    places: HashMap<&'a str, usize>,
}

/// A state and the operation that led to it; none at the start.
struct State<'a> {
    version: Option<&'a str>,
    cause: Option<&'a Operation>,
}

impl History {
    /// Looks for anything that the contract of a backend rules out.
    ///
    /// # Errors
    ///
    /// The first violation that is found.
    pub fn check(&self) -> Result {
        let mut by_name: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            by_name.entry(&operation.name).or_default().push(operation);
        }
        let mut timelines = HashMap::new();
        for (name, operations) in by_name {
            let timeline = Timeline::of(name, &operations)?;
            timeline.check_real_time(&operations)?;
            timelines.insert(name, timeline);
        }
        for watch in &self.watches {
            check_watch(watch, &timelines)?;
        }
        check_same_order(&self.watches)
    }
}

/// The version that a change left.
fn left_by(operation: &Operation) -> Option<&str> {
    match &operation.action {
        Action::Change { left, .. } => left.as_deref(),
        Action::Refused { .. } | Action::Read(_) => None,
    }
}

/// The changes from a creation to the delete, or to the last one.
fn incarnation<'a>(
    creation: &'a Operation,
    next: &mut HashMap<&str, &'a Operation>,
) -> Vec<&'a Operation> {
    let mut changes = vec![creation];
    while let Some(change) =
        changes.last().and_then(|last| left_by(last)).and_then(|v| next.remove(v))
    {
        changes.push(change);
    }
    changes
}

impl<'a> Timeline<'a> {
    /// Puts the changes of a name in the one order that their versions allow.
    fn of(name: &'a str, operations: &[&'a Operation]) -> Result<Self> {
        let mut creations = Vec::new();
        let mut next: HashMap<&str, &Operation> = HashMap::new();
        for operation in operations {
            match &operation.action {
                Action::Change { expected: None, .. } => creations.push(*operation),
                Action::Change { expected: Some(expected), .. } => {
                    if next.insert(expected, operation).is_some() {
                        return violation(format!(
                            "{name}: two changes of version {expected} succeeded"
                        ));
                    }
                }
                Action::Refused { .. } | Action::Read(_) => {}
            }
        }
        let mut incarnations: Vec<_> =
            creations.into_iter().map(|c| incarnation(c, &mut next)).collect();
        // One task makes all deletes of a name, so these tell the order.
        incarnations.sort_by_key(|changes| match changes.last() {
            Some(last) if left_by(last).is_none() => last.began,
            _ => u64::MAX,
        });
        let mut line = Self { name, states: Vec::new(), places: HashMap::new() };
        line.push(State { version: None, cause: None })?;
        for change in incarnations.into_iter().flatten() {
            line.push(State { version: left_by(change), cause: Some(change) })?;
        }
        if let Some(version) = next.keys().next() {
            return violation(format!(
                "{name}: a change expected version {version}, which nobody wrote"
            ));
        }
        line.check_incarnations()?;
        Ok(line)
    }

    fn push(&mut self, state: State<'a>) -> Result {
        let place = self.states.len();
        if let Some(version) = state.version
            && self.places.insert(version, place).is_some()
        {
            return violation(format!("{}: version {version} was given twice", self.name));
        }
        self.states.push(state);
        Ok(())
    }

    /// A creation needs that nothing was there.
    fn check_incarnations(&self) -> Result {
        for pair in self.states.windows(2) {
            let [before, after] = pair else { continue };
            let expected_nothing = matches!(
                after.cause.map(|cause| &cause.action),
                Some(Action::Change { expected: None, .. })
            );
            if let Some(version) = before.version.filter(|_| expected_nothing) {
                return violation(format!(
                    "{}: created while version {version} was there",
                    self.name
                ));
            }
        }
        Ok(())
    }

    /// The places where a state may have been seen.
    fn places_of(&self, seen: &Seen) -> Result<Vec<usize>> {
        match seen {
            Some(version) => match self.places.get(version.as_str()) {
                Some(place) => Ok(vec![*place]),
                None => {
                    violation(format!("{}: saw version {version}, which nobody wrote", self.name))
                }
            },
            None => Ok((0..self.states.len()).filter(|i| self.version_at(*i).is_none()).collect()),
        }
    }

    fn version_at(&self, place: usize) -> Option<&str> {
        self.states.get(place).and_then(|state| state.version)
    }

    /// When a state began to be possible, and when it ceased to be.
    fn span(&self, place: usize) -> (u64, u64) {
        let cause = |place: usize| self.states.get(place).and_then(|state| state.cause);
        (cause(place).map_or(0, |op| op.began), cause(place + 1).map_or(u64::MAX, |op| op.ended))
    }

    /// Each read and change fits between what ended before it and what began
    /// after it.
    fn check_real_time(&self, operations: &[&Operation]) -> Result {
        for operation in operations {
            match &operation.action {
                Action::Change { .. } => {}
                Action::Read(seen) => self.check_read(operation, seen)?,
                Action::Refused { expected } => self.check_refused(operation, expected)?,
            }
        }
        self.check_changes()?;
        self.check_reads_do_not_go_back(operations)
    }

    fn check_read(&self, operation: &Operation, seen: &Seen) -> Result {
        let fits = |place: usize| {
            let (from, to) = self.span(place);
            from < operation.ended && operation.began < to
        };
        if self.places_of(seen)?.into_iter().any(fits) {
            return Ok(());
        }
        violation(format!("{}: a read gave {seen:?} outside of its time", self.name))
    }

    /// A change is not refused while what it expected is there all the time.
    fn check_refused(&self, operation: &Operation, expected: &Seen) -> Result {
        let throughout = |place: usize| {
            let began = self.states.get(place).and_then(|s| s.cause).map_or(0, |op| op.ended);
            let ended =
                self.states.get(place + 1).and_then(|s| s.cause).map_or(u64::MAX, |op| op.began);
            began < operation.began && operation.ended < ended
        };
        let places = match expected {
            // Versions that were made up are rightly refused.
            Some(version) if !self.places.contains_key(version.as_str()) => Vec::new(),
            other => self.places_of(other)?,
        };
        if places.into_iter().any(throughout) {
            return violation(format!("{}: refused although {expected:?} was there", self.name));
        }
        Ok(())
    }

    /// No change ended before one that stands earlier in the line began.
    fn check_changes(&self) -> Result {
        let mut latest_begin = 0;
        for cause in self.states.iter().filter_map(|state| state.cause) {
            if cause.ended < latest_begin {
                return violation(format!("{}: changes took place against their order", self.name));
            }
            latest_begin = latest_begin.max(cause.began);
        }
        Ok(())
    }

    /// A read that begins after another ended is not older. Reads of nothing
    /// are left out: their place is not certain.
    fn check_reads_do_not_go_back(&self, operations: &[&Operation]) -> Result {
        let mut reads = Vec::new();
        for operation in operations {
            if let Action::Read(seen @ Some(_)) = &operation.action
                && let Some(place) = self.places_of(seen)?.first()
            {
                reads.push((operation, *place));
            }
        }
        let mut by_end = reads.clone();
        by_end.sort_by_key(|(operation, _)| operation.ended);
        reads.sort_by_key(|(operation, _)| operation.began);
        let mut ended = by_end.into_iter().peekable();
        let mut highest = 0;
        for (operation, place) in reads {
            while let Some((_, done)) = ended.next_if(|(other, _)| other.ended < operation.began) {
                highest = highest.max(done);
            }
            if place < highest {
                return violation(format!("{}: a read went back", self.name));
            }
        }
        Ok(())
    }
}

/// A watch sees each state of a name after the one before, from its snapshot to
/// the last, and what it saw can be read.
fn check_watch(watch: &WatchLog, timelines: &HashMap<&str, Timeline<'_>>) -> Result {
    let mut at: HashMap<&str, usize> = HashMap::new();
    for (name, version) in &watch.snapshot {
        let line = line_of(timelines, name)?;
        let place = line.places_of(&Some(version.clone()))?;
        at.insert(name, place.first().copied().unwrap_or_default());
    }
    for event in &watch.events {
        let line = line_of(timelines, &event.name)?;
        let version =
            line.places_of(&Some(event.version.clone()))?.first().copied().unwrap_or_default();
        let place = if event.deleted { version + 1 } else { version };
        if event.deleted && (line.version_at(place).is_some() || place >= line.states.len()) {
            return violation(format!("{}: a watch saw a delete that nobody made", event.name));
        }
        match at.insert(&event.name, place) {
            Some(before) if place != before + 1 => {
                let word = if place > before { "missed" } else { "repeated" };
                return violation(format!("{}: a watch {word} an event", event.name));
            }
            // Not in the snapshot: nothing was there, so this is a creation.
            None if event.deleted || line.version_at(place - 1).is_some() => {
                return violation(format!("{}: a watch missed an event", event.name));
            }
            _ => {}
        }
        if let Some(seen) = &event.read_after
            && !line.places_of(seen)?.into_iter().any(|read| read >= place)
        {
            return violation(format!("{}: a read after an event was older", event.name));
        }
    }
    if watch.complete { check_complete(&at, timelines) } else { Ok(()) }
}

fn check_complete(at: &HashMap<&str, usize>, timelines: &HashMap<&str, Timeline<'_>>) -> Result {
    for (name, line) in timelines {
        let last = line.states.len() - 1;
        let seen = at.get(name).copied();
        let absent_all_along = seen.is_none() && line.version_at(last).is_none();
        if seen != Some(last) && !absent_all_along {
            return violation(format!("{name}: a watch missed the last event"));
        }
    }
    Ok(())
}

fn line_of<'a, 'b>(
    timelines: &'b HashMap<&'a str, Timeline<'a>>,
    name: &str,
) -> Result<&'b Timeline<'a>> {
    timelines.get(name).ok_or_else(|| Violation(format!("{name}: a watch saw what nobody wrote")))
}

/// Watches of one query see all names in one order.
fn check_same_order(watches: &[WatchLog]) -> Result {
    let mut order: HashMap<(&str, bool), usize> = HashMap::new();
    let Some(longest) = watches.iter().max_by_key(|watch| watch.events.len()) else {
        return Ok(());
    };
    for (place, event) in longest.events.iter().enumerate() {
        order.insert((&event.version, event.deleted), place);
    }
    for watch in watches {
        let places =
            watch.events.iter().filter_map(|e| order.get(&(e.version.as_str(), e.deleted)));
        if !places.is_sorted() {
            return violation("two watches saw events in different orders".to_owned());
        }
    }
    Ok(())
}
