use async_trait::async_trait;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::{Error, Result};

/// Signals that this process gets.
#[async_trait]
pub trait Signals: Send {
    /// The next signal; never returns when there are no more.
    async fn next(&mut self) -> Signal;
}

/// The signals of this process, apart from those that belong to it alone.
///
/// Making one takes over the handling of these signals for the whole process, so it is for
/// binaries.
#[derive(Debug)]
pub struct SystemSignals {
    streams: Vec<(Signal, Stream)>,
}

/// Makes the kind of a signal.
type Kind = fn() -> SignalKind;

/// What is passed on: what operators and ECS send. `SIGCHLD` and `SIGURG` never are.
const FORWARDED: &[(Signal, Kind)] = &[
    (Signal::SIGTERM, SignalKind::terminate),
    (Signal::SIGINT, SignalKind::interrupt),
    (Signal::SIGQUIT, SignalKind::quit),
    (Signal::SIGHUP, SignalKind::hangup),
    (Signal::SIGUSR1, SignalKind::user_defined1),
    (Signal::SIGUSR2, SignalKind::user_defined2),
    (Signal::SIGALRM, SignalKind::alarm),
    (Signal::SIGWINCH, SignalKind::window_change),
];

impl SystemSignals {
    /// Takes over the process's signals.
    ///
    /// # Errors
    ///
    /// [`Error::Command`] when the system refuses.
    pub fn new() -> Result<Self> {
        let streams = FORWARDED.iter().map(|(number, kind)| {
            signal(kind()).map(|stream| (*number, stream)).map_err(|error| Error::Command {
                command: number.to_string(),
                problem: format!("cannot be handled: {error}"),
            })
        });
        Ok(Self { streams: streams.collect::<Result<_>>()? })
    }
}

#[async_trait]
impl Signals for SystemSignals {
    async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (number, stream) in &mut self.streams {
                if let std::task::Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

#[async_trait]
impl Signals for tokio::sync::mpsc::Receiver<Signal> {
    async fn next(&mut self) -> Signal {
        match self.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
