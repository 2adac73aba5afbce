//! Histories in which the outcome of some operations is unknown.
//!
//! Who changes a resource while servers die may get no answer. So each attempt
//! to change marks what it writes; whoever sees the mark later knows that the
//! attempt took effect. [`settle`] turns attempts and sightings into the
//! operations that [`History::check`](super::History::check) takes.

use std::collections::{BTreeMap, HashMap};

use super::{Action, Operation, Seen, Violation};

/// An attempt to change a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The name. All deletes of one name are attempted by one task, one after
    /// the other.
    pub name: String,
    /// Mark that tells the resource of this write from all others; nothing for a
    /// delete.
    pub mark: Option<String>,
    /// The version that it expects; none for a creation.
    pub expected: Seen,
    /// When it began.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
    /// Answer to the attempt.
    pub answer: Answer,
}

/// The answers to an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It left this: a version, or nothing.
    Done(Seen),
    /// The expected version is not the stored one: nothing was done.
    Refused,
    /// It may have taken effect, or do so later.
    Unknown,
}

/// A version that someone saw, and the mark that it carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sighting {
    /// The name.
    pub name: String,
    /// The version.
    pub version: String,
    /// The mark.
    pub mark: String,
}

/// Decides the outcome of all attempts, given what everyone saw and what is stored
/// in the end, which must have been read of every name.
///
/// # Errors
///
/// If something was seen that no attempt can have left: two resources with one
/// version, one mark with two versions, or the mark of an attempt that was
/// refused.
pub fn settle(
    attempts: Vec<Attempt>,
    sightings: &[Sighting],
    last: &BTreeMap<String, Seen>,
) -> Result<Vec<Operation>, Violation> {
    let versions = versions_of_marks(sightings)?;
    let mut operations = Vec::with_capacity(attempts.len());
    let mut deletes = Vec::new();
    for attempt in attempts {
        match &attempt.mark {
            Some(mark) => {
                let seen = versions.get(&(attempt.name.as_str(), mark.as_str())).copied();
                operations.extend(settle_write(attempt, seen)?);
            }
            None if attempt.answer == Answer::Unknown => deletes.push(attempt),
            None => operations.push(known(attempt)),
        }
    }
    settle_deletes(&mut operations, deletes, last);
    Ok(operations)
}

fn versions_of_marks(sightings: &[Sighting]) -> Result<HashMap<(&str, &str), &str>, Violation> {
    let mut versions: HashMap<(&str, &str), &str> = HashMap::new();
    let mut marks: HashMap<(&str, &str), &str> = HashMap::new();
    for Sighting { name, version, mark } in sightings {
        let other = *versions.entry((name, mark)).or_insert(version);
        if other != version {
            return Err(Violation(format!(
                "{name}: one write was seen as version {other} and as {version}"
            )));
        }
        let other = *marks.entry((name, version)).or_insert(mark);
        if other != mark {
            return Err(Violation(format!("{name}: version {version} was seen of two writes")));
        }
    }
    Ok(versions)
}

fn settle_write(attempt: Attempt, seen: Option<&str>) -> Result<Option<Operation>, Violation> {
    let name = &attempt.name;
    match (&attempt.answer, seen) {
        (Answer::Refused, Some(version)) => Err(Violation(format!(
            "{name}: a write was refused, and took effect as version {version}"
        ))),
        (Answer::Done(left), Some(version)) if left.as_deref() != Some(version) => {
            Err(Violation(format!("{name}: a write left {left:?}, and was seen as {version}")))
        }
        (Answer::Unknown, None) => Ok(None),
        (Answer::Unknown, Some(version)) => {
            let left = Some(version.to_owned());
            Ok(Some(late(attempt, left)))
        }
        (Answer::Done(_) | Answer::Refused, _) => Ok(Some(known(attempt))),
    }
}

fn known(attempt: Attempt) -> Operation {
    let Attempt { name, expected, began, ended, answer, .. } = attempt;
    let action = match answer {
        Answer::Done(left) => Action::Change { expected, left },
        Answer::Refused | Answer::Unknown => Action::Refused { expected },
    };
    Operation { name, began, ended, action }
}

/// A change that took effect at some time after it began.
fn late(attempt: Attempt, left: Seen) -> Operation {
    let Attempt { name, expected, began, .. } = attempt;
    Operation { name, began, ended: u64::MAX, action: Action::Change { expected, left } }
}

