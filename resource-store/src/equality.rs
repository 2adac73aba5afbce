//! Comparisons that leave out what the service sets by itself.
//!
//! The generated types compare field by field with `==`; two missing parts are
//! equal, one missing part is not.
//!
//! Source: `internal/resource/equality.go`, Consul 1.21.

use crate::pb::Status;

/// Returns `true` if two statuses are equal apart from the time of writing:
/// generation, and conditions in order.
///
/// Compare so before a status is written: each write triggers an event for the
/// same resource.
pub fn equal_status(a: Option<&Status>, b: Option<&Status>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => {
            a.observed_generation == b.observed_generation && a.conditions == b.conditions
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pb::{Condition, Timestamp};

    #[test]
    fn the_time_of_writing_does_not_count() {
        let old = Status { observed_generation: "g".to_owned(), ..Status::default() };
        let new = Status { updated_at: Some(Timestamp { seconds: 1, nanos: 0 }), ..old.clone() };
        assert!(equal_status(Some(&old), Some(&new)) && old != new);
        let more = Status { conditions: vec![Condition::default()], ..old.clone() };
        assert!(!equal_status(Some(&old), Some(&more)));
        assert!(equal_status(None, None) && !equal_status(None, Some(&old)));
    }
}
