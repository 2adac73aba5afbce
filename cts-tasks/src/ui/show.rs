//! Times and durations as pages show them.

use std::time::Duration;

use chrono::{DateTime, Local, TimeDelta};

/// A point in time, for a `time` element.
pub(super) struct Moment {
    /// As machines read it.
    pub(super) machine: String,
    /// Date and time.
    pub(super) full: String,
    /// Distance from now.
    pub(super) distance: String,
}

impl Moment {
    pub(super) fn of(time: DateTime<Local>, now: DateTime<Local>) -> Self {
        Self {
            machine: time.to_rfc3339(),
            full: time.format("%Y-%m-%d %H:%M:%S").to_string(),
            distance: distance(now - time),
        }
    }
}

fn distance(ago: TimeDelta) -> String {
    match ago.to_std() {
        Ok(ago) if ago < Duration::from_secs(1) => "just now".to_owned(),
        Ok(ago) => format!("{} ago", coarse(ago)),
        Err(_later) => format!("in {}", coarse((-ago).to_std().unwrap_or_default())),
    }
}

/// A duration in its largest unit, rounded down.
pub(super) fn coarse(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A duration with what is worth knowing of it.
pub(super) fn fine(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_millis() {
        0..1_000 => format!("{} ms", duration.as_millis()),
        1_000..60_000 => format!("{:.1} s", duration.as_secs_f64()),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// The time between two points in time; none if the clock went back.
pub(super) fn between(from: DateTime<Local>, to: DateTime<Local>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_the_unit_that_fits() {
        let shown = |millis| fine(Duration::from_millis(millis));
        assert_eq!(
            [0, 999, 1_040, 59_949, 61_000, 3_725_000].map(shown),
            ["0 ms", "999 ms", "1.0 s", "59.9 s", "1 min 1 s", "1 h 2 min"]
        );
        let shown = |seconds| coarse(Duration::from_secs(seconds));
        assert_eq!(
            [0, 59, 119, 3_600, 172_800].map(shown),
            ["0 s", "59 s", "1 min", "1 h", "2 days"]
        );
    }

    #[test]
    fn distances_lie_before_and_behind() {
        let shown = |millis| distance(TimeDelta::milliseconds(millis));
        assert_eq!([0, 12_000, -12_000].map(shown), ["just now", "12 s ago", "in 12 s"]);
    }
}
