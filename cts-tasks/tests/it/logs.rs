//! What a test logs.

use std::{cell::RefCell, io, sync::Once};

use tracing::Level;

thread_local! {
    /// What this thread logs, while somebody wants it.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Takes the log lines of this thread for as long as it lives.
pub(crate) struct Log(());

impl Log {
    /// One subscriber serves all threads: with one for each thread, a thread
    /// without one may settle for all that a line is of no interest.
    pub(crate) fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(Level::DEBUG)
                .with_ansi(false)
                .without_time()
                .with_writer(|| ThisThread)
                .init();
        });
        LINES.set(Some(Vec::new()));
        Self(())
    }

    /// The lines that hold this text.
    #[expect(clippy::unused_self, reason = "lines are taken only while this lives")]
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let bytes = LINES.with_borrow(|lines| lines.clone().unwrap_or_default());
        let all = String::from_utf8(bytes).unwrap();
        all.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
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
