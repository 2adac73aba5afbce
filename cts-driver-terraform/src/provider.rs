//! A provider as one task uses it.

use std::collections::BTreeMap;

use cts_tasks::{Literal, ProviderBlock, Task};
use secrecy::SecretString;

use crate::{Error, Result};

/// A provider as one task uses it: always the default instance of its name.
#[derive(Clone, Default)]
pub(crate) struct Provider {
    pub(crate) name: String,
    pub(crate) alias: Option<String>,
    pub(crate) arguments: BTreeMap<String, Literal>,
    pub(crate) task_env: BTreeMap<String, SecretString>,
    #[cfg(feature = "cli")]
    pub(crate) auto_commit: bool,
}

impl Provider {
    /// Finds the providers of a task, sorted by name.
    ///
    /// A name without a block is a provider without arguments. A bare name
    /// takes the first block of that name, even if that one has an alias.
    ///
    /// Source: Consul-Terraform-Sync 0.9, providers of a task.
    pub(crate) fn of_task(task: &Task, blocks: &[ProviderBlock]) -> Result<Vec<Self>> {
        let mut found: BTreeMap<String, Self> = BTreeMap::new();
        let mut problems = Vec::new();
        for id in &task.providers {
            let provider = Self::find(id, blocks);
            match provider {
                Some(provider) if found.contains_key(&provider.name) => {
                    problems.push(format!("only one provider instance per task: {id:?}"));
                }
                Some(provider) => {
                    found.insert(provider.name.clone(), provider);
                }
                None => problems.push(format!(
                    "the task uses provider {id:?}, but there is no terraform_provider block with \
                     that name and alias"
                )),
            }
        }
        Error::unless_empty(problems)?;
        Ok(found.into_values().collect())
    }

    fn find(id: &str, blocks: &[ProviderBlock]) -> Option<Self> {
        let (name, alias) = match id.split_once('.') {
            Some((name, alias)) => (name, Some(alias)),
            None => (id, None),
        };
        let block = blocks.iter().find(|block| {
            block.name == name && (alias.is_none() || block.alias.as_deref() == alias)
        });
        match block {
            Some(block) => Some(Self {
                name: block.name.clone(),
                alias: block.alias.clone(),
                arguments: block.arguments.clone(),
                task_env: block.task_env.clone(),
                #[cfg(feature = "cli")]
                auto_commit: block.auto_commit,
            }),
            None if alias.is_none() => Some(Self { name: name.to_owned(), ..Self::default() }),
            None => None,
        }
    }

    /// It as a block of the configuration, with the values that it has now.
    #[cfg(feature = "cli")]
    pub(crate) fn block(&self) -> ProviderBlock {
        let mut block = ProviderBlock::new(&self.name);
        block.alias.clone_from(&self.alias);
        block.arguments.clone_from(&self.arguments);
        block.task_env.clone_from(&self.task_env);
        block.auto_commit = self.auto_commit;
        block
    }

    /// The value of the provider's variable: its arguments, and its alias.
    pub(crate) fn value(&self) -> Literal {
        let alias = self.alias.iter().map(|alias| ("alias".to_owned(), alias.as_str().into()));
        Literal::Map(self.arguments.clone().into_iter().chain(alias).collect())
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Provider").field("name", &self.name).finish_non_exhaustive()
    }
}
