//! `Fault`: failures that a test injects into the double's answers.

use std::{collections::VecDeque, time::Duration};

/// A fault that a [`TestConsul`](super::TestConsul) answers a request with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Answers this status and text.
    Status {
        /// The HTTP status.
        status: u16,
        /// The body.
        text: String,
    },
    /// Answers 200 with this body and the index that the read would have.
    Body {
        /// The body.
        text: String,
    },
    /// Cuts the connection.
    Drop,
    /// Answers, but only after this time.
    Delay(Duration),
    /// Takes the request and never answers.
    Hang,
}

impl Fault {
    /// Answers a status with a text.
    pub fn status(status: u16, text: impl Into<String>) -> Self {
        Self::Status { status, text: text.into() }
    }
}

/// The faults that requests run into, and how often.
#[derive(Debug, Default)]
pub(super) struct Faults {
    next: VecDeque<Fault>,
    always: Option<Fault>,
}

impl Faults {
    pub(super) fn push(&mut self, fault: &Fault, times: usize) {
        self.next.extend(std::iter::repeat_n(fault.clone(), times));
    }

    pub(super) fn set(&mut self, fault: Option<Fault>) {
        if fault.is_none() {
            self.next.clear();
        }
        self.always = fault;
    }

    pub(super) fn take(&mut self) -> Option<Fault> {
        self.next.pop_front().or_else(|| self.always.clone())
    }
}
