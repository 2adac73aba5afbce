//! A client for tests: writes and cleans up, asserts, and waits.

use std::{collections::BTreeSet, sync::Mutex, time::Duration};

use crate::{
    client::ResourceClient,
    code::{Code, RpcError},
    pb::{DeleteRequest, Id, Resource},
};

/// Time that [`TestClient`] waits for something to come true, by default.
const TIMEOUT: Duration = Duration::from_secs(7);
/// Interval at which it looks.
const INTERVAL: Duration = Duration::from_millis(25);

/// An expectation of a test that did not come true.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unexpected(String);

/// A client for tests over any other, through which it is used.
///
/// It remembers what it wrote, for [`TestClient::clean_up`].
#[derive(Debug)]
pub struct TestClient<C> {
    client: C,
    timeout: Duration,
    rng: Mutex<Option<fastrand::Rng>>,
    written: Mutex<Vec<Id>>,
}

impl<C: ResourceClient> TestClient<C> {
    /// Uses a client; waits for up to 7 seconds.
    pub fn new(client: C) -> Self {
        Self { client, timeout: TIMEOUT, rng: Mutex::new(None), written: Mutex::default() }
    }

    /// Sets how long to wait for something to come true.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Waits 10 to 50 ms before each write, by this seed, and publishes in an
    /// order by it: to find out what depends on one.
    #[must_use]
    pub fn with_delays(self, seed: u64) -> Self {
        Self { rng: Mutex::new(Some(fastrand::Rng::with_seed(seed))), ..self }
    }

    /// The client below.
    pub fn client(&self) -> &C {
        &self.client
    }

