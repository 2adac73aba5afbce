//! Delays that double.

use std::time::Duration;

/// `base` doubled for each failure so far, at most `max`.
pub(super) fn exponential(base: Duration, max: Duration, failures: u32) -> Duration {
    // Overflow means that the longest delay was passed long ago.
    let factor = 1_u32.checked_shl(failures);
    factor.and_then(|factor| base.checked_mul(factor)).map_or(max, |delay| delay.min(max))
}

/// A duration as Go prints it, e.g. `1h0m0s` or `5ms`.
pub(super) fn go_text(duration: Duration) -> String {
    let fraction = |value: f64, unit: &str| format!("{value}{unit}");
    if duration.is_zero() {
        return "0s".to_owned();
    }
    if duration < Duration::from_micros(1) {
        return format!("{}ns", duration.as_nanos());
    }
    if duration < Duration::from_millis(1) {
        return fraction(duration.as_secs_f64() * 1e6, "µs");
    }
    if duration < Duration::from_secs(1) {
        return fraction(duration.as_secs_f64() * 1e3, "ms");
    }
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
    let seconds = Duration::new(duration.as_secs() % 60, duration.subsec_nanos()).as_secs_f64();
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        let (base, max) = (Duration::from_millis(1), Duration::from_secs(1000));
        let millis: Vec<_> = (0..5).map(|n| exponential(base, max, n).as_millis()).collect();
        assert_eq!(millis, [1, 2, 4, 8, 16]);
        assert_eq!(exponential(base, max, 1000), max);
        let minute = Duration::from_mins(1);
        assert_eq!(exponential(minute, Duration::from_hours(1000), 2), minute * 4);
    }

    #[test]
    fn durations_print_like_those_of_go() {
        let texts = [
            (Duration::from_millis(5), "5ms"),
            (Duration::from_secs(5), "5s"),
            (Duration::from_secs(1000), "16m40s"),
            (Duration::from_hours(1), "1h0m0s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::ZERO, "0s"),
        ];
        for (duration, text) in texts {
            assert_eq!(go_text(duration), text);
        }
    }
}
