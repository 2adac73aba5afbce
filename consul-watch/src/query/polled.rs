//! `Polled`: a read that cannot block, repeated at an interval.

use std::{fmt, future::Future, time::Duration};

use crate::{
    Answer, Client, Query, Result,
    query::{Mode, Position, QueryKey},
};

/// A read that Consul cannot block on, repeated at an interval, give or take a tenth.
///
/// ```
/// use std::time::Duration;
///
/// use consul_watch::{Answer, QueryMeta, query::Polled};
///
/// let every = Duration::from_secs(15);
/// let members = Polled::new("agent.members", &(), every, |client| async move {
///     let members = client.agent_members(false).await?;
///     Ok(Answer::new(members, QueryMeta::default()))
/// });
/// ```
#[must_use]
pub struct Polled<F> {
    key: QueryKey,
    interval: Duration,
    read: F,
}

impl<F> Polled<F> {
    /// The read that `read` does, every `interval`. Equal kinds with equal parameters are the
    /// same read: everything that changes the result must be in the parameters.
    pub fn new<T, Fut>(kind: &str, parameters: &dyn fmt::Debug, interval: Duration, read: F) -> Self
    where
        F: Fn(Client) -> Fut,
        Fut: Future<Output = Result<Answer<T>>>,
    {
        let key = QueryKey::new(kind, &(parameters, interval));
        Self { key, interval, read }
    }
}

impl<F> fmt::Debug for Polled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Polled")
            .field("key", &self.key)
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

impl<F, T, Fut> Query for Polled<F>
where
    F: Fn(Client) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Answer<T>>> + Send,
    T: PartialEq + fmt::Debug + Send + Sync + 'static,
{
    type Value = T;

    fn key(&self) -> QueryKey {
        self.key.clone()
    }

    fn mode(&self) -> Mode {
        Mode::Polled(self.interval)
    }

    async fn fetch(
        &self,
        client: &Client,
        _position: &Position,
        _wait: Duration,
    ) -> Result<Answer<Self::Value>> {
        (self.read)(client.clone()).await
    }
}
