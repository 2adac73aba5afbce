//! Durations as Go writes them: `1m30s`.

/// The units of a duration, in nanoseconds.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The nanoseconds of a duration, or none if it is malformed, or longer than
/// Go's, which end at 292 years.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| !c.is_ascii_digit() && c != '.');
        let (_, nanoseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total = total.checked_add(amount(number, *nanoseconds)?)?;
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn split(text: &str, part: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !part(c)).unwrap_or(text.len()))
}

/// `number` units, of which a fraction may be given; what is below a nanosecond
/// is cut off.
fn amount(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut total = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        // A unit has at most 13 digits, so further ones count for nothing.
        total = total.checked_add(place.checked_mul(i128::from(digit.to_digit(10)?))?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        for (text, nanoseconds) in [
            ("1m30s", 90_000_000_000),
            ("-1.5h", -5_400_000_000_000),
            ("+300ms", 300_000_000),
            ("2us3ns", 2_003),
            ("1µs", 1_000),
            (".5s", 500_000_000),
            ("0", 0),
            ("0.1234567891s", 123_456_789),
        ] {
            assert_eq!(parse(text), Some(nanoseconds), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "-", "5", "s", "1 s", "1x", ".s", "1.2.3s", "99999999h", "1m30"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
