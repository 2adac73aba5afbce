//! The context of a driver's calls: stop, permit, progress and notes.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Permit, Stop, permit::Single};

/// The context of every call of a driver: stop, permit, progress and notes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunContext {
    /// Says when to end, and why.
    pub stop: Stop,
    /// Says whether this process may act.
    pub permit: Arc<dyn Permit>,
    /// Receiver of progress lines.
    pub progress: Arc<dyn Progress>,
    /// Collector of lines that belong into the event of the run.
    pub notes: Notes,
}

impl Default for RunContext {
    fn default() -> Self {
        Self {
            stop: Stop::new(),
            permit: Arc::new(Single),
            progress: Arc::new(Silent),
            notes: Notes::default(),
        }
    }
}

/// Lines that a driver adds to the event of a run, such as estimated costs and the outcomes
/// of policies. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    /// The most lines of one event, and the most characters of one line: stores keep
    /// several events of each task.
    pub const MOST: (usize, usize) = (50, 500);

    /// Replaces the notes of an earlier try of the same run. What is beyond
    /// [`Notes::MOST`] is left out; lines must hold no secrets.
    pub fn set(&self, lines: Vec<String>) {
        let (most, longest) = Self::MOST;
        let lines = lines.into_iter().take(most);
        let lines = lines.map(|line| line.chars().take(longest).collect()).collect();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = lines;
    }

    /// Returns the lines.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl RunContext {
    /// A context with this stop, in which a single process may always act.
    pub fn new(stop: Stop) -> Self {
        Self { stop, ..Self::default() }
    }

    /// Replaces the permit.
    #[must_use]
    pub fn with_permit(mut self, permit: Arc<dyn Permit>) -> Self {
        self.permit = permit;
        self
    }

    /// Replaces the sink of progress.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.progress = progress;
        self
    }
}

/// Takes what a driver tells about its work while it goes on.
pub trait Progress: fmt::Debug + Send + Sync + 'static {
    /// Reports one line for a person, without secrets.
    fn report(&self, line: &str);

    /// Returns `false` while nobody would see a line, so that a driver can leave out work
    /// that is done for the report only, such as fetching a log from elsewhere.
    fn is_heard(&self) -> bool {
        true
    }
}

/// Takes no notice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn report(&self, _line: &str) {}

    fn is_heard(&self) -> bool {
        false
    }
}
