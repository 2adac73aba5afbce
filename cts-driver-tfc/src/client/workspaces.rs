//! Calls about workspaces and their tags.

use serde_json::{Value, json};

use super::{Call, Client, call::segment};
use crate::{
    Error, Result,
    types::{
        NewWorkspace, Tag, TagBinding, TagBindingAttributes, Workspace, WorkspaceChange,
        WorkspaceId,
    },
};

impl Client {
    /// Reads the workspace of this name.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 404 if there is none, or it is not visible to this token.
    pub async fn workspace_named(&self, organization: &str, name: &str) -> Result<Workspace> {
        let path = format!("/organizations/{}/workspaces/{}", segment(organization), segment(name));
        self.one(Call::get("read workspace", path)).await
    }

    /// Reads the workspace of this id.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn workspace(&self, id: &WorkspaceId) -> Result<Workspace> {
        self.one(Call::get("read workspace", format!("/workspaces/{id}"))).await
    }

    /// Creates a workspace. After a failure that is [uncertain](crate::Error::is_uncertain), look
    /// it up by its name.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Input`] for settings that the platform is known to refuse; 422 if the name
    /// is taken.
    pub async fn create_workspace(
        &self,
        organization: &str,
        workspace: &NewWorkspace,
    ) -> Result<Workspace> {
        let path = format!("/organizations/{}/workspaces", segment(organization));
        self.one(Call::post("create workspace", path).json(&workspace.document()?)).await
    }

    /// Changes settings of a workspace.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Input`] for settings that the platform is known to refuse;
    /// [`crate::Error::Status`] if it refuses others.
    pub async fn update_workspace(
        &self,
        id: &WorkspaceId,
        change: &WorkspaceChange,
    ) -> Result<Workspace> {
        let path = format!("/workspaces/{id}");
        self.one(Call::patch("change workspace", path, &change.document()?)).await
    }

    /// Deletes a workspace with its state, whatever it manages.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn force_delete_workspace(&self, id: &WorkspaceId) -> Result<()> {
        self.send(Call::delete("delete workspace", format!("/workspaces/{id}"))).await.map(drop)
    }

    /// Deletes a workspace that manages nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 409 while it manages resources or is locked.
    pub async fn safe_delete_workspace(&self, id: &WorkspaceId) -> Result<()> {
        let path = format!("/workspaces/{id}/actions/safe-delete");
        self.send(Call::post("delete workspace", path)).await.map(drop)
    }

    /// Lists the tags of a workspace.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn tags(&self, id: &WorkspaceId) -> Result<Vec<Tag>> {
        self.all(Call::get("list tags", format!("/workspaces/{id}/relationships/tags"))).await
    }

    /// Adds tags; existing ones stay.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn add_tags(&self, id: &WorkspaceId, names: &[String]) -> Result<()> {
        let path = format!("/workspaces/{id}/relationships/tags");
        let call = Call::post("add tags", path).json(&tag_names(names)).repeatable();
        self.send(call).await.map(drop)
    }

    /// Removes tags; missing ones are no error.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn remove_tags(&self, id: &WorkspaceId, names: &[String]) -> Result<()> {
        let path = format!("/workspaces/{id}/relationships/tags");
        self.send(Call::delete("remove tags", path).json(&tag_names(names))).await.map(drop)
    }

    /// Lists the tag bindings (tags with values) of a workspace, with those of its project if
    /// `inherited`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 404 on releases without them.
    pub async fn tag_bindings(&self, id: &WorkspaceId, inherited: bool) -> Result<Vec<TagBinding>> {
        let list = if inherited { "effective-tag-bindings" } else { "tag-bindings" };
        self.list(Call::get("list tag bindings", format!("/workspaces/{id}/{list}"))).await
    }

    /// Adds tag bindings, and changes those whose key exists.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Input`] for more than ten; [`crate::Error::Status`] if the platform refuses.
    pub async fn set_tag_bindings(
        &self,
        id: &WorkspaceId,
        bindings: &[TagBindingAttributes],
    ) -> Result<Vec<TagBinding>> {
        if bindings.len() > MOST_BINDINGS {
            return Err(Error::Input {
                operation: "set tag bindings",
                problem: format!("cannot exceed {MOST_BINDINGS} bindings per resource"),
            });
        }
        let data: Vec<Value> = bindings
            .iter()
            .map(|binding| json!({"type": "tag-bindings", "attributes": binding}))
            .collect();
        let path = format!("/workspaces/{id}/tag-bindings");
        self.list(Call::patch("set tag bindings", path, &json!({ "data": data }))).await
    }

    /// Locks the workspace, so that no run can start.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 409 if it is locked already.
    pub async fn lock(&self, id: &WorkspaceId, reason: &str) -> Result<Workspace> {
        let path = format!("/workspaces/{id}/actions/lock");
        self.one(Call::post("lock workspace", path).json(&json!({ "reason": reason }))).await
    }

    /// Unlocks the workspace; with `force` also if somebody else locked it.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`]; 409 if it is not locked, or locked by somebody else.
    pub async fn unlock(&self, id: &WorkspaceId, force: bool) -> Result<Workspace> {
        let action = if force { "force-unlock" } else { "unlock" };
        self.one(Call::post("unlock workspace", format!("/workspaces/{id}/actions/{action}"))).await
    }
}

/// Largest number of tag bindings of one workspace.
const MOST_BINDINGS: usize = 10;

fn tag_names(names: &[String]) -> Value {
    let tags = names.iter().map(|name| json!({"type": "tags", "attributes": {"name": name}}));
    json!({"data": tags.collect::<Vec<_>>()})
}