    /// Writes a resource, and again if the service says `FailedPrecondition`
    /// for a write without uid: that is a follower that has not seen a create.
    ///
    /// # Errors
    ///
    /// As [`ResourceClient::write`].
    pub async fn publish(&self, resource: Resource) -> Result<Resource, RpcError> {
        let delay = locked(&self.rng).as_mut().map(|rng| rng.u64(10..50));
        if let Some(delay) = delay {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let started = tokio::time::Instant::now();
        loop {
            match self.client.write(resource.clone()).await {
                Err(error)
                    if error.code() == Code::FailedPrecondition
                        && resource.uid().is_empty()
                        && started.elapsed() < self.timeout =>
                {
                    tokio::time::sleep(INTERVAL).await;
                }
                Err(error) => return Err(error),
                Ok(stored) => {
                    locked(&self.written).extend(stored.id.clone().map(Id::without_uid));
                    return Ok(stored);
                }
            }
        }
    }

    /// Writes resources in random order, but owners before what they own.
    ///
    /// # Errors
    ///
    /// As [`ResourceClient::write`]. Resources that own each other in a circle
    /// are written last, whatever their order.
    pub async fn publish_all(
        &self,
        mut resources: Vec<Resource>,
    ) -> Result<Vec<Resource>, RpcError> {
        if let Some(rng) = locked(&self.rng).as_mut() {
            rng.shuffle(&mut resources);
        }
        let mut stored = Vec::new();
        while !resources.is_empty() {
            let waiting: BTreeSet<String> =
                resources.iter().filter_map(|r| key(r.id.as_ref())).collect();
            let free =
                |r: &Resource| key(r.owner.as_ref()).is_none_or(|key| !waiting.contains(&key));
            let next = resources.iter().position(free).unwrap_or_default();
            stored.push(self.publish(resources.remove(next)).await?);
        }
        Ok(stored)
    }

    /// Deletes what was written, the last first.
    ///
    /// # Errors
    ///
    /// The first failure; what was written before stays.
    pub async fn clean_up(&self) -> Result<(), RpcError> {
        loop {
            let Some(id) = locked(&self.written).pop() else { return Ok(()) };
            self.client.delete(DeleteRequest { id: Some(id), version: String::new() }).await?;
        }
    }

    /// Asserts that a resource is there now.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if not; so for each of the following.
    pub async fn require_found(&self, id: &Id) -> Result<Resource, Unexpected> {
        self.look(id).await?.ok_or_else(|| unexpected(id, "is not there"))
    }

    /// Asserts that a resource is not there now.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if it is.
    pub async fn require_not_found(&self, id: &Id) -> Result<(), Unexpected> {
        match self.look(id).await? {
            None => Ok(()),
            Some(_) => Err(unexpected(id, "is there")),
        }
    }

    /// Asserts that a resource has this version now.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if it has another, or is not there.
    pub async fn require_version(&self, id: &Id, version: &str) -> Result<Resource, Unexpected> {
        let found = self.require_found(id).await?;
        if found.version == version {
            return Ok(found);
        }
        Err(unexpected(id, &format!("has version {:?}, not {version:?}", found.version)))
    }

    /// Waits until a resource is there.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if that takes too long; so for each of the following.
    pub async fn wait_for_resource(&self, id: &Id) -> Result<Resource, Unexpected> {
        self.wait_for(id, "is not there", |_| true).await
    }

    /// Waits until a resource has another version than this.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if that takes too long.
    pub async fn wait_for_new_version(
        &self,
        id: &Id,
        version: &str,
    ) -> Result<Resource, Unexpected> {
        let missing = format!("still has version {version:?}");
        self.wait_for(id, &missing, |found| found.version != version).await
    }

    /// Waits until a status of the current generation has a condition of this
    /// type for which `accept` says so.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if that takes too long.
    pub async fn wait_for_condition(
        &self,
        id: &Id,
        key: &str,
        condition: &str,
        accept: impl Fn(&crate::pb::Condition) -> bool + Send + Sync,
    ) -> Result<Resource, Unexpected> {
        let missing = format!("has no such condition {condition:?} in status {key:?}");
        let fits = |found: &Resource| {
            found.status.get(key).is_some_and(|status| {
                let mut conditions = status.conditions.iter();
                status.observed_generation == found.generation
                    && conditions.any(|c| c.r#type == condition && accept(c))
            })
        };
        self.wait_for(id, &missing, fits).await
    }

    /// Waits until `accept` says so of a resource; `missing` completes the
    /// sentence that tells if it never does.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if that takes too long.
    pub async fn wait_for(
        &self,
        id: &Id,
        missing: &str,
        accept: impl Fn(&Resource) -> bool + Send + Sync,
    ) -> Result<Resource, Unexpected> {
        let started = tokio::time::Instant::now();
        loop {
            let found = self.look(id).await?;
            match found {
                Some(found) if accept(&found) => return Ok(found),
                _ if started.elapsed() >= self.timeout => return Err(unexpected(id, missing)),
                _ => tokio::time::sleep(INTERVAL).await,
            }
        }
    }

    /// Waits until a resource is gone.
    ///
    /// # Errors
    ///
    /// [`Unexpected`] if that takes too long.
    pub async fn wait_for_deletion(&self, id: &Id) -> Result<(), Unexpected> {
        let started = tokio::time::Instant::now();
        while self.look(id).await?.is_some() {
            if started.elapsed() >= self.timeout {
                return Err(unexpected(id, "is still there"));
            }
            tokio::time::sleep(INTERVAL).await;
        }
        Ok(())
    }

    async fn look(&self, id: &Id) -> Result<Option<Resource>, Unexpected> {
        match self.client.read(id.clone()).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.code() == Code::NotFound => Ok(None),
            Err(error) => Err(unexpected(id, &format!("cannot be read: {error}"))),
        }
    }
}

fn unexpected(id: &Id, what: &str) -> Unexpected {
    Unexpected(format!("{id} {what}"))
}

fn key(id: Option<&Id>) -> Option<String> {
    id.map(|id| id.to_reference().key())
}

/// Nothing panics while it holds a lock.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
