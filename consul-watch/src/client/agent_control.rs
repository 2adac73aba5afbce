//! Calls that change the agent itself: its tokens, reload, join and leave.

use secrecy::{ExposeSecret, SecretString};

use crate::{Client, Result, client::Request};

/// Purpose for which an agent uses a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AgentTokenKind {
    /// Requests that carry none.
    Default,
    /// The agent's own work, such as registering its node.
    Agent,
    /// Access to the agent while no server answers (Consul 1.11; before it is called `agent_master`).
    AgentRecovery,
    /// Copying ACLs and other data from the primary datacenter.
    Replication,
    /// Services and checks of its configuration files (Consul 1.15).
    ConfigFileServiceRegistration,
    /// Answers to DNS questions (Consul 1.18).
    Dns,
}

impl AgentTokenKind {
    /// The name that Consul uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Agent => "agent",
            Self::AgentRecovery => "agent_recovery",
            Self::Replication => "replication",
            Self::ConfigFileServiceRegistration => "config_file_service_registration",
            Self::Dns => "dns",
        }
    }
}

/// Control of the local agent.
impl Client {
    /// Gives the agent a token. It is lost at the agent's next start unless the agent is set to
    /// keep tokens.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_set_token(&self, kind: AgentTokenKind, token: &SecretString) -> Result<()> {
        let request = Request::put("agent.token", "/v1/agent/token").segment(kind.as_str());
        let body = serde_json::json!({ "Token": token.expose_secret() });
        self.send(request.json(&body)).await.map(drop)
    }

    /// Lets the agent read its configuration files again.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_reload(&self) -> Result<()> {
        self.send(Request::put("agent.reload", "/v1/agent/reload")).await.map(drop)
    }

    /// Lets the agent join a cluster; with `wan`, a server join other datacenters.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_join(&self, address: &str, wan: bool) -> Result<()> {
        let mut request = Request::put("agent.join", "/v1/agent/join").segment(address);
        if wan {
            request = request.param("wan", "1");
        }
        self.send(request).await.map(drop)
    }

    /// Lets the agent leave its cluster and stop.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn agent_leave(&self) -> Result<()> {
        self.send(Request::put("agent.leave", "/v1/agent/leave")).await.map(drop)
    }

    /// Lets the cluster forget a node that has failed; with `prune` at once, not after the
    /// time that it may come back in.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]); Consul answers 500
    /// when there is no such node.
    pub async fn agent_force_leave(&self, node: &str, prune: bool) -> Result<()> {
        let request = Request::put("agent.force-leave", "/v1/agent/force-leave").segment(node);
        self.send(request.flag_if("prune", prune)).await.map(drop)
    }
}
