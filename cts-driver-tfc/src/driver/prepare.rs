use std::time::Duration;

use cts_tasks::{Plan, PlanId, RunContext, TaskInputs};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::MutexGuard,
    time::{Instant, sleep},
};

use super::{Ready, TfcDriver};
use crate::{
    Client, Error, Result,
    archive::{Archive, hexadecimal},
    connection::Upload,
    halt::{Halt, Step},
    module::{MANAGED, Module},
    types::{
        ConfigurationStatus, ConfigurationVersionId, NewConfigurationVersion, NewVariable,
        Variable, WorkspaceId,
    },
    variables::{self, Step as VariableStep},
    workspace::Ensure,
};

/// How long the platform may take to process an upload, and how often it is asked.
const PROCESSED: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(500);

/// Variables that are Consul's, whether the task has them now or not.
const INPUTS: [&str; 3] = ["services", "catalog_services", "consul_kv"];

impl TfcDriver {
    /// The root module as the configuration and dynamic values have it now.
    pub(super) async fn module(&self) -> Result<Module> {
        let settings = &self.connection.settings;
        let providers = settings.current_providers(&self.task).await?;
        let module = Module::new(settings, &self.task, &providers)?;
        self.mask.note_task(&self.task, &providers);
        Ok(module)
    }

    /// Finds or makes the workspace, uploads, and sets what does not change
    /// with Consul; once, until it is found to be gone.
    pub(super) async fn ready(&self, context: &RunContext) -> Step<MutexGuard<'_, Option<Ready>>> {
        let mut ready = self.ready.lock().await;
        if let Some(reason) = context.stop.reason() {
            return Err(Halt::Stopped(reason));
        }
        if ready.is_none() {
            context.permit.check().map_err(Halt::NotPermitted)?;
            let made = tokio::select! {
                made = self.make_ready(context) => made?,
                reason = context.stop.stopped() => return Err(Halt::Stopped(reason)),
            };
            *ready = Some(made);
        }
        Ok(ready)
    }

    async fn make_ready(&self, context: &RunContext) -> Step<Ready> {
        let client = &self.connection.client_for(context).map_err(Halt::NotPermitted)?;
        let settings = &self.connection.settings;
        let ensure =
            Ensure { client, settings, task: &self.task, has_tags: self.connection.has_tags() };
        let workspace = ensure.ensure().await?;
        if workspace.attributes.locked {
            tracing::warn!(task.name = %self.task.name, workspace = workspace.attributes.name, "the workspace is locked, runs wait until it is unlocked");
        }
        if !workspace.attributes.permissions.can_queue_run {
            return Err(Halt::Failed(Error::Workspace {
                workspace: workspace.attributes.name,
                problem: "cannot be run with this token: its team needs to manage workspaces"
                    .to_owned(),
            }));
        }
        let module = self.module().await?;
        self.upload(&module, &workspace.id, client).await?;
        let variables = client.variables(&workspace.id).await?;
        let mut ready = Ready { variables, workspace, variables_known: true };
        let wanted = module.settings();
        let mut steps = variables::steps(&wanted, &ready.variables, &self.connection.written);
        steps.extend(variables::leftovers(&wanted, &INPUTS, &ready.variables, MANAGED));
        self.take_steps(steps, &mut ready, client).await?;
        Ok(ready)
    }

    /// The newest upload, made anew if the files changed.
    pub(super) async fn upload(
        &self,
        module: &Module,
        workspace: &WorkspaceId,
        client: &Client,
    ) -> Result<ConfigurationVersionId> {
        let archive = module.pack().await?;
        if let Some(known) = self.connection.upload(workspace)
            && known.digest == archive.digest
        {
            return Ok(known.id);
        }
        let digest = archive.digest.clone();
        let id = self.send(archive, workspace, NewConfigurationVersion::default(), client).await?;
        self.connection.note_upload(workspace, Some(Upload { digest, id: id.clone() }));
        Ok(id)
    }

    /// Uploads an archive and waits until it can be run.
    pub(super) async fn send(
        &self,
        archive: Archive,
        workspace: &WorkspaceId,
        options: NewConfigurationVersion,
        client: &Client,
    ) -> Result<ConfigurationVersionId> {
        let created = client.create_configuration_version(workspace, options).await;
        let version = created.map_err(|error| about_token(error, workspace))?;
        let address = version.attributes.upload_url.clone().unwrap_or_default();
        client.upload(&address, archive.bytes).await?;
        processed(client, &version.id).await?;
        tracing::debug!(task.name = %self.task.name, configuration.id = %version.id, digest = archive.digest, "configuration uploaded");
        Ok(version.id)
    }

    /// Sets variables, those that differ.
    pub(super) async fn set_variables(
        &self,
        wanted: &[NewVariable],
        ready: &mut Ready,
        client: &Client,
    ) -> Result<()> {
        for variable in wanted {
            variable.check()?;
        }
        if !ready.variables_known {
            ready.variables = client.variables(&ready.workspace.id).await?;
            ready.variables_known = true;
        }
        let steps = variables::steps(wanted, &ready.variables, &self.connection.written);
        // However this ends, by an error or a stop, what is there is read again
        // unless every write was confirmed.
        ready.variables_known = false;
        self.take_steps(steps, ready, client).await?;
        ready.variables_known = true;
        Ok(())
    }

    async fn take_steps(
        &self,
        steps: Vec<VariableStep>,
        ready: &mut Ready,
        client: &Client,
    ) -> Result<()> {
        let workspace = ready.workspace.id.clone();
        for step in steps {
            match step {
                VariableStep::Create(new) => {
                    let made = self.create_variable(client, &workspace, &new).await?;
                    self.note(made, &new.value, ready);
                }
                VariableStep::Update(id, key, change) => {
                    self.connection.written.forget(&id);
                    let made = client.update_variable(&workspace, &id, &key, &change).await?;
                    if let Some(value) = &change.value {
                        self.note(made, value, ready);
                    }
                }
                VariableStep::Replace(id, new) => {
                    client.delete_variable(&workspace, &id).await?;
                    ready.variables.retain(|known| known.id != id);
                    let made = self.create_variable(client, &workspace, &new).await?;
                    self.note(made, &new.value, ready);
                }
                VariableStep::Delete(id) => {
                    client.delete_variable(&workspace, &id).await?;
                    ready.variables.retain(|known| known.id != id);
                }
            }
        }
        Ok(())
    }

    /// Makes a variable; one that seems to have failed is looked for first.
    async fn create_variable(
        &self,
        client: &Client,
        workspace: &WorkspaceId,
        new: &NewVariable,
    ) -> Result<Variable> {
        let error = match client.create_variable(workspace, new).await {
            Err(error) if error.is_uncertain() || error.is_refused() => error,
            answer => return answer,
        };
        let found = client.variables(workspace).await?;
        match variables::steps(std::slice::from_ref(new), &found, &self.connection.written).pop() {
            None => found
                .into_iter()
                .find(|known| {
                    known.attributes.key == new.key
                        && known.attributes.category == Some(new.category)
                })
                .ok_or(error),
            Some(VariableStep::Update(id, key, change)) => {
                self.connection.written.forget(&id);
                client.update_variable(workspace, &id, &key, &change).await
            }
            Some(VariableStep::Create(_)) if error.is_uncertain() => {
                client.create_variable(workspace, new).await
            }
            Some(_) => Err(error),
        }
    }

    fn note(&self, made: Variable, value: &secrecy::SecretString, ready: &mut Ready) {
        self.connection.written.note(&made.id, value);
        ready.variables.retain(|known| known.id != made.id);
        ready.variables.push(made);
    }

    /// The id of a plan that is only shown.
    pub(super) async fn digested(
        &self,
        inputs: &TaskInputs,
        plan: &Plan,
        context: &RunContext,
    ) -> Step<PlanId> {
        let mut digest = Sha256::new();
        digest.update(self.digest(inputs, context).await?);
        digest.update(serde_json::to_vec(&plan.changes).unwrap_or_default());
        Ok(PlanId::new(hexadecimal(&digest.finalize())))
    }

    /// A digest of everything that a plan is made from, but for real infrastructure.
    pub(super) async fn digest(&self, inputs: &TaskInputs, context: &RunContext) -> Step<String> {
        use secrecy::ExposeSecret as _;
        drop(self.ready(context).await?);
        let module = self.module().await?;
        let archive = module.pack().await?;
        let mut digest = Sha256::new();
        digest.update(&archive.digest);
        for variable in module.inputs(inputs)?.iter().chain(&module.settings()) {
            for part in [variable.key.as_str(), variable.value.expose_secret()] {
                digest.update(part.len().to_le_bytes());
                digest.update(part);
            }
        }
        Ok(hexadecimal(&digest.finalize()))
    }
}

