//! Sessions of browsers in which somebody gave the token.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;
use uuid::Uuid;

/// Sessions at once. One more ends the one that was used longest ago.
const MOST: usize = 256;

/// Time after which a session ends in any case.
pub(super) const LIFE: Duration = Duration::from_hours(12);

/// Time after which one that nobody uses ends. A page that is open uses it.
const IDLE: Duration = Duration::from_hours(1);

type Hash = [u8; 32];

/// Everything that is known of who has logged in. It holds no token and no id of a session,
/// only their hashes.
pub(crate) struct Sessions {
    open: Mutex<HashMap<Hash, Session>>,
    /// The form token where there are no sessions, because the API takes no token.
    anonymous: SecretString,
}

struct Session {
    /// Of the token that was given: another one ends the session.
    token: Hash,
    form: SecretString,
    begun: Instant,
    used: Instant,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { open: Mutex::default(), anonymous: random() }
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("open", &self.open().len()).finish_non_exhaustive()
    }
}

impl Sessions {
    fn open(&self) -> MutexGuard<'_, HashMap<Hash, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session for who gave this token, and returns its id.
    pub(super) fn begin(&self, token: &SecretString) -> SecretString {
        let (id, now) = (random(), Instant::now());
        let mut open = self.open();
        open.retain(|_id, session| session.is_alive(now));
        if open.len() >= MOST {
            let oldest = open.iter().min_by_key(|(_id, session)| session.used);
            if let Some(oldest) = oldest.map(|(id, _session)| *id) {
                open.remove(&oldest);
            }
        }
        let session = Session { token: hash(token), form: random(), begun: now, used: now };
        open.insert(hash(&id), session);
        id
    }

    /// Returns the form token of a session that is alive and was opened with this token.
    ///
    /// The id is looked up by its hash, so how long that takes tells nothing of other ids.
    pub(super) fn find(&self, id: &SecretString, token: &SecretString) -> Option<SecretString> {
        let (id, now) = (hash(id), Instant::now());
        let mut open = self.open();
        let session = open.get_mut(&id)?;
        if !session.is_alive(now) || !bool::from(session.token.ct_eq(&hash(token))) {
            open.remove(&id);
            return None;
        }
        session.used = now;
        Some(session.form.clone())
    }

    pub(super) fn end(&self, id: &SecretString) {
        self.open().remove(&hash(id));
    }

    pub(super) fn anonymous(&self) -> SecretString {
        self.anonymous.clone()
    }
}

impl Session {
    fn is_alive(&self, now: Instant) -> bool {
        now.duration_since(self.begun) < LIFE && now.duration_since(self.used) < IDLE
    }
}

/// A form token that nobody has.
pub(super) fn unguessable() -> SecretString {
    random()
}

/// 244 random bits of the system, as hexadecimal text.
fn random() -> SecretString {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()).into()
}

fn hash(secret: &SecretString) -> Hash {
    Sha256::digest(secret.expose_secret().as_bytes()).into()
}

/// Compares two secrets in a time that tells nothing, not even their length.
pub(super) fn same(one: &SecretString, other: &SecretString) -> bool {
    hash(one).ct_eq(&hash(other)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_session_ends_unused_in_time_and_with_another_token() {
        let (sessions, token) = (Sessions::default(), SecretString::from("t"));
        let id = sessions.begin(&token);
        let form = sessions.find(&id, &token).unwrap();
        assert!(same(&form, &sessions.find(&id, &token).unwrap()));
        assert!(sessions.find(&random(), &token).is_none());
        for _ in 0..11 {
            tokio::time::advance(Duration::from_mins(59)).await;
            assert!(sessions.find(&id, &token).is_some());
        }
        tokio::time::advance(IDLE).await;
        assert!(sessions.find(&id, &token).is_none(), "nobody used it for an hour");
        let id = sessions.begin(&token);
        assert!(sessions.find(&id, &SecretString::from("u")).is_none());
        assert!(sessions.find(&id, &token).is_none(), "it ended with the token");
        let id = sessions.begin(&token);
        for _ in 0..30 {
            tokio::time::advance(IDLE / 2).await;
            drop(sessions.find(&id, &token));
        }
        assert!(sessions.find(&id, &token).is_none(), "it is older than half a day");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_sessions_is_bounded() {
        let (sessions, token) = (Sessions::default(), SecretString::from("t"));
        let first = sessions.begin(&token);
        let second = sessions.begin(&token);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(sessions.find(&first, &token).is_some());
        for _ in 0..MOST - 1 {
            sessions.begin(&token);
        }
        assert_eq!(sessions.open().len(), MOST);
        assert!(sessions.find(&second, &token).is_none(), "it was used longest ago");
        assert!(sessions.find(&first, &token).is_some());
        let shown = format!("{sessions:?}");
        assert_eq!(shown, "Sessions { open: 256, .. }");
    }
}
