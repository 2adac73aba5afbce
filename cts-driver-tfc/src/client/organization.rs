//! Calls about the platform itself, an organization, its agent pools and projects.

use http::StatusCode;

use super::{Call, Client, call::segment};
use crate::{
    Result,
    document::Resource,
    types::{AgentPool, OrganizationAttributes, Project, Server},
};

impl Client {
    /// Reads which product answers. Needs no token.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Transport`] or [`crate::Error::Timeout`] if the platform cannot be reached.
    pub async fn ping(&self) -> Result<Server> {
        let answer = self.send(Call::get("reach the platform", "/ping")).await?;
        Ok(Server::of(answer.headers()))
    }

    /// Returns `true` if the organization exists and is visible to this token.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] with 401 for an unknown token.
    pub async fn has_organization(&self, organization: &str) -> Result<bool> {
        let path = format!("/organizations/{}", segment(organization));
        let call = Call::get("read organization", path);
        match self.document::<OrganizationAttributes>(call).await {
            // The id of an organization is its name, which need not fit our ids.
            Ok(_) | Err(crate::Error::Decode { .. }) => Ok(true),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lists the agent pools that match a name, possibly several.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 404 also if the organization has no agents.
    pub async fn agent_pools(&self, organization: &str, name: &str) -> Result<Vec<AgentPool>> {
        let path = format!("/organizations/{}/agent-pools", segment(organization));
        self.all(Call::get("list agent pools", path).query("q", name)).await
    }

    /// Returns the project of exactly this name.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn project_named(&self, organization: &str, name: &str) -> Result<Option<Project>> {
        let path = format!("/organizations/{}/projects", segment(organization));
        let call = Call::get("list projects", path).query("filter[names]", name);
        // The filter may also return similar names.
        let found: Vec<Resource<_>> = self.all(call).await?;
        Ok(found.into_iter().find(|project: &Project| project.attributes.name == name))
    }
}
