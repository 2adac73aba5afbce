//! Calls to upload a configuration.

use bytes::Bytes;
use http::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::{Call, Client};
use crate::{
    Error, Result,
    types::{ConfigurationVersion, ConfigurationVersionId, NewConfigurationVersion, WorkspaceId},
};

impl Client {
    /// Creates a configuration version, to be uploaded to. One without an upload does no harm, so
    /// the call is repeated automatically.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 404 also for the token of an organization, which is not allowed to do
    /// this.
    pub async fn create_configuration_version(
        &self,
        workspace: &WorkspaceId,
        options: NewConfigurationVersion,
    ) -> Result<ConfigurationVersion> {
        let body = json!({"data": {"type": "configuration-versions", "attributes": options}});
        let path = format!("/workspaces/{workspace}/configuration-versions");
        let call = Call::post("create configuration version", path).json(&body).repeatable();
        self.one(call).await
    }

    /// Uploads an archive to the address of a configuration version, without the token.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for an invalid address; [`Error::Status`] if the host refuses.
    pub async fn upload(&self, address: &SecretString, archive: Bytes) -> Result<()> {
        let operation = "upload configuration";
        let address = address.expose_secret();
        if !(address.starts_with("https://") || address.starts_with("http://")) {
            let problem = "the platform gave no address to upload to".to_owned();
            return Err(Error::Input { operation, problem });
        }
        let mut call = Call::archive(operation, Method::PUT, address);
        call.content_type = Some("application/octet-stream");
        call.body = archive;
        self.send(call).await.map(drop)
    }

    /// Reads the status of an upload.
    ///
    /// # Errors
    ///
    /// [`Error::Status`] if the platform refuses.
    pub async fn configuration_version(
        &self,
        id: &ConfigurationVersionId,
    ) -> Result<ConfigurationVersion> {
        self.one(Call::get("read configuration version", format!("/configuration-versions/{id}")))
            .await
    }

    /// Deletes the files of an upload from the platform.
    ///
    /// # Errors
    ///
    /// [`Error::Status`]; 409 for the current version, or one in use.
    pub async fn archive_configuration_version(&self, id: &ConfigurationVersionId) -> Result<()> {
        let path = format!("/configuration-versions/{id}/actions/archive");
        self.send(Call::post("archive configuration version", path)).await.map(drop)
    }
}
