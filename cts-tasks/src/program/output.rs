//! What commands say on the terminal, in upstream's form.

use std::io::{self, Write};

/// Lines are not longer than this.
///
/// Source: Consul-Terraform-Sync 0.9, `command/meta.go`.
const WIDTH: usize = 78;

/// The streams that commands write to, and read answers from.
pub(crate) struct Terminal<'a> {
    pub(crate) input: &'a mut (dyn io::BufRead + Send),
    pub(crate) output: &'a mut (dyn Write + Send),
    pub(crate) errors: &'a mut (dyn Write + Send),
    /// `true` if `errors` is a terminal that somebody watches.
    pub(crate) watched: bool,
}

/// The result of a question for approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Approval {
    /// The answer was `yes`.
    Given,
    /// The answer was another one.
    Refused,
    /// There was no answer: a job without a terminal must not take it for one.
    Unanswered,
}

impl Terminal<'_> {
    /// A step, after an arrow. It stays on one line, since scripts look for it.
    pub(crate) fn info(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "==> {text}")
    }

    /// More about the step, indented below it.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "{}", wrapped(text, "    "))
    }

    /// Text of others, as it is.
    pub(crate) fn raw(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.output, "{text}")
    }

    /// Shows what was written so far.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    pub(crate) fn blank(&mut self) -> io::Result<()> {
        writeln!(self.output)
    }

    /// A failure, after an arrow: what could not be done, then why.
    pub(crate) fn error(&mut self, what: &str, why: &str) -> io::Result<()> {
        writeln!(self.errors, "==> Error: {what}")?;
        if why.is_empty() {
            return Ok(());
        }
        self.explain(why)
    }

    /// More about a failure, indented below it.
    pub(crate) fn explain(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.errors, "{}", wrapped(text, "    "))
    }

    /// Something the operator should know.
    pub(crate) fn warn(&mut self, text: &str) -> io::Result<()> {
        let text = wrapped(&format!("Warning: {text}"), "    ");
        writeln!(self.errors, "==> {}", text.trim_start())
    }

    /// Prints the progress of a waiting command: indented on a terminal, else as a
    /// line of a log.
    pub(crate) fn progress(&mut self, task: &str, line: &str) -> io::Result<()> {
        if self.watched {
            return writeln!(self.errors, "    {line}");
        }
        let time = chrono::Local::now().format("%Y-%m-%dT%H:%M:%S%.3f%z");
        writeln!(self.errors, "{time} [INFO]  progress: task_name={task} {line}")
    }

    /// Asks for a `yes`; anything else is a no, and so is a line without text.
    pub(crate) fn approved(&mut self) -> io::Result<Approval> {
        self.blank()?;
        let all = "Only 'yes' will be accepted to approve, enter 'no' or leave blank to reject.";
        writeln!(self.output, "    {all}")?;
        self.blank()?;
        write!(self.output, "Enter a value: ")?;
        self.output.flush()?;
        let mut answer = String::new();
        let read = self.input.read_line(&mut answer)?;
        self.blank()?;
        if read == 0 {
            self.blank()?;
            self.error(
                "unable to read the answer",
                "Standard input has ended, so nobody can approve. Without a terminal use \
                 -auto-approve.",
            )?;
            return Ok(Approval::Unanswered);
        }
        match answer.trim_end_matches(['\r', '\n']) {
            "yes" => Ok(Approval::Given),
            _ => Ok(Approval::Refused),
        }
    }
}

/// `text` with `indent` before each line, broken between words where a line
/// would be too long. A word that is longer than a line stays whole.
pub(crate) fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        // What is indented by hand stays so, and a point of a list goes on below its text.
        let text = line.trim_start();
        let mut own = " ".repeat(line.len() - text.len());
        let mut current = String::new();
        for word in text.split_whitespace() {
            let used = indent.len() + own.len() + current.chars().count();
            if !current.is_empty() && used + 1 + word.chars().count() > WIDTH {
                lines.push(format!("{indent}{own}{current}"));
                if current.starts_with("- ") {
                    own.push_str("  ");
                }
                current.clear();
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(if current.is_empty() { current } else { format!("{indent}{own}{current}") });
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_at_78_columns_between_words() {
        let text = wrapped(&"word ".repeat(40), "    ");
        for line in text.lines() {
            assert!(line.len() <= 78 && line.starts_with("    word"), "{line:?}");
        }
        assert_eq!(text.split_whitespace().count(), 40);
        let word = "x".repeat(100);
        assert_eq!(wrapped(&word, "  "), format!("  {word}"));
    }

    #[test]
    fn only_yes_is_a_yes() {
        for (answer, approved) in [
            ("yes\n", Approval::Given),
            ("yes", Approval::Given),
            ("yes\r\n", Approval::Given),
            ("y\n", Approval::Refused),
            ("Yes\n", Approval::Refused),
            ("no\n", Approval::Refused),
            ("\n", Approval::Refused),
            ("", Approval::Unanswered),
            (" yes\n", Approval::Refused),
        ] {
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            let mut input = answer.as_bytes();
            let mut terminal = Terminal {
                input: &mut input,
                output: &mut output,
                errors: &mut errors,
                watched: false,
            };
            assert_eq!(terminal.approved().unwrap(), approved, "{answer:?}");
            let said = String::from_utf8(output).unwrap();
            assert!(said.contains("Only 'yes' will be accepted to approve"), "{said}");
            assert!(said.contains("Enter a value: "), "{said}");
        }
    }

    #[test]
    fn steps_have_an_arrow_and_what_follows_is_indented() {
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut input = &b""[..];
        let mut terminal =
            Terminal { input: &mut input, output: &mut output, errors: &mut errors, watched: true };
        terminal.info("Waiting").unwrap();
        terminal.say("more").unwrap();
        terminal.error("unable", "because").unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), "==> Waiting\n    more\n");
        assert_eq!(String::from_utf8(errors).unwrap(), "==> Error: unable\n    because\n");
    }

    #[test]
    fn progress_is_a_line_of_a_log_where_nobody_watches() {
        for watched in [true, false] {
            let (mut output, mut errors) = (Vec::new(), Vec::new());
            let mut input = &b""[..];
            let mut terminal =
                Terminal { input: &mut input, output: &mut output, errors: &mut errors, watched };
            terminal.progress("web", "create x: creating").unwrap();
            let text = String::from_utf8(errors).unwrap();
            if watched {
                assert_eq!(text, "    create x: creating\n");
            } else {
                assert!(text.ends_with("[INFO]  progress: task_name=web create x: creating\n"));
            }
            assert!(output.is_empty());
        }
    }
}
