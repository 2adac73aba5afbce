//! The API's TLS with certificates that may be replaced while it runs.
//!
//! The files are looked at when a connection comes in, at most once in [`EVERY`]: a server that
//! nobody talks to does nothing. Connections that are open go on as they began.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::tls::{Unusable, acceptor, files_in};
use crate::config::ApiTls;

/// The shortest time between two looks at the files.
const EVERY: Duration = Duration::from_secs(1);

/// The certificates of a server, as they stand in the files of the `tls` block.
pub(super) struct Certificates {
    tls: ApiTls,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    /// The files as they were before `acceptor` was made of them, or could not be.
    seen: Vec<Stamp>,
    looked: Instant,
    /// The reason why the files cannot be used that was told last.
    problem: Option<String>,
}

/// Marks by which a change of a file shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp {
    path: PathBuf,
    /// Time of the change, length and number of the file; `None` if it cannot be looked at.
    state: Option<(Option<SystemTime>, u64, u64)>,
}

impl Stamp {
    fn of(path: &Path) -> Self {
        let state = fs::metadata(path).ok().map(|file| {
            let (length, number) = (file.len(), file.ino());
            (file.modified().ok(), length, number)
        });
        Self { path: path.to_owned(), state }
    }
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// The file that cannot be used.
    pub(super) fn open(tls: &ApiTls) -> Result<Self, Unusable> {
        // First the marks: a change during the reading is then seen at the next look.
        let seen = stamps(tls);
        let acceptor = acceptor(tls)?;
        let current = Current { acceptor, seen, looked: Instant::now(), problem: None };
        Ok(Self { tls: tls.clone(), current: Mutex::new(current) })
    }

    /// Returns what a new connection is accepted with: what the files hold now, or, while they
    /// hold nothing that can be used, what they held last.
    pub(super) async fn acceptor(self: &Arc<Self>) -> TlsAcceptor {
        if self.is_due() {
            let certificates = Arc::clone(self);
            match tokio::task::spawn_blocking(move || certificates.look()).await {
                Ok(Look::Nothing) => {}
                Ok(Look::Replaced) => {
                    tracing::info!(cert = %self.tls.cert.display(), "the API has new certificates");
                }
                Ok(Look::Unusable(problem)) => tracing::warn!(
                    problem,
                    "the new certificates of the API cannot be used; the old ones stay until \
                     certificate and key are readable and belong together"
                ),
                Err(_panic) => {
                    tracing::error!(
                        "reading the certificates of the API panicked; the old ones stay"
                    );
                }
            }
        }
        self.current().acceptor.clone()
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Nothing that holds the lock can leave it half changed.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` to one caller in each interval.
    fn is_due(&self) -> bool {
        let mut current = self.current();
        let due = current.looked.elapsed() >= EVERY;
        if due {
            current.looked = Instant::now();
        }
        due
    }

    fn look(&self) -> Look {
        let seen = stamps(&self.tls);
        {
            let current = self.current();
            // What could not be used is tried again: a right to read changes no mark.
            if current.seen == seen && current.problem.is_none() {
                return Look::Nothing;
            }
        }
        let read = acceptor(&self.tls);
        let mut current = self.current();
        current.seen = seen;
        match read {
            Ok(acceptor) => {
                current.acceptor = acceptor;
                current.problem = None;
                Look::Replaced
            }
            Err(problem) => {
                let problem = problem.to_string();
                let known = current.problem.replace(problem.clone());
                if known.as_ref() == Some(&problem) {
                    Look::Nothing
                } else {
                    Look::Unusable(problem)
                }
            }
        }
    }
}

/// News of a look at the files.
enum Look {
    Nothing,
    Replaced,
    /// The reason why they cannot be used, if it was not told yet.
    Unusable(String),
}

fn stamps(tls: &ApiTls) -> Vec<Stamp> {
    let mut stamps = vec![Stamp::of(&tls.cert), Stamp::of(&tls.key)];
    match (&tls.ca_cert, &tls.ca_path) {
        (Some(file), _) => stamps.push(Stamp::of(file)),
        (None, Some(folder)) => {
            let files = files_in(folder).unwrap_or_default();
            stamps.extend(files.iter().map(|file| Stamp::of(file)));
        }
        (None, None) => {}
    }
    stamps
}
