//! `AgentApi`: services and checks of the local agent, as a trait that other crates take.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use http::StatusCode;

use crate::{
    Answer, Client, QueryOptions, Result,
    client::{Request, present},
    types::{
        AgentCheckRegistration, AgentMember, AgentSelf, AgentService, AgentServiceRegistration,
        HealthCheck, HealthStatus,
    },
};

/// The local agent's services and checks, for those who need nothing else of Consul.
#[async_trait]
pub trait AgentApi: std::fmt::Debug + Send + Sync + 'static {
    /// Reads the agent's own configuration and membership (`GET /v1/agent/self`).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn agent_self(&self) -> Result<AgentSelf>;

    /// Registers a service, or replaces the registration with its id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn agent_register_service(&self, registration: &AgentServiceRegistration) -> Result<()>;

    /// Takes a service and its checks away.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn agent_deregister_service(&self, id: &str, namespace: Option<&str>) -> Result<()>;

    /// Registers a check, or replaces the one with its id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn agent_register_check(&self, registration: &AgentCheckRegistration) -> Result<()>;

    /// Reports the state of a TTL check.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    async fn agent_update_check(&self, id: &str, status: &HealthStatus, output: &str)
    -> Result<()>;
}

#[async_trait]
impl AgentApi for Client {
    async fn agent_self(&self) -> Result<AgentSelf> {
        Self::agent_self(self).await
    }

    async fn agent_register_service(&self, registration: &AgentServiceRegistration) -> Result<()> {
        Self::agent_register_service(self, registration).await
    }

    async fn agent_deregister_service(&self, id: &str, namespace: Option<&str>) -> Result<()> {
        Self::agent_deregister_service(self, id, namespace).await
    }

    async fn agent_register_check(&self, registration: &AgentCheckRegistration) -> Result<()> {
        Self::agent_register_check(self, registration).await
    }

    async fn agent_update_check(
        &self,
        id: &str,
        status: &HealthStatus,
        output: &str,
    ) -> Result<()> {
        Self::agent_update_check(self, id, status, output).await
    }
}

/// The local agent. What is registered with it reaches the catalog a moment later.
impl Client {
    /// Reads the agent's own configuration and membership (`GET /v1/agent/self`).
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_self(&self) -> Result<AgentSelf> {
        self.read(Request::get("agent.self", "/v1/agent/self")).await.map(|answer| answer.value)
    }

