//! Cron expressions of scheduled tasks and of checks for drift.

use std::{fmt, str::FromStr};

use chrono::{DateTime, TimeZone};

/// A cron expression: when a scheduled task runs.
///
/// Five fields are minute, hour, day of month, month and day of week; six add
/// a year at the end; seven begin with seconds. `@hourly`, `@daily`,
/// `@weekly`, `@monthly`, `@yearly` and `@annually` stand for the usual ones.
/// When both days are restricted, either is enough.
///
/// Source: `hashicorp/cronexpr`; Consul-Terraform-Sync 0.9.0 `config/condition_schedule.go`.
#[derive(Debug, Clone)]
pub struct Cron {
    text: String,
    pattern: croner::Cron,
}

/// A text that is no cron expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidCron(String);

/// Names that may be written out; only their first letters are known below.
const FULL_NAMES: [(&str, &str); 19] = [
    ("SUNDAY", "SUN"),
    ("MONDAY", "MON"),
    ("TUESDAY", "TUE"),
    ("WEDNESDAY", "WED"),
    ("THURSDAY", "THU"),
    ("FRIDAY", "FRI"),
    ("SATURDAY", "SAT"),
    ("JANUARY", "JAN"),
    ("FEBRUARY", "FEB"),
    ("MARCH", "MAR"),
    ("APRIL", "APR"),
    ("MAY", "MAY"),
    ("JUNE", "JUN"),
    ("JULY", "JUL"),
    ("AUGUST", "AUG"),
    ("SEPTEMBER", "SEP"),
    ("OCTOBER", "OCT"),
    ("NOVEMBER", "NOV"),
    ("DECEMBER", "DEC"),
];

impl Cron {
    /// The expression, as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first time that matches and is later than `time`, in the time zone
    /// of `time`; `None` if there is none up to the year 2099.
    pub fn next_after<Z: TimeZone>(&self, time: &DateTime<Z>) -> Option<DateTime<Z>> {
        self.pattern.find_next_occurrence(time, false).ok()
    }
}

impl FromStr for Cron {
    type Err = InvalidCron;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut fields: Vec<String> =
            text.split_whitespace().map(str::to_ascii_uppercase).collect();
        if text.contains('+') {
            return Err(InvalidCron("\"+\" has no meaning in a cron expression".to_owned()));
        }
        for field in &mut fields {
            for (full, short) in FULL_NAMES {
                *field = field.replace(full, short);
            }
        }
        if fields.len() == 6 {
            fields.insert(0, "0".to_owned());
        }
        croner::parser::CronParser::new()
            .parse(&fields.join(" "))
            .map(|pattern| Self { text: text.to_owned(), pattern })
            .map_err(|error| InvalidCron(error.to_string()))
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;

    fn next(cron: &str, after: &str) -> Option<String> {
        let after: DateTime<Utc> = after.parse().unwrap();
        cron.parse::<Cron>().unwrap().next_after(&after).map(|time| time.to_rfc3339())
    }

    #[test]
    fn five_six_and_seven_fields_mean_what_upstream_reads() {
        let after = "2026-03-01T00:00:30Z";
        assert_eq!(next("* * * * *", after).unwrap(), "2026-03-01T00:01:00+00:00");
        assert_eq!(next("0 3 * * * 2027", after).unwrap(), "2027-01-01T03:00:00+00:00");
        assert_eq!(next("* * * * * * *", after).unwrap(), "2026-03-01T00:00:31+00:00");
        assert_eq!(next("0 0 * * monday", after).unwrap(), "2026-03-02T00:00:00+00:00");
        assert_eq!(next("0 0 L * *", after).unwrap(), "2026-03-31T00:00:00+00:00");
        assert_eq!(next("0 0 * * 5L", after).unwrap(), "2026-03-27T00:00:00+00:00");
        assert_eq!(next("0 0 * * 2#1", after).unwrap(), "2026-03-03T00:00:00+00:00");
        assert_eq!(next("@hourly", after).unwrap(), "2026-03-01T01:00:00+00:00");
        assert_eq!(next("0 0 13 * 5", after).unwrap(), "2026-03-06T00:00:00+00:00");
        assert_eq!(next("0 0 1 1 * 2020", after), None);
    }

    #[test]
    fn what_upstream_refuses_is_refused() {
        for text in
            ["", "invalid", "* * * *", "60 * * * *", "@reboot", "* * * * * * * *", "0 0 +1 * *"]
        {
            assert!(text.parse::<Cron>().is_err(), "{text}");
        }
    }
}
