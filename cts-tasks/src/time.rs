//! Points in time as the HTTP API shows them.

use chrono::{DateTime, Local, SecondsFormat, Utc};
use serde::Serializer;

/// Writes a time as Go does: in the zone of this machine, with `Z` for UTC, and with
/// as many digits of a second as it has.
pub(crate) fn rfc3339<S: Serializer>(
    time: &DateTime<Local>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(time))
}

fn text(time: &DateTime<Local>) -> String {
    if time.offset().local_minus_utc() == 0 {
        return time.with_timezone(&Utc).to_rfc3339_opts(SecondsFormat::AutoSi, true);
    }
    time.to_rfc3339_opts(SecondsFormat::AutoSi, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_is_written_as_z() {
        let time = DateTime::parse_from_rfc3339("2026-11-23T05:00:00.25+00:00").unwrap();
        let local = time.with_timezone(&Local);
        let shown = text(&local);
        if local.offset().local_minus_utc() == 0 {
            assert_eq!(shown, "2026-11-23T05:00:00.250Z");
        }
        assert_eq!(DateTime::parse_from_rfc3339(&shown).unwrap(), time);
    }
}
