//! Durations of runs, as bars.

use std::time::Duration;

use super::show::fine;

/// Width of the longest bar, and what is drawn in.
const WIDTH: u32 = 420;
const HEIGHT: usize = 22;
const LEFT: u32 = 78;

/// A bar chart, for an inline `svg` element.
pub(super) struct Chart {
    pub(super) bars: Vec<Bar>,
    pub(super) height: usize,
    /// For who cannot see it.
    pub(super) description: String,
}

pub(super) struct Bar {
    pub(super) x: u32,
    pub(super) y: usize,
    pub(super) text_y: usize,
    pub(super) width: u32,
    pub(super) value_x: u32,
    pub(super) value: String,
    pub(super) label: String,
    pub(super) class: &'static str,
}

impl Chart {
    /// Draws runs, each with its label, its class and the time that it took.
    pub(super) fn of(runs: impl IntoIterator<Item = (String, &'static str, Duration)>) -> Self {
        let runs: Vec<_> = runs.into_iter().collect();
        let longest = runs.iter().map(|(.., took)| *took).max().unwrap_or_default();
        let longest = longest.max(Duration::from_millis(1)).as_secs_f64();
        let told: Vec<String> = runs
            .iter()
            .map(|(label, class, took)| format!("{label}: {}, {class}", fine(*took)))
            .collect();
        let bars = runs.into_iter().enumerate().map(|(row, (label, class, took))| {
            let part = took.as_secs_f64() / longest;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it lies between 0 and the width"
            )]
            let width = ((f64::from(WIDTH) * part) as u32).max(2);
            let y = row * HEIGHT;
            Bar {
                x: LEFT,
                y: y + 3,
                text_y: y + 15,
                width,
                value_x: LEFT + width + 8,
                value: fine(took),
                label,
                class,
            }
        });
        let bars: Vec<Bar> = bars.collect();
        let height = bars.len() * HEIGHT + 2;
        Self { bars, height, description: told.join("; ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_run_has_the_longest_bar() {
        let run = |millis: u64| (millis.to_string(), "successful", Duration::from_millis(millis));
        let chart = Chart::of([run(1_000), run(500), run(0)]);
        let widths: Vec<u32> = chart.bars.iter().map(|bar| bar.width).collect();
        assert_eq!(widths, [WIDTH, WIDTH / 2, 2]);
        assert!(chart.description.starts_with("1000: 1.0 s, successful; 500: 500 ms"));
        assert!(Chart::of([]).bars.is_empty());
        assert_eq!(Chart::of([run(0)]).bars[0].width, 2, "nothing is divided by zero");
    }
}
