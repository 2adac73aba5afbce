//! The person who decides on applies of a recording driver.

use std::collections::BTreeMap;

use crate::TaskInputs;

/// A person who decides, outside the engine, on the applies of one task.
#[derive(Debug, Default)]
pub(super) struct Person {
    asked: u64,
    /// The ticket and the answer of each apply that was asked for.
    answers: BTreeMap<String, Answer>,
    /// The ticket of what waits, and its inputs.
    waiting: Option<(String, TaskInputs)>,
}

/// The decisions of a person.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// Nothing yet.
    None,
    Confirmed(TaskInputs),
    Refused,
    /// Something newer was asked for before there was an answer.
    Superseded,
}

impl Person {
    /// Asks for something new; what still waits gives way.
    pub(super) fn ask(&mut self, inputs: TaskInputs) -> String {
        self.decide(|_| Answer::Superseded);
        self.asked += 1;
        let ticket = format!("ticket-{}", self.asked);
        self.answers.insert(ticket.clone(), Answer::None);
        self.waiting = Some((ticket.clone(), inputs));
        ticket
    }

    pub(super) fn answer(&self, ticket: &str) -> Option<Answer> {
        self.answers.get(ticket).cloned()
    }

    pub(super) fn confirm(&mut self) -> bool {
        self.decide(Answer::Confirmed)
    }

    pub(super) fn refuse(&mut self) -> bool {
        self.decide(|_| Answer::Refused)
    }

    fn decide(&mut self, answer: impl FnOnce(TaskInputs) -> Answer) -> bool {
        let Some((ticket, inputs)) = self.waiting.take() else { return false };
        self.answers.insert(ticket, answer(inputs));
        true
    }
}
