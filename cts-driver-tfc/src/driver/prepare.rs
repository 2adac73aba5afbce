//! What a run needs before it is queued: the workspace, the uploaded root module and the variables,
//! each written only if it differs.

use std::time::Duration;

use cts_driver_terraform::dynamic;
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

/// Limit on the platform's processing of an upload, and the time between two looks at it.
const PROCESSED: Duration = Duration::from_mins(1);
const LOOK: Duration = Duration::from_millis(500);

/// Variables that belong to Consul's data, no matter if the task has them now.
const INPUTS: [&str; 3] = ["services", "catalog_services", "consul_kv"];

impl TfcDriver {
    /// Builds the root module from the configuration and the dynamic values of this moment.
    pub(super) async fn module(&self) -> Result<Module> {
        let settings = &self.connection.settings;
        let providers = settings.current_providers(&self.task, &*self.values).await?;
        let task = dynamic::resolve_env(&self.task, &*self.values).await?;
        let module = Module::new(settings, &task, &providers)?;
        // With the values of this read, so that those that were renewed are hidden in logs, too.
        self.mask.note_task(&task, &providers);
        Ok(module)
    }

    /// Finds or makes the workspace, uploads, and sets what does not change with Consul; once,
    /// until the workspace is found to be gone.
    pub(super) async fn ready(&self, context: &RunContext) -> Step<MutexGuard<'_, Option<Ready>>> {
        let mut ready = self.ready.lock().await;
        // Another call may have held the lock for long.
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
        // Reported here, in words, not by the first run that is refused.
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
        // Only settings; inputs of Consul's go with each run, and are not known yet.
        let wanted = module.settings();
        let mut steps = variables::steps(&wanted, &ready.variables, &self.connection.written);
        steps.extend(variables::leftovers(&wanted, &INPUTS, &ready.variables, MANAGED));
        self.take_steps(steps, &mut ready, client).await?;
        Ok(ready)
    }

    /// Returns the newest upload, after another one if the files changed.
    pub(super) async fn upload(
        &self,
        module: &Module,
        workspace: &WorkspaceId,
        client: &Client,
    ) -> Result<ConfigurationVersionId> {
        let archive = module.pack().await?;
        // Every version is kept by the platform, and a run of an unchanged module needs no new one.
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
        // The read of the workspace has worked by now, so that 404 is a matter of rights.
        let version = created.map_err(|error| about_token(error, workspace))?;
        let address = version.attributes.upload_url.clone().unwrap_or_default();
        client.upload(&address, archive.bytes).await?;
        // A run needs the files unpacked; a module that the platform cannot use is reported here,
        // with its reason.
        processed(client, &version.id).await?;
        tracing::debug!(task.name = %self.task.name, configuration.id = %version.id, digest = archive.digest, "configuration uploaded");
        Ok(version.id)
    }

    /// Sets those variables that differ.
    pub(super) async fn set_variables(
        &self,
        wanted: &[NewVariable],
        ready: &mut Ready,
        client: &Client,
    ) -> Result<()> {
        // All before the first write, so that a value that is too large changes nothing.
        for variable in wanted {
            variable.check()?;
        }
        if !ready.variables_known {
            ready.variables = client.variables(&ready.workspace.id).await?;
            ready.variables_known = true;
        }
        let steps = variables::steps(wanted, &ready.variables, &self.connection.written);
        // However this ends, by an error or a stop, the variables are read again unless every write
        // was confirmed.
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
                    // A lost answer leaves the value unknown, and a sensitive one cannot be read
                    // back.
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

    /// Creates a variable; one that seems to have failed is looked for first.
    async fn create_variable(
        &self,
        client: &Client,
        workspace: &WorkspaceId,
        new: &NewVariable,
    ) -> Result<Variable> {
        let error = match client.create_variable(workspace, new).await {
            // 422 also comes for a key that exists, which an earlier attempt without an answer may
            // have made.
            Err(error) if error.is_uncertain() || error.is_refused() => error,
            answer => return answer,
        };
        let found = client.variables(workspace).await?;
        // A step that is left over says how the variable found differs from the wanted one.
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

    /// Returns the id of a plan that is only shown: a digest of inputs and changes.
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

    /// Returns a digest of everything that a plan is made from, except for the real infrastructure.
    pub(super) async fn digest(&self, inputs: &TaskInputs, context: &RunContext) -> Step<String> {
        use secrecy::ExposeSecret as _;
        drop(self.ready(context).await?);
        let module = self.module().await?;
        let archive = module.pack().await?;
        let mut digest = Sha256::new();
        digest.update(&archive.digest);
        for variable in module.inputs(inputs)?.iter().chain(&module.settings()) {
            for part in [variable.key.as_str(), variable.value.expose_secret()] {
                // With the length, so that a key and its value cannot be parted at another place.
                digest.update(part.len().to_le_bytes());
                digest.update(part);
            }
        }
        Ok(hexadecimal(&digest.finalize()))
    }
}

/// Adds to a 404 that tokens of organizations can read, and cannot upload.
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

/// Waits until the platform has unpacked an upload.
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
            // Pending and states that are not known: asked again until the limit.
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
