//! Calls about variables of a workspace.

use secrecy::ExposeSecret as _;
use serde_json::{Map, json};

use super::{Call, Client};
use crate::{
    Result,
    types::{NewVariable, Variable, VariableChange, VariableId, WorkspaceId},
};

impl Client {
    /// Lists all variables of a workspace.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn variables(&self, workspace: &WorkspaceId) -> Result<Vec<Variable>> {
        self.list(Call::get("list variables", format!("/workspaces/{workspace}/vars"))).await
    }

    /// Creates a variable. After a failure that is [uncertain](crate::Error::is_uncertain), look
    /// for it in the list.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Input`] for a variable that the platform is known to refuse; 422 if the key
    /// is taken.
    pub async fn create_variable(
        &self,
        workspace: &WorkspaceId,
        variable: &NewVariable,
    ) -> Result<Variable> {
        variable.check()?;
        let body = json!({"data": {"type": "vars", "attributes": {
            "key": variable.key, "value": variable.value.expose_secret(),
            "description": variable.description, "category": variable.category,
            "hcl": variable.hcl, "sensitive": variable.sensitive,
        }}});
        let path = format!("/workspaces/{workspace}/vars");
        self.one(Call::post("create variable", path).json(&body)).await
    }

    /// Changes a variable; members that the change leaves out stay.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Input`] if the value is too large; [`crate::Error::Status`] if the platform
    /// refuses.
    pub async fn update_variable(
        &self,
        workspace: &WorkspaceId,
        id: &VariableId,
        key: &str,
        change: &VariableChange,
    ) -> Result<Variable> {
        let mut attributes = Map::new();
        if let Some(value) = &change.value {
            crate::types::check_value(key, value)?;
            attributes.insert("value".to_owned(), value.expose_secret().into());
        }
        for (name, value) in [("hcl", change.hcl), ("sensitive", change.sensitive)] {
            if let Some(value) = value {
                attributes.insert(name.to_owned(), value.into());
            }
        }
        let body = json!({"data": {"type": "vars", "id": id, "attributes": attributes}});
        let path = format!("/workspaces/{workspace}/vars/{id}");
        self.one(Call::patch("change variable", path, &body)).await
    }

    /// Deletes a variable.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Status`] if the platform refuses.
    pub async fn delete_variable(&self, workspace: &WorkspaceId, id: &VariableId) -> Result<()> {
        let path = format!("/workspaces/{workspace}/vars/{id}");
        self.send(Call::delete("delete variable", path)).await.map(drop)
    }
}
