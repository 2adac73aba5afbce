//! The seam of who may act: permits, and the cluster of a deployment.

use std::{fmt, time::SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{Result, Stop};

/// Says whether this process may act now.
///
/// A driver asks before each step that changes something outside:
/// [`Permit::check`] before any, and [`Permit::confirm`] right before the one that
/// cannot be taken back, such as an apply.
#[async_trait]
pub trait Permit: fmt::Debug + Send + Sync + 'static {
    /// Allows one step that begins now.
    ///
    /// The answer comes from what the process knows (a lease and its own clock) and
    /// must not wait for the network.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotPermitted`] when another process may be acting.
    fn check(&self) -> Result<()>;

    /// Allows one step like [`Permit::check`], after asking whoever grants the permit
    /// where its last confirmation is too old to rely on alone.
    ///
    /// The default only checks.
    ///
    /// # Errors
    ///
    /// [`crate::Error::NotPermitted`] when another process may be acting, and a
    /// retryable error when nobody could be asked in time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing outside.
    async fn confirm(&self) -> Result<()> {
        self.check()
    }
}

/// Knows the other instances of a deployment.
#[async_trait]
pub trait Cluster: fmt::Debug + Send + Sync + 'static {
    /// Reports who answers a request that reaches this process.
    fn role(&self) -> Role;

    /// The cluster's name; `None` for a single instance.
    fn name(&self) -> Option<String>;

    /// The name or address by which others and users reach this instance, with or
    /// without a port; `None`, the default, if it is not configured.
    fn address(&self) -> Option<String> {
        None
    }

    /// Returns `true` if the API of a follower redirects requests about tasks to the
    /// leader, where its address is known; `false`, the default, if it refuses them and
    /// names the leader, as upstream does.
    fn redirects(&self) -> bool {
        false
    }

    /// Tags of this instance's registration in Consul besides `cts`.
    fn tags(&self) -> Vec<String>;

    /// All members that Consul knows.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Consul`] when it cannot be asked.
    async fn members(&self) -> Result<Vec<Member>>;

    /// Reads how leaders have been elected so far; `None`, the default, where nobody counts.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Consul`] when it cannot be asked.
    async fn election(&self) -> Result<Option<Election>> {
        Ok(None)
    }

    /// Waits until this process may work, and gives the stop of that time: a
    /// child of `stop`, given with [`crate::StopReason::LeadershipLost`] when it
    /// may no longer. A cluster of several has opened its store by then.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Stopped`], or what keeps this process from ever working.
    async fn lead(&self, stop: &Stop) -> Result<Stop> {
        Ok(stop.child())
    }

    /// Lets others work. Called once after each [`Cluster::lead`], when all work has ended.
    async fn resign(&self) {}

    /// Does what an instance does whether it leads or not, until the stop.
    async fn attend(&self, stop: &Stop) {
        stop.stopped().await;
    }
}

/// The election that the leader of a cluster has won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Election {
    /// Number of the term: the elections so far, this one included.
    pub term: u64,
    /// Time at which the leader stood, by its own clock; `None` if it did not say.
    pub since: Option<SystemTime>,
}

impl Election {
    /// The election of this number.
    pub fn new(term: u64, since: Option<SystemTime>) -> Self {
        Self { term, since }
    }
}

/// The role of this process in answering requests.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// This process.
    Leader,
    /// Another one, as far as it is known.
    Follower {
        /// The leader's id.
        leader: Option<String>,
        /// Address of the leader's API, as `host:port`.
        address: Option<String>,
    },
}

/// An instance of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Member {
    /// The instance's id.
    pub id: String,
    /// The name that it is registered under in Consul.
    pub service_name: String,
    /// `true` if Consul takes it for healthy.
    pub healthy: bool,
    /// `true` if it leads.
    pub leader: bool,
    /// Address of its API; only the leader's, and only if it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl Member {
    /// A member of this id, registered under this name: neither healthy nor leading.
    pub fn new(id: impl Into<String>, service_name: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            service_name: service_name.into(),
            healthy: false,
            leader: false,
            address: None,
        }
    }
}

/// A deployment of one instance: it may always act, and answers everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Single;

impl Permit for Single {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Cluster for Single {
    fn role(&self) -> Role {
        Role::Leader
    }

    fn name(&self) -> Option<String> {
        None
    }

    fn tags(&self) -> Vec<String> {
        Vec::new()
    }

    async fn members(&self) -> Result<Vec<Member>> {
        Ok(Vec::new())
    }
}
