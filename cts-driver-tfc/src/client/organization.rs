use http::StatusCode;

use super::{Call, Client, call::segment};
use crate::{
    Result,
    document::Resource,
    types::{AgentPool, OrganizationAttributes, Project, Server},
};

impl Client {
    /// Asks which product answers. No token is needed for it.
    ///
    /// # Errors
    ///
    /// When the platform cannot be reached.
    pub async fn ping(&self) -> Result<Server> {
        let answer = self.send(Call::get("reach the platform", "/ping")).await?;
        Ok(Server::of(answer.headers()))
    }

    /// Whether the organization is there, and for this token.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] with 401 for a token that is not known.
    pub async fn has_organization(&self, organization: &str) -> Result<bool> {
        let path = format!("/organizations/{}", segment(organization));
        let call = Call::get("read organization", path);
        match self.document::<OrganizationAttributes>(call).await {
            // Organizations go by names, which need not be ids of ours.
            Ok(_) | Err(crate::Error::Decode { .. }) => Ok(true),
            Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The agent pools that the platform finds for a name, which may be several.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 404 also means that the organization has no agents.
    pub async fn agent_pools(&self, organization: &str, name: &str) -> Result<Vec<AgentPool>> {
        let path = format!("/organizations/{}/agent-pools", segment(organization));
        self.all(Call::get("list agent pools", path).query("q", name)).await
    }

    /// The project of exactly this name.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`].
    pub async fn project_named(&self, organization: &str, name: &str) -> Result<Option<Project>> {
        let path = format!("/organizations/{}/projects", segment(organization));
        let call = Call::get("list projects", path).query("filter[names]", name);
        let found: Vec<Resource<_>> = self.all(call).await?;
        Ok(found.into_iter().find(|project: &Project| project.attributes.name == name))
    }
}
