//! The time of day, for timestamps and identifiers.

use std::{fmt, time::SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use ulid::Ulid;

use crate::pb::Timestamp;

/// Tells the time of day.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        Utc::now().into()
    }
}

/// The time in RFC 3339, to the second.
pub(crate) fn rfc3339(time: SystemTime) -> String {
    DateTime::<Utc>::from(time).to_rfc3339_opts(SecondsFormat::Secs, true)
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    time.into()
}

/// A new ULID with the given time part.
pub(crate) fn new_ulid(time: SystemTime) -> String {
    let millis = DateTime::<Utc>::from(time).timestamp_millis();
    Ulid::from_parts(u64::try_from(millis).unwrap_or(0), fastrand::u128(..)).to_string()
}

/// Returns `true` if a text is a ULID in its strict form: 26 characters of
/// Crockford's alphabet, of which the first is at most 7.
pub(crate) fn is_strict_ulid(text: &str) -> bool {
    const ALPHABET: &[u8] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let bytes = text.as_bytes();
    bytes.len() == 26
        && bytes.first().is_some_and(|first| *first <= b'7')
        && bytes.iter().all(|b| ALPHABET.contains(&b.to_ascii_uppercase()))
}

/// The milliseconds since 1970 in a ULID, if it is one.
pub(crate) fn ulid_millis(text: &str) -> Option<u64> {
    Ulid::from_string(text).ok().map(|ulid| ulid.timestamp_ms())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ulids_carry_their_time_and_differ() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        let (a, b) = (new_ulid(time), new_ulid(time));
        assert_ne!(a, b);
        assert!(is_strict_ulid(&a));
        assert_eq!(ulid_millis(&a), Some(1_700_000_000_123));
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn only_strict_ulids_pass() {
        for bad in ["", "bogus", "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU"] {
            assert!(!is_strict_ulid(bad), "{bad}");
        }
        assert!(is_strict_ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
    }
}
