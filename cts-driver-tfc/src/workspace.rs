//! Finds or makes the workspace of a task, and checks that it can serve it.

use std::collections::BTreeMap;

use cts_tasks::Task;

use crate::{
    Client, Error, Result, Settings,
    module::MANAGED,
    settings::{SOURCE_TAG, WorkspaceBlock},
    types::{
        AgentPoolId, ConfigurationVersionAttributes, ExecutionMode, NewWorkspace, RunAttributes,
        Workspace, WorkspaceChange,
    },
};

/// Maker of a workspace, in its attribute `source-name`.
const SOURCE_NAME: &str = "Consul-Terraform-Sync";

/// Search for the workspace of a task, which is created if it is missing.
///
/// Source: Consul documentation, Consul-Terraform-Sync, HCP Terraform driver.
pub(crate) struct Ensure<'a> {
    pub(crate) client: &'a Client,
    pub(crate) settings: &'a Settings,
    pub(crate) task: &'a Task,
    pub(crate) has_tags: bool,
}

impl Ensure<'_> {
    /// Finds or creates the workspace. One that cannot serve the task is left as it is.
    ///
    /// # Errors
    ///
    /// [`Error::Workspace`] with the reason that it cannot; errors of the platform.
    pub(crate) async fn ensure(&self) -> Result<Workspace> {
        let name = self.settings.workspace_name(self.task);
        let organization = &self.settings.organization;
        let block = WorkspaceBlock::of(self.task);
        let (workspace, created) = match self.client.workspace_named(organization, &name).await {
            Ok(found) => (found, false),
            Err(error) if error.is_not_found() => self.create(&name, &block).await?,
            Err(error) => return Err(error),
        };
        if created {
            // No checks: it was made a moment ago, with these very settings.
            self.add_tags(&workspace).await?;
            return Ok(workspace);
        }
        // All checks before the first change.
        self.check(&workspace)?;
        self.check_ours(&workspace).await?;
        self.add_tags(&workspace).await?;
        self.update(workspace, &block).await
    }

    /// Creates the workspace; one that appears meanwhile is taken as found.
    async fn create(&self, name: &str, block: &WorkspaceBlock) -> Result<(Workspace, bool)> {
        let mut new = NewWorkspace::new(name);
        new.description.clone_from(&self.task.description);
        new.auto_apply = self.settings.auto_apply;
        SOURCE_NAME.clone_into(&mut new.source_name);
        // Not the organization's default, which may be `local`, where nothing runs.
        new.execution_mode = Some(block.mode().unwrap_or(ExecutionMode::Remote));
        new.agent_pool_id = self.agent_pool(block).await?;
        new.project = self.project().await?;
        let exact = &block.terraform_version;
        let version =
            if exact.is_empty() { self.settings.supported_versions() } else { exact.as_str() };
        new.terraform_version = Some(version.to_owned());
        match self.try_create(&new).await {
            // A constraint is not taken everywhere; the platform has its own default.
            Err(error) if error.is_refused() && exact.is_empty() && is_about_version(&error) => {
                new.terraform_version = None;
                self.try_create(&new).await
            }
            created => created,
        }
    }

    async fn try_create(&self, new: &NewWorkspace) -> Result<(Workspace, bool)> {
        let organization = &self.settings.organization;
        let error = match self.client.create_workspace(organization, new).await {
            Ok(created) => return Ok((created, true)),
            Err(error) => error,
        };
        // Another process of the same task may have created it.
        let taken = error.is_refused() && error.to_string().contains("has already been taken");
        if !(taken || error.is_uncertain()) {
            return Err(error);
        }
        // It may have been made by the very request that seemed to fail.
        match self.client.workspace_named(organization, &new.name).await {
            Ok(found) => {
                // With a lost answer it is ours; with a name that is taken, it has to pass the
                // checks.
                let ours = found.attributes.source_name.as_deref() == Some(SOURCE_NAME);
                Ok((found, ours && error.is_uncertain()))
            }
            Err(missing) if missing.is_not_found() => Err(error),
            Err(error) => Err(error),
        }
    }

    /// Checks that a workspace that was found can serve the task.
    fn check(&self, workspace: &Workspace) -> Result<()> {
        let attributes = &workspace.attributes;
        let refuse =
            |problem: String| Err(Error::Workspace { workspace: attributes.name.clone(), problem });
        if attributes.vcs_repo.is_some() {
            return refuse(
                "is connected to a repository: only workspaces with API-driven runs can be used"
                    .to_owned(),
            );
        }
        match attributes.mode() {
            ExecutionMode::Remote | ExecutionMode::Agent => {}
            mode => {
                let mode = String::from(mode);
                return refuse(format!(
                    "has the execution mode '{mode}': use 'remote' or 'agent' instead"
                ));
            }
        }
        let allowed = &self.settings.allowed_tags;
        let Some(tags) = &attributes.tag_names else {
            if allowed.is_empty() && self.settings.denied_tags.is_empty() {
                return Ok(());
            }
            return refuse(
                "cannot be checked against tags_allowlist and tags_denylist: this release of the \
                 platform has no tags"
                    .to_owned(),
            );
        };
        let has = |tag: &String| tags.iter().any(|own| own.eq_ignore_ascii_case(tag));
        if let Some(denied) = self.settings.denied_tags.iter().find(|tag| has(tag)) {
            return refuse(format!("has the tag {denied:?}, which tags_denylist forbids"));
        }
        if !allowed.is_empty() && !allowed.iter().any(has) {
            return refuse(format!(
                "has none of the tags in tags_allowlist ({}): add one of them to it",
                allowed.join(", ")
            ));
        }
        Ok(())
    }

    /// Refuses a workspace of somebody else that has uploads or runs, or manages anything: the
    /// task's module would destroy what it does not know.
    ///
    /// A workspace is ours if it was made here, has our tag, or has a variable that we marked. The
    /// variable helps on a release without tags, and where a person took the tag away from a
    /// workspace that was handed over.
    async fn check_ours(&self, workspace: &Workspace) -> Result<()> {
        let attributes = &workspace.attributes;
        let tags = attributes.tag_names.as_deref().unwrap_or_default();
        if attributes.source_name.as_deref() == Some(SOURCE_NAME)
            || tags.iter().any(|tag| tag.eq_ignore_ascii_case(SOURCE_TAG))
        {
            return Ok(());
        }
        // Before the variables: an empty workspace needs no hand-over, and no more requests.
        let Some(found) = self.contents(workspace).await? else { return Ok(()) };
        let variables = self.client.variables(&workspace.id).await?;
        if variables
            .iter()
            .any(|variable| variable.attributes.description.as_deref() == Some(MANAGED))
        {
            return Ok(());
        }
        let hand_over = if attributes.tag_names.is_some() {
            format!("add the tag {SOURCE_TAG:?} to the workspace")
        } else {
            format!("add a variable to the workspace whose description is {MANAGED:?}")
        };
        Err(Error::Workspace {
            workspace: attributes.name.clone(),
            problem: format!(
                "{found} and was not made by this application: an apply of the task could destroy \
                 what it manages. Use another prefix or task name, or {hand_over} to hand it over"
            ),
        })
    }

    /// Returns the content of a workspace, in words; `None` for one that was never used.
    async fn contents(&self, workspace: &Workspace) -> Result<Option<String>> {
        let (attributes, related) = (&workspace.attributes, &workspace.relationships);
        let version =
            related.one::<ConfigurationVersionAttributes>("current-configuration-version");
        let resources = attributes.resource_count.unwrap_or_default();
        // From what is known already to what needs a request.
        Ok(if version.is_some() {
            Some("has a configuration version not uploaded by this application".to_owned())
        } else if resources > 0 {
            Some(format!("manages {resources} resources"))
        } else if related.one::<RunAttributes>("current-run").is_some() {
            Some("has had runs".to_owned())
        } else if self.client.current_state(&workspace.id).await?.is_some() {
            Some("has a state".to_owned())
        } else {
            None
        })
    }

    /// Adds the tags that are missing.
    async fn add_tags(&self, workspace: &Workspace) -> Result<()> {
        if !self.has_tags {
            tracing::warn!(
                workspace = workspace.attributes.name,
                "this release of the platform has no tags, none are added"
            );
            return Ok(());
        }
        let present = workspace.attributes.tag_names.as_deref().unwrap_or_default();
        let wanted =
            std::iter::once(SOURCE_TAG).chain(self.settings.tags.iter().map(String::as_str));
        let missing: Vec<String> = wanted
            .filter(|tag| !present.iter().any(|own| own.eq_ignore_ascii_case(tag)))
            .map(str::to_owned)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.client.add_tags(&workspace.id, &missing).await
    }

    /// Changes settings that the task has and the workspace has otherwise; `auto-apply` is never
    /// touched.
    async fn update(&self, workspace: Workspace, block: &WorkspaceBlock) -> Result<Workspace> {
        let attributes = &workspace.attributes;
        let mut change = WorkspaceChange::default();
        let present = workspace.relationships.one("agent-pool");
        let pool = self.agent_pool(block).await?;
        if let Some(mode) = block.mode()
            && (attributes.mode() != mode || (pool.is_some() && pool != present))
        {
            change.execution_mode = Some(mode);
            change.agent_pool_id = pool;
            // Without it a newer release keeps the organization's default over what is set here.
            if attributes.setting_overwrites.is_some() {
                let overwrites =
                    ["execution-mode", "agent-pool"].map(|name| (name.to_owned(), true));
                change.setting_overwrites = Some(BTreeMap::from(overwrites));
            }
        }
        let version = &block.terraform_version;
        if !version.is_empty() && attributes.terraform_version.as_ref() != Some(version) {
            change.terraform_version = Some(version.clone());
        }
        // An empty description may be a person's; it is left.
        let description = &self.task.description;
        if !description.is_empty() && attributes.description.as_ref() != Some(description) {
            change.description = Some(description.clone());
        }
        if change.is_empty() {
            return Ok(workspace);
        }
        self.client.update_workspace(&workspace.id, &change).await
    }

    /// Returns the agent pool that the task asks for.
    async fn agent_pool(&self, block: &WorkspaceBlock) -> Result<Option<AgentPoolId>> {
        if block.mode() != Some(ExecutionMode::Agent) {
            return Ok(None);
        }
        if !block.agent_pool_id.is_empty() {
            let id = block.agent_pool_id.parse().map_err(|error: crate::types::InvalidId| {
                Error::Input { operation: "find agent pool", problem: error.to_string() }
            })?;
            return Ok(Some(id));
        }
        let (organization, name) = (&self.settings.organization, &block.agent_pool_name);
        let problem = |problem: String| Error::Input { operation: "find agent pool", problem };
        let pools = match self.client.agent_pools(organization, name).await {
            Ok(pools) => pools,
            Err(error) if error.is_not_found() => {
                return Err(problem(format!(
                    "organization \"{organization}\" has no agents, or the token may not see them"
                )));
            }
            Err(error) => return Err(error),
        };
        // The query of the platform finds parts of names as well.
        let found = pools.into_iter().find(|pool| pool.attributes.name == *name);
        let Some(found) = found else {
            return Err(problem(format!(
                "organization \"{organization}\" has no agent pool {name:?}"
            )));
        };
        if found.attributes.agent_count == Some(0) {
            tracing::warn!(agent.pool = name, "the agent pool has no agents, runs will wait");
        }
        Ok(Some(found.id))
    }

    async fn project(&self) -> Result<Option<crate::types::ProjectId>> {
        let Some(project) = &self.settings.project else { return Ok(None) };
        // A text that looks like an id is taken for one, which spares a request.
        if project.starts_with("prj-")
            && let Ok(id) = project.parse()
        {
            return Ok(Some(id));
        }
        let organization = &self.settings.organization;
        match self.client.project_named(organization, project).await? {
            Some(found) => Ok(Some(found.id)),
            None => Err(Error::Input {
                operation: "find project",
                problem: format!("organization \"{organization}\" has no project {project:?}"),
            }),
        }
    }
}

fn is_about_version(error: &Error) -> bool {
    error.to_string().to_lowercase().contains("version")
}
