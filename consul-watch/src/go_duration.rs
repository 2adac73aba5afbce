//! Durations as Go writes them, such as `1h30m` and `250ms`.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

const MICROSECOND: u128 = 1_000;
const MILLISECOND: u128 = 1_000_000;
const SECOND: u128 = 1_000_000_000;
const MINUTE: u128 = 60 * SECOND;
const HOUR: u128 = 60 * MINUTE;

/// A length of time written as Go writes it: `1m30s`, `1.5h`, `500ms`, `0`.
///
/// Consul's parameters and configuration files use this form. It is a sequence
/// of decimal numbers with a unit each (`ns`, `us`, `ms`, `s`, `m`, `h`); only
/// `0` needs no unit. Serde reads and writes the text.
///
/// ```
/// use std::time::Duration;
/// use consul_watch::GoDuration;
///
/// let wait: GoDuration = "1.5m".parse()?;
/// assert_eq!(wait.get(), Duration::from_secs(90));
/// assert_eq!(wait.to_string(), "1m30s");
/// # Ok::<(), consul_watch::ParseGoDurationError>(())
/// ```
///
/// Deviation: a sign is refused, because no setting of ours can be negative;
/// the longest value is Go's, about 292 years.
///
/// Source: Go 1.21 `time.ParseDuration`, `time.Duration.String`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(Duration);

impl GoDuration {
    /// The same length, to be written as Go writes it.
    pub const fn new(duration: Duration) -> Self {
        Self(duration)
    }

    /// The length.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self(duration)
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.0
    }
}

/// A text is not a duration as Go writes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {text:?}: {problem}; write it like \"30s\", \"1m30s\" or \"500ms\"")]
pub struct ParseGoDurationError {
    text: String,
    problem: &'static str,
}

impl FromStr for GoDuration {
    type Err = ParseGoDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).map_err(|problem| ParseGoDurationError {
            text: text.chars().take(64).collect(),
            problem,
        })
    }
}

fn parse(text: &str) -> Result<Duration, &'static str> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.starts_with('-') {
        return Err("it cannot be negative");
    }
    let mut rest = text;
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let (nanos, after) = parse_part(rest)?;
        total = total.saturating_add(nanos);
        if total > i64::MAX as u128 {
            return Err("it is too long");
        }
        rest = after;
    }
    Ok(from_nanos(total))
}

/// Reads one number with its unit and gives back what follows.
fn parse_part(text: &str) -> Result<(u128, &str), &'static str> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), split_digits);
    if whole.is_empty() && fraction.is_empty() {
        return Err("a number is expected");
    }
    let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at_checked(end).ok_or("a unit is expected")?;
    let unit = match unit {
        "ns" => 1,
        "us" | "\u{b5}s" | "\u{3bc}s" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        "" => return Err("a unit is missing"),
        _ => return Err("the unit is not one of ns, us, ms, s, m, h"),
    };
    let whole: u128 =
        if whole.is_empty() { 0 } else { whole.parse().map_err(|_overflow| "it is too long")? };
    let mut nanos = whole.saturating_mul(unit);
    let mut scale = unit;
    let mut below: u128 = 0;
    // Eighteen decimals are finer than a nanosecond of an hour.
    for digit in fraction.bytes().take(18) {
        below = below * 10 + u128::from(digit - b'0');
        scale *= 10;
    }
    nanos = nanos.saturating_add(below * unit / (scale / unit));
    Ok((nanos, rest))
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn from_nanos(nanos: u128) -> Duration {
    let seconds = u64::try_from(nanos / SECOND).unwrap_or(u64::MAX);
    let below = u32::try_from(nanos % SECOND).unwrap_or(0);
    Duration::new(seconds, below)
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < SECOND {
            let (unit, name) = if nanos < MICROSECOND {
                (1, "ns")
            } else if nanos < MILLISECOND {
                (MICROSECOND, "\u{b5}s")
            } else {
                (MILLISECOND, "ms")
            };
            return write_decimal(f, nanos, unit, name);
        }
        let (hours, minutes) = (nanos / HOUR, nanos / MINUTE % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        write_decimal(f, nanos % MINUTE, SECOND, "s")
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, nanos: u128, unit: u128, name: &str) -> fmt::Result {
    write!(f, "{}", nanos / unit)?;
    let mut below = nanos % unit;
    if below > 0 {
        f.write_str(".")?;
        let mut scale = unit;
        while below > 0 {
            scale /= 10;
            write!(f, "{}", below / scale)?;
            below %= scale;
        }
    }
    f.write_str(name)
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_go_are_read() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("5s", 5 * SECOND),
            ("1m30s", 90 * SECOND),
            ("1.5h", 90 * MINUTE),
            ("500ms", 500 * MILLISECOND),
            (".5s", 500 * MILLISECOND),
            ("1.s", SECOND),
            ("1h15m30.918273645s", 4_530_918_273_645),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("+5s", 0),
        ] {
            let got = text.parse::<GoDuration>();
            if text == "+5s" {
                assert!(got.is_err());
            } else {
                assert_eq!(got.map(|d| d.get().as_nanos()), Ok(nanos), "{text}");
            }
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for text in
            ["", "3", "-5s", ".s", "s", "1x", "1s 2s", "1..5s", "999999999h", "1e3s", "\u{661}s"]
        {
            let error = text.parse::<GoDuration>().unwrap_err().to_string();
            assert!(error.contains("write it like"), "{error}");
        }
    }

    #[test]
    fn values_are_written_as_go_writes_them() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1\u{b5}s"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (60 * SECOND, "1m0s"),
            (20 * SECOND, "20s"),
            (4 * MINUTE + 5_001_000_000, "4m5.001s"),
            (5 * HOUR + 6 * MINUTE + 7_001_000_000, "5h6m7.001s"),
            (HOUR, "1h0m0s"),
        ] {
            assert_eq!(GoDuration::new(from_nanos(nanos)).to_string(), text);
        }
    }

    #[test]
    fn serde_uses_the_text() {
        let read: GoDuration = serde_json::from_str("\"1m30s\"").unwrap();
        assert_eq!(read.get(), Duration::from_secs(90));
        assert_eq!(serde_json::to_string(&read).unwrap(), "\"1m30s\"");
        assert!(serde_json::from_str::<GoDuration>("5").is_err());
    }

    proptest! {
        #[test]
        fn any_value_survives_writing_and_reading(nanos in 0..i64::MAX as u64) {
            let value = GoDuration::new(Duration::from_nanos(nanos));
            prop_assert_eq!(value.to_string().parse::<GoDuration>().unwrap(), value);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in "[0-9.a-zµμ+-]{0,40}|\\PC{0,20}") {
            let _either = text.parse::<GoDuration>();
        }
    }
}
