//! Tokens that change while a client lives: `TokenProvider`, and a file that is read again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{sync::watch, time::Instant};

use crate::{Error, Result, types::same_secret};

/// Source of a client's ACL token.
///
/// A token may change while the client lives. Requests that block in Consul at that moment
/// begin again with the new one, because what the old one could see may differ.
#[async_trait]
pub trait TokenProvider: std::fmt::Debug + Send + Sync + 'static {
    /// The token to send now; `None` sends none. It is asked for before each request.
    ///
    /// # Errors
    ///
    /// What keeps it from saying; requests fail with it.
    async fn token(&self) -> Result<Option<SecretString>>;

    /// Waits until [`token`](TokenProvider::token) is another one than `known`, also when it
    /// is so already. Never completes for a token that cannot change.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing. Many callers wait at once.
    async fn changed(&self, known: Option<&SecretString>);
}

/// A token that stays the same.
#[derive(Debug, Clone)]
pub(crate) struct StaticToken(Option<SecretString>);

impl StaticToken {
    pub(crate) fn new(token: Option<SecretString>) -> Result<Self> {
        token.as_ref().map(token_header).transpose()?;
        Ok(Self(token))
    }
}

#[async_trait]
impl TokenProvider for StaticToken {
    async fn token(&self) -> Result<Option<SecretString>> {
        Ok(self.0.clone())
    }

    async fn changed(&self, _known: Option<&SecretString>) {
        std::future::pending::<()>().await;
    }
}

/// A token that the program sets, and may set again at any time.
///
/// Cheap to clone; clones share the token.
///
/// ```
/// use std::sync::Arc;
///
/// use consul_watch::{Client, ClientConfig, client::SharedToken};
///
/// let token = SharedToken::new(Some("first".into()))?;
/// let mut config = ClientConfig::default();
/// config.token_provider = Some(Arc::new(token.clone()));
/// let client = Client::new(config)?;
/// token.set(Some("second".into()))?;
/// # Ok::<(), consul_watch::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SharedToken {
    sender: Arc<watch::Sender<Option<SecretString>>>,
}

impl SharedToken {
    /// Begins with this token; `None` sends none.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a token that cannot stand in a header.
    pub fn new(token: Option<SecretString>) -> Result<Self> {
        token.as_ref().map(token_header).transpose()?;
        Ok(Self { sender: Arc::new(watch::Sender::new(token)) })
    }

    /// Replaces the token.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a token that cannot stand in a header; the old one stays.
    pub fn set(&self, token: Option<SecretString>) -> Result<()> {
        token.as_ref().map(token_header).transpose()?;
        self.sender.send_replace(token);
        Ok(())
    }
}

#[async_trait]
impl TokenProvider for SharedToken {
    async fn token(&self) -> Result<Option<SecretString>> {
        Ok(self.sender.borrow().clone())
    }

    async fn changed(&self, known: Option<&SecretString>) {
        let mut receiver = self.sender.subscribe();
        // The sender lives as long as this provider.
        let _end = receiver.wait_for(|token| !same_secret(token.as_ref(), known)).await;
    }
}

/// A token that stands in a file, which is read again when it changes.
///
/// The file is looked at when a request is made and while requests block, at most once in
/// [`every`](FileToken::every). While it is missing, unreadable or empty, the token that was
/// read last stays.
///
/// Deviation: Consul's own client reads the file once.
#[derive(Debug)]
pub struct FileToken {
    path: PathBuf,
    every: Duration,
    /// The token, for those who wait for another one.
    token: watch::Sender<Option<SecretString>>,
    look: Mutex<Look>,
    /// Whoever holds it looks at the file for all that wait.
    lookout: tokio::sync::Mutex<()>,
}

/// State of the file as it was seen last.
#[derive(Debug)]
struct Look {
    stamp: Option<Stamp>,
    at: Option<Instant>,
    failing: bool,
}

