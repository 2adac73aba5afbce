//! The last check of the driver.

use std::time::Duration;

use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

use crate::{Engine, Finding, Verdict};

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time for which a check of the driver stands: it starts commands, and pages are fetched
/// every few seconds.
const STANDS: Duration = Duration::from_secs(30);

/// The last check of the driver. Nobody checks unless somebody looks.
#[derive(Debug, Default)]
pub(super) struct Checked(Mutex<Option<Check>>);

#[derive(Debug, Clone)]
pub(super) struct Check {
    pub(super) at: Instant,
    pub(super) took: Duration,
    pub(super) findings: Vec<Finding>,
}

impl Checked {
    /// The check of now, or one that is not old. Of several who look, one checks.
    pub(super) async fn get(&self, engine: &Engine) -> Check {
        let mut last = self.0.lock().await;
        if let Some(check) = last.as_ref().filter(|check| check.at.elapsed() < STANDS) {
            return check.clone();
        }
        let begun = Instant::now();
        let late = || {
            let text = "it did not answer within 5 s";
            vec![Finding::new("driver", Verdict::Unchecked, text)]
        };
        let findings =
            timeout(PATIENCE, engine.check_driver()).await.unwrap_or_else(|_late| late());
        let check = Check { at: Instant::now(), took: begun.elapsed(), findings };
        last.insert(check).clone()
    }
}
