//! The lock on a state, as the tool reports it.

use chrono::{DateTime, Utc};

/// The heading under which every backend reports its lock.
const HEADING: &str = "Lock Info:";

/// A lock on the state of a workspace.
///
/// Source: Terraform 1.11.4 and `OpenTofu` 1.6.2, observed: the same lines in
/// every backend that shows its lock.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StateLock {
    /// The identifier that gives it back.
    pub id: String,
    /// User and host of its holder, such as `root@host`.
    pub who: String,
    /// The tool's name of the operation, such as `OperationTypeApply`.
    pub operation: String,
    /// The time at which it was taken, by the holder's clock.
    pub created: Option<DateTime<Utc>>,
}

impl StateLock {
    /// Reads the lines after the heading; `None` for a text without a lock.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (_, lines) = text.split_once(HEADING)?;
        let mut lock = Self::default();
        for line in lines.lines().skip(1) {
            let Some((key, value)) = line.split_once(':') else { break };
            let value = value.trim();
            match key.trim_start_matches(|c: char| c == '│' || c.is_whitespace()).trim_end() {
                "ID" => value.clone_into(&mut lock.id),
                "Who" => value.clone_into(&mut lock.who),
                "Operation" => value.clone_into(&mut lock.operation),
                "Created" => lock.created = created(value),
                _ => {}
            }
        }
        (!lock.id.is_empty()).then_some(lock)
    }
}

/// Reads a time as Go prints it, `2026-01-02 03:04:05.6 +0000 UTC`.
fn created(text: &str) -> Option<DateTime<Utc>> {
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    let time = DateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f %z").ok()?;
    Some(time.with_timezone(&Utc))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::StateLock;

    const REPORTED: &str = "Failed to unlock state: lock ID 'x' does not match\nLock Info:\n  ID:        \
        3ef9f174-6929-c5df-aa86-f253108c3850\n  Path:      states/env:/t/k\n  Operation: \
        OperationTypeApply\n  Who:       root@vm\n  Version:   1.11.4\n  Created:   2026-11-23 \
        04:56:39.35615551 +0000 UTC\n  Info:      \n";

    #[test]
    fn a_reported_lock_is_read() {
        let lock = StateLock::read(REPORTED).unwrap();
        assert_eq!(lock.id, "3ef9f174-6929-c5df-aa86-f253108c3850");
        assert_eq!((&*lock.who, &*lock.operation), ("root@vm", "OperationTypeApply"));
        assert_eq!(lock.created.unwrap().to_rfc3339(), "2026-11-23T04:56:39.356155510+00:00");
        assert_eq!(StateLock::read("Error: no network"), None);
        let framed = REPORTED.replace('\n', "\n│ ");
        assert_eq!(StateLock::read(&framed), Some(lock));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".*", lines in "(Lock Info:\n)?([ │]*(ID|Who|Created|x):? *.{0,40}\n){0,6}") {
            let _read = (StateLock::read(&text), StateLock::read(&lines));
        }
    }
}
