//! `Refused`: what Consul answers in place of doing what it was asked.

/// Why a write was refused: the status and text that Consul answers.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::testing) struct Refused {
    pub(in crate::testing) status: u16,
    pub(in crate::testing) text: String,
}

impl Refused {
    pub(in crate::testing) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// Problems in the form in which an agent lists them.
pub(in crate::testing) fn listed(problems: &[String]) -> String {
    let lines = problems.iter().fold(String::new(), |text, problem| text + "\t* " + problem + "\n");
    let plural = if problems.len() == 1 { "error" } else { "errors" };
    format!("{} {plural} occurred:\n{lines}\n", problems.len())
}