    /// The members of the cluster; with `wan`, the servers of all datacenters.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_members(&self, wan: bool) -> Result<Vec<AgentMember>> {
        let request = Request::get("agent.members", "/v1/agent/members").flag_if("wan", wan);
        self.read_list(request).await.map(|answer| answer.value)
    }

    /// The agent's services, by id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_services(
        &self,
        options: &QueryOptions,
    ) -> Result<BTreeMap<String, AgentService>> {
        self.read(Request::get("agent.services", "/v1/agent/services").query(options))
            .await
            .map(|answer| answer.value)
    }

    /// Returns a service of the agent; `None` when it has none with this id.
    /// Blocks by hash: see [`QueryOptions::hash`].
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_service(
        &self,
        id: &str,
        options: &QueryOptions,
    ) -> Result<Answer<Option<AgentService>>> {
        let request = Request::get("agent.service", "/v1/agent/service").segment(id).query(options);
        let response = self.send(request.accept(StatusCode::NOT_FOUND)).await?;
        Ok(Answer::new(present(&response)?, response.into_meta()))
    }

    /// The agent's checks, by id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_checks(
        &self,
        options: &QueryOptions,
    ) -> Result<BTreeMap<String, HealthCheck>> {
        self.read(Request::get("agent.checks", "/v1/agent/checks").query(options))
            .await
            .map(|answer| answer.value)
    }

    /// Registers a service, or replaces the registration with its id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_register_service(
        &self,
        registration: &AgentServiceRegistration,
    ) -> Result<()> {
        let request =
            Request::put("agent.service.register", "/v1/agent/service/register").json(registration);
        self.send(request).await.map(drop)
    }

    /// Takes a service and its checks away.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]). An id that is not
    /// known is [not found](crate::Error::is_not_found); Consul 1.8 without ACLs accepts it.
    pub async fn agent_deregister_service(&self, id: &str, namespace: Option<&str>) -> Result<()> {
        let request =
            Request::put("agent.service.deregister", "/v1/agent/service/deregister").segment(id);
        self.send(request.param_if("ns", namespace.map(str::to_owned).as_ref())).await.map(drop)
    }

    /// Takes a service out of rotation, or back in.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_service_maintenance(
        &self,
        id: &str,
        enable: bool,
        reason: &str,
    ) -> Result<()> {
        let request =
            Request::put("agent.service.maintenance", "/v1/agent/service/maintenance").segment(id);
        self.send(request.param("enable", enable.to_string()).param("reason", reason))
            .await
            .map(drop)
    }

    /// Takes the agent's node out of rotation, or back in.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_maintenance(&self, enable: bool, reason: &str) -> Result<()> {
        let request = Request::put("agent.maintenance", "/v1/agent/maintenance");
        self.send(request.param("enable", enable.to_string()).param("reason", reason))
            .await
            .map(drop)
    }

    /// Registers a check, or replaces the one with its id.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_register_check(&self, registration: &AgentCheckRegistration) -> Result<()> {
        let request =
            Request::put("agent.check.register", "/v1/agent/check/register").json(registration);
        self.send(request).await.map(drop)
    }

    /// Takes a check away.
    ///
    /// # Errors
    ///
    /// As [`Client::agent_deregister_service`].
    pub async fn agent_deregister_check(&self, id: &str) -> Result<()> {
        self.send(Request::put("agent.check.deregister", "/v1/agent/check/deregister").segment(id))
            .await
            .map(drop)
    }

    /// Reports a TTL check as passing.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); also for a check that
    /// has no TTL.
    pub async fn agent_pass_check(&self, id: &str, note: &str) -> Result<()> {
        self.report("/v1/agent/check/pass", id, note).await
    }

    /// Reports a TTL check as warning.
    ///
    /// # Errors
    ///
    /// As [`Client::agent_pass_check`].
    pub async fn agent_warn_check(&self, id: &str, note: &str) -> Result<()> {
        self.report("/v1/agent/check/warn", id, note).await
    }

    /// Reports a TTL check as critical.
    ///
    /// # Errors
    ///
    /// As [`Client::agent_pass_check`].
    pub async fn agent_fail_check(&self, id: &str, note: &str) -> Result<()> {
        self.report("/v1/agent/check/fail", id, note).await
    }

    /// Reports the state of a TTL check, with what it printed.
    ///
    /// # Errors
    ///
    /// As [`Client::agent_pass_check`].
    pub async fn agent_update_check(
        &self,
        id: &str,
        status: &HealthStatus,
        output: &str,
    ) -> Result<()> {
        let body = serde_json::json!({ "Status": status, "Output": output });
        self.send(
            Request::put("agent.check.update", "/v1/agent/check/update").segment(id).json(&body),
        )
        .await
        .map(drop)
    }

    async fn report(&self, path: &str, id: &str, note: &str) -> Result<()> {
        let mut request = Request::put("agent.check.report", path).segment(id);
        if !note.is_empty() {
            request = request.param("note", note);
        }
        self.send(request).await.map(drop)
    }

    /// Waits until the agent answers and its cluster has a leader.
    ///
    /// Failures that can pass are waited out; `interval` lies between attempts.
    ///
    /// # Errors
    ///
    /// One that no retry cures, such as a wrong address scheme or a TLS file.
    pub async fn wait_for_leader(&self, interval: Duration) -> Result<String> {
        loop {
            match self.status_leader().await {
                Ok(Some(leader)) => return Ok(leader),
                Ok(None) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
            tokio::time::sleep(interval).await;
        }
    }
}