/// A delete of unknown outcome took effect if what it expected was changed by
/// nobody and is gone in the end. Where another attempt at the same delete was
/// answered, it may have found what the first one left: it began with that.
fn settle_deletes(
    operations: &mut Vec<Operation>,
    deletes: Vec<Attempt>,
    last: &BTreeMap<String, Seen>,
) {
    let version_of = |operation: &Operation| match &operation.action {
        Action::Change { expected: Some(expected), .. } => {
            Some((operation.name.clone(), expected.clone()))
        }
        _ => None,
    };
    let followed: Vec<_> = operations.iter().map(version_of).collect();
    let mut followed: HashMap<_, usize> = followed
        .into_iter()
        .enumerate()
        .filter_map(|(place, version)| Some((version?, place)))
        .collect();
    for delete in deletes {
        let Some(version) = delete.expected.clone() else { continue };
        let stored = last.get(&delete.name).is_some_and(|seen| seen.as_ref() == Some(&version));
        let place = followed.get(&(delete.name.clone(), version.clone())).copied();
        match place.and_then(|place| operations.get_mut(place)) {
            Some(Operation { began, action: Action::Change { left: None, .. }, .. }) => {
                *began = delete.began.min(*began);
            }
            None if !stored => {
                followed.insert((delete.name.clone(), version), operations.len());
                operations.push(late(delete, None));
            }
            Some(_) | None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(mark: &str, expected: Option<&str>, answer: Answer) -> Attempt {
        Attempt {
            name: "x".to_owned(),
            mark: Some(mark.to_owned()),
            expected: expected.map(str::to_owned),
            began: 10,
            ended: 11,
            answer,
        }
    }

    fn seen(version: &str, mark: &str) -> Sighting {
        Sighting { name: "x".to_owned(), version: version.to_owned(), mark: mark.to_owned() }
    }

    fn done(version: &str) -> Answer {
        Answer::Done(Some(version.to_owned()))
    }

    fn last(version: Option<&str>) -> BTreeMap<String, Seen> {
        BTreeMap::from([("x".to_owned(), version.map(str::to_owned))])
    }

    #[test]
    fn what_was_seen_took_effect_and_the_rest_did_not() {
        let attempts = vec![
            write("a", None, done("1")),
            write("b", Some("1"), Answer::Unknown),
            write("c", Some("1"), Answer::Unknown),
            write("d", Some("1"), Answer::Refused),
        ];
        let operations = settle(attempts, &[seen("2", "b")], &last(Some("2"))).unwrap();
        let actions: Vec<_> = operations.iter().map(|o| (&o.action, o.ended)).collect();
        let change = |expected: Option<&str>, left: &str| Action::Change {
            expected: expected.map(str::to_owned),
            left: Some(left.to_owned()),
        };
        assert_eq!(
            actions,
            [
                (&change(None, "1"), 11),
                (&change(Some("1"), "2"), u64::MAX),
                (&Action::Refused { expected: Some("1".to_owned()) }, 11),
            ]
        );
    }

    #[test]
    fn a_delete_took_effect_if_nothing_else_explains_the_end() {
        let delete = || Attempt { mark: None, ..write("", Some("1"), Answer::Unknown) };
        let created = write("a", None, done("1"));
        let count = |attempts: Vec<Attempt>, end: Option<&str>| {
            settle(attempts, &[], &last(end)).unwrap().len()
        };
        assert_eq!(count(vec![created.clone(), delete()], None), 2);
        assert_eq!(count(vec![created.clone(), delete(), delete()], None), 2);
        assert_eq!(count(vec![created.clone(), delete()], Some("1")), 1);
        let changed = write("b", Some("1"), done("2"));
        assert_eq!(count(vec![created.clone(), changed, delete()], Some("2")), 2);

        let again = Attempt { began: 20, ended: 21, answer: Answer::Done(None), ..delete() };
        let operations = settle(vec![created, delete(), again], &[], &last(None)).unwrap();
        assert_eq!((operations[1].began, operations[1].ended), (10, 21), "either may have done it");
    }

    #[test]
    fn planted_contradictions_are_found() {
        let check = |attempt: Attempt, sightings: &[Sighting], text: &str| {
            let violation = settle(vec![attempt], sightings, &last(None)).unwrap_err();
            assert!(violation.0.contains(text), "{violation}");
        };
        check(write("a", None, Answer::Refused), &[seen("1", "a")], "was refused, and took effect");
        check(write("a", None, done("1")), &[seen("2", "a")], "and was seen as 2");
        check(write("a", None, done("1")), &[seen("1", "a"), seen("2", "a")], "one write was seen");
        check(write("a", None, done("1")), &[seen("1", "a"), seen("1", "b")], "of two writes");
    }
}
