//! What a test logs.

use std::{cell::RefCell, io, sync::Once};

thread_local! {
    /// Lines that this thread logs, while a test collects them.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Takes what this thread logs, at every level, for as long as it lives.
///
/// A thread has one at a time. What other threads log is not seen, so a test
/// that spawns tasks needs a runtime of one thread (as `#[tokio::test]` has).
///
/// The first one installs a subscriber for the whole process, which has to be
/// the only one: were there one for each thread, a thread without one could
/// settle for all others that a line is of no interest.
#[derive(Debug)]
pub struct Log(());

impl Log {
    /// Begins to take lines.
    ///
    /// # Panics
    ///
    /// When the process has another subscriber already.
    pub fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::TRACE)
                .with_ansi(false)
                .without_time()
                .with_writer(|| ThisThread)
                .init();
        });
        LINES.set(Some(Vec::new()));
        Self(())
    }

    /// Everything so far: a line for each event, with its level, target and fields.
    pub fn text(&self) -> String {
        LINES.with_borrow(|lines| {
            String::from_utf8_lossy(lines.as_deref().unwrap_or_default()).into_owned()
        })
    }

    /// The lines that hold this text.
    pub fn with(&self, text: &str) -> Vec<String> {
        self.text().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LINES.set(None);
    }
}

struct ThisThread;

impl io::Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| {
            if let Some(lines) = lines {
                lines.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_of_its_life_are_taken() {
        let log = Log::start();
        tracing::trace!(answer = 42, "first");
        std::thread::spawn(|| tracing::error!("elsewhere")).join().unwrap();
        assert_eq!(log.with("first").len(), 1);
        assert!(log.text().contains("answer=42"), "{}", log.text());
        assert_eq!(log.with("elsewhere"), Vec::<String>::new());
        drop(log);
        tracing::error!("between");
        let log = Log::start();
        assert_eq!(log.text(), "");
    }
}
