//! Times as Consul writes them.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

/// Go's zero time, 1 January of year 1: what Consul writes for "never".
const GO_ZERO: Duration = Duration::from_hours(719_162 * 24);

/// Reads an RFC 3339 time; missing, `null`, empty and Go's zero time are none.
pub(super) fn read<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SystemTime>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let time = chrono::DateTime::parse_from_rfc3339(&text).map_err(D::Error::custom)?;
    let time = SystemTime::from(time);
    Ok((SystemTime::UNIX_EPOCH.checked_sub(GO_ZERO) != Some(time)).then_some(time))
}

/// Writes an RFC 3339 time.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(super) fn write<S: Serializer>(
    time: &Option<SystemTime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => {
            let time = chrono::DateTime::<chrono::Utc>::from(*time);
            serializer.serialize_str(&time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true))
        }
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, serde::Serialize)]
    struct Holder {
        #[serde(default, deserialize_with = "read", serialize_with = "write")]
        at: Option<SystemTime>,
    }

    #[test]
    fn times_are_read_and_written_and_gos_zero_is_never() {
        let read = |text: &str| serde_json::from_str::<Holder>(text).map(|holder| holder.at);
        for never in ["{}", r#"{"at":null}"#, r#"{"at":""}"#, r#"{"at":"0001-01-01T00:00:00Z"}"#] {
            assert_eq!(read(never).unwrap(), None, "{never}");
        }
        let at = read(r#"{"at":"1970-01-01T01:00:00.5+01:00"}"#).unwrap();
        assert_eq!(at, Some(SystemTime::UNIX_EPOCH + Duration::from_millis(500)));
        let text = serde_json::to_string(&Holder { at }).unwrap();
        assert_eq!(text, r#"{"at":"1970-01-01T00:00:00.500Z"}"#);
        assert!(read(r#"{"at":"yesterday"}"#).is_err());
    }
}