/// Marks by which a change of the file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl FileToken {
    /// Reads the file. Until it holds a token, none is sent.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] when it cannot be read, or its token cannot stand in a header.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_or(path, None)
    }

    /// Reads the file. Until it holds a token, `fallback` is sent.
    pub(crate) fn open_or(
        path: impl Into<PathBuf>,
        fallback: Option<SecretString>,
    ) -> Result<Self> {
        let path = path.into();
        let unreadable = |error: io::Error| {
            let text = format!("Error loading token file {} : {error}", path.display());
            Error::config("token file", text)
        };
        let stamp = fs::metadata(&path).map(|file| Stamp::of(&file)).map_err(unreadable)?;
        let token = trimmed(&fs::read_to_string(&path).map_err(unreadable)?).or(fallback);
        token.as_ref().map(token_header).transpose()?;
        Ok(Self {
            path,
            every: Duration::from_secs(2),
            token: watch::Sender::new(token),
            look: Mutex::new(Look { stamp: Some(stamp), at: None, failing: false }),
            lookout: tokio::sync::Mutex::new(()),
        })
    }

    /// Looks at the file at this interval. Default 2 s.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.every = interval.max(Duration::from_millis(1));
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The token that was read last.
    pub(crate) fn current(&self) -> Option<SecretString> {
        self.token.borrow().clone()
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        // Nothing that holds the lock can leave it half changed.
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the file if it has changed.
    async fn refresh(&self) {
        let known = {
            let mut look = self.look();
            if look.at.is_some_and(|at| at.elapsed() < self.every) {
                return;
            }
            look.at = Some(Instant::now());
            look.stamp
        };
        let outcome = self.read_changed(known).await;
        let mut look = self.look();
        match outcome {
            Ok(stamp) => {
                look.stamp = Some(stamp);
                look.failing = false;
            }
            Err(error) => {
                if !std::mem::replace(&mut look.failing, true) {
                    let path = self.path.display();
                    tracing::warn!(%path, error = &*error, "token file unreadable; token stays");
                }
            }
        }
    }

    async fn read_changed(&self, known: Option<Stamp>) -> Result<Stamp, crate::BoxError> {
        let stamp = Stamp::of(&tokio::fs::metadata(&self.path).await?);
        if Some(stamp) != known {
            // Empty is what a file is for a moment while it is written.
            if let Some(token) = trimmed(&tokio::fs::read_to_string(&self.path).await?) {
                token_header(&token)?;
                self.token.send_if_modified(|current| {
                    let new = !same_secret(current.as_ref(), Some(&token));
                    *current = Some(token);
                    new
                });
            }
        }
        Ok(stamp)
    }
}

#[async_trait]
impl TokenProvider for FileToken {
    async fn token(&self) -> Result<Option<SecretString>> {
        self.refresh().await;
        Ok(self.current())
    }

    async fn changed(&self, known: Option<&SecretString>) {
        let other = |token: &Option<SecretString>| !same_secret(token.as_ref(), known);
        let mut receiver = self.token.subscribe();
        let lookout = async {
            let _sole = self.lookout.lock().await;
            loop {
                tokio::time::sleep(self.every).await;
                self.refresh().await;
            }
        };
        tokio::select! {
            _end = receiver.wait_for(other) => {}
            () = lookout => {}
        }
    }
}

impl Stamp {
    fn of(file: &fs::Metadata) -> Self {
        #[cfg(unix)]
        let inode = std::os::unix::fs::MetadataExt::ino(file);
        #[cfg(not(unix))]
        let inode = 0;
        Self { modified: file.modified().ok(), length: file.len(), inode }
    }
}

/// A file that is empty counts as no token.
fn trimmed(text: &str) -> Option<SecretString> {
    let text = text.trim();
    (!text.is_empty()).then(|| SecretString::from(text))
}

/// A watch of a client's token, which notices when it has become another one since
/// the watch began.
#[derive(Debug)]
pub(crate) struct TokenWatch {
    provider: Arc<dyn TokenProvider>,
    known: Option<SecretString>,
}

impl TokenWatch {
    pub(crate) async fn new(provider: Arc<dyn TokenProvider>) -> Self {
        // A provider that cannot say yet will have changed when it can.
        let known = provider.token().await.ok().flatten();
        Self { provider, known }
    }

    /// Waits until the token is another one than when this last completed.
    /// Dropping the future loses nothing.
    pub(crate) async fn changed(&mut self) {
        loop {
            self.provider.changed(self.known.as_ref()).await;
            match self.provider.token().await {
                Ok(token) if !same_secret(token.as_ref(), self.known.as_ref()) => {
                    self.known = token;
                    return;
                }
                // A provider that is wrong about changes must not make this loop hot.
                _ => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// Builds the header of a token.
///
/// # Errors
///
/// [`Error::Config`] for a token that cannot stand in a header.
pub(crate) fn token_header(token: &SecretString) -> Result<HeaderValue> {
    secret_header(token.expose_secret()).ok_or_else(|| {
        Error::config(
            "token",
            "it holds characters that cannot stand in a header, such as a line break",
        )
    })
}

/// Builds a header value that `Debug` does not show; `None` if the text cannot stand in a header.
pub(crate) fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests;
