//! Signals of a container's first process: which are handled, and passed on to the child.

use std::{fmt, task::Poll};

use async_trait::async_trait;
use nix::sys::signal::Signal as Named;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::{Error, Result};

/// Number of a signal; real-time signals have no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SignalNumber(i32);

impl SignalNumber {
    /// `SIGINT`.
    pub const INT: Self = Self(Named::SIGINT as i32);
    /// `SIGTERM`.
    pub const TERM: Self = Self(Named::SIGTERM as i32);

    /// Wraps a number of the system's, such as `libc::SIGHUP`, unchecked until it is sent.
    pub const fn new(number: i32) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Display for SignalNumber {
    /// Writes the name, such as `SIGTERM`, or the number where there is none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Named::try_from(self.0) {
            Ok(named) => f.write_str(named.as_str()),
            Err(_unnamed) => write!(f, "signal {}", self.0),
        }
    }
}

/// A source of signals for an entrypoint.
#[async_trait]
pub trait Signals: Send {
    /// Waits for the next signal; never returns when there are no more.
    async fn next(&mut self) -> SignalNumber;
}

/// Signals of this process, apart from those that concern it alone.
///
/// Creating one takes over the handling of these signals for the whole process, so it is meant for
/// binaries.
#[derive(Debug)]
pub struct SystemSignals {
    streams: Vec<(SignalNumber, Stream)>,
}

/// Named signals that are passed on. `SIGCHLD` and `SIGURG` never are: the system sends them to
/// this process about itself.
///
/// Without a handler most of the others would end this process and orphan its child.
const FORWARDED: &[Named] = &[
    Named::SIGTERM,
    Named::SIGINT,
    Named::SIGQUIT,
    Named::SIGHUP,
    Named::SIGUSR1,
    Named::SIGUSR2,
    Named::SIGALRM,
    Named::SIGWINCH,
    Named::SIGPIPE,
    Named::SIGVTALRM,
    Named::SIGPROF,
    Named::SIGIO,
    #[cfg(target_os = "linux")]
    Named::SIGPWR,
    Named::SIGXCPU,
    Named::SIGXFSZ,
];

/// Real-time signals that programs may use. The C libraries keep up to three for themselves (glibc
/// 32 and 33, musl also 34).
#[cfg(target_os = "linux")]
const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
#[cfg(not(target_os = "linux"))]
const REAL_TIME: std::ops::RangeInclusive<i32> = 1..=0;

impl SystemSignals {
    /// Takes over the process's signals.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] when the kernel refuses a handler.
    pub fn new() -> Result<Self> {
        let mut streams = Vec::new();
        for number in FORWARDED.iter().map(|named| SignalNumber(*named as i32)) {
            streams.push((number, handled(number)?));
        }
        // A number that the C library keeps for itself cannot be handled, nor sent by anyone.
        let real_time = REAL_TIME.map(SignalNumber);
        streams.extend(real_time.filter_map(|number| Some((number, handled(number).ok()?))));
        Ok(Self { streams })
    }
}

fn handled(number: SignalNumber) -> Result<Stream> {
    signal(SignalKind::from_raw(number.get())).map_err(|error| Error::Command {
        command: number.to_string(),
        problem: format!("cannot be handled: {error}"),
    })
}

#[async_trait]
impl Signals for SystemSignals {
    async fn next(&mut self) -> SignalNumber {
        std::future::poll_fn(|context| {
            // In the order of the list, so that SIGTERM is not starved by a flood of another
            // signal.
            for (number, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*number);
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[async_trait]
impl Signals for tokio::sync::mpsc::Receiver<SignalNumber> {
    async fn next(&mut self) -> SignalNumber {
        match self.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