/// Organizations' tokens can read, and cannot upload.
fn about_token(error: Error, workspace: &WorkspaceId) -> Error {
    if !error.is_not_found() {
        return error;
    }
    tracing::debug!(workspace.id = %workspace, error = consul_watch::error_chain(&error), "upload refused");
    match error {
        Error::Status { operation, status, message } => Error::Status {
            operation,
            status,
            message: format!(
                "{message} (the token may read the workspace and not upload to it: use the token \
                 of a team or a user, not that of the organization)"
            ),
        },
        other => other,
    }
}

/// Waits until the platform has taken an upload apart.
async fn processed(client: &Client, id: &ConfigurationVersionId) -> Result<()> {
    let operation = "upload configuration";
    let started = Instant::now();
    loop {
        let version = client.configuration_version(id).await?;
        match version.attributes.status {
            ConfigurationStatus::Uploaded => return Ok(()),
            ConfigurationStatus::Errored | ConfigurationStatus::Archived => {
                let why = version.attributes.error_message.unwrap_or_default();
                let problem = format!("the platform cannot use {id}: {why}");
                return Err(Error::Input { operation, problem });
            }
            _ if started.elapsed() > PROCESSED => {
                return Err(Error::Timeout {
                    operation,
                    host: client.host().to_string(),
                    after: PROCESSED,
                });
            }
            _ => sleep(LOOK).await,
        }
    }
}
