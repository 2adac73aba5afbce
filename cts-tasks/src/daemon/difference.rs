//! The difference between two configurations.

use std::collections::BTreeMap;

use secrecy::ExposeSecret;
use serde_json::Value as Json;

use crate::{Config, ConfigValue, Error, ProviderBlock, Task, TaskName, config::find_provider};

/// The difference between the tasks of newly read files and those of before.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: Vec<Task>,
    pub(crate) changed: Vec<Changed>,
    pub(crate) removed: Vec<TaskName>,
}

/// A task of the files with another definition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) task: Task,
    /// `true` if the files have changed `enabled`. If not, what was set through the
    /// API since then stays.
    pub(crate) sets_enabled: bool,
}

impl Difference {
    pub(crate) fn between(before: &[Task], now: &[Task]) -> Self {
        let find =
            |tasks: &[Task], name: &TaskName| tasks.iter().find(|task| task.name == *name).cloned();
        let mut difference = Self::default();
        for task in now {
            match find(before, &task.name) {
                None => difference.added.push(task.clone()),
                Some(old) if old != *task => difference.changed.push(Changed {
                    task: task.clone(),
                    sets_enabled: old.enabled != task.enabled,
                }),
                Some(_) => {}
            }
        }
        let removed = before.iter().filter(|task| find(now, &task.name).is_none());
        difference.removed = removed.map(|task| task.name.clone()).collect();
        difference
    }

    /// The tasks that begin to count with this reload.
    pub(crate) fn new_tasks(&self) -> impl Iterator<Item = &Task> {
        self.added.iter().chain(self.changed.iter().map(|changed| &changed.task))
    }
}

/// Returns the settings that differ apart from tasks, named as in the files: only a
/// restart takes them over.
pub(crate) fn needs_restart(before: &Config, now: &Config) -> Vec<String> {
    // What tasks inherit is part of the tasks.
    const OF_TASKS: [&str; 4] = ["task", "buffer_period", "working_dir", "terraform_provider"];
    let (Json::Object(old), Json::Object(new)) =
        (before.to_redacted_json(), now.to_redacted_json())
    else {
        return Vec::new();
    };
    let differs = |key: &String| old.get(key) != new.get(key) || is_other_secret(key, before, now);
    let settings = new.keys().filter(|key| !OF_TASKS.contains(&key.as_str()) && differs(key));
    let providers = other_providers(&before.providers, &now.providers);
    settings
        .cloned()
        .chain(providers.iter().map(|id| format!("terraform_provider {id:?}")))
        .collect()
}

/// Redacted values look alike.
fn is_other_secret(key: &str, before: &Config, now: &Config) -> bool {
    let token = |config: &Config| {
        config.consul.token.as_ref().map(|token| token.expose_secret().to_owned())
    };
    let body = |config: &Config| config.driver.body.as_ref().map(ConfigValue::to_literal);
    match key {
        "consul" => token(before) != token(now),
        "driver" => body(before) != body(now),
        _ => false,
    }
}

/// The ids of blocks that are new, gone or different.
fn other_providers(before: &[ProviderBlock], now: &[ProviderBlock]) -> Vec<String> {
    let same = |one: &ProviderBlock, blocks: &[ProviderBlock]| {
        blocks.iter().any(|other| is_same(one, other))
    };
    let new = now.iter().filter(|block| !same(block, before));
    let gone = before.iter().filter(|block| !now.iter().any(|other| other.id() == block.id()));
    new.chain(gone).map(ProviderBlock::id).collect()
}

fn is_same(one: &ProviderBlock, other: &ProviderBlock) -> bool {
    let environment = |block: &ProviderBlock| -> BTreeMap<String, String> {
        let values = block.task_env.iter();
        values.map(|(name, value)| (name.clone(), value.expose_secret().to_owned())).collect()
    };
    one.id() == other.id()
        && one.arguments == other.arguments
        && one.auto_commit == other.auto_commit
        && environment(one) == environment(other)
}

/// Refuses tasks that begin to count and use a provider whose block differs
/// from the one in use: they would run with settings that nobody wrote.
pub(crate) fn check_providers(
    difference: &Difference,
    before: &Config,
    now: &Config,
) -> Result<(), Error> {
    for task in difference.new_tasks() {
        for id in &task.providers {
            let (old, new) =
                (find_provider(&before.providers, id), find_provider(&now.providers, id));
            let same = match (old, new) {
                (Some(old), Some(new)) => is_same(old, new),
                (None, None) => true,
                _ => false,
            };
            if !same {
                return Err(Error::NotReloaded {
                    reason: format!(
                        "task '{}' uses the provider {id:?}, whose terraform_provider block changed; \
                         that needs a restart",
                        task.name
                    ),
                });
            }
        }
    }
    Ok(())
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::testing::task;

    #[test]
    fn tasks_are_told_apart_by_their_names() {
        let (one, two, three) = (task("one"), task("two"), task("three"));
        let mut other = two.clone();
        "another".clone_into(&mut other.description);
        let before = [one.clone(), two];
        let difference = Difference::between(&before, &[other.clone(), three.clone()]);
        assert_eq!(difference.added, [three]);
        assert_eq!(difference.changed, [Changed { task: other, sets_enabled: false }]);
        assert_eq!(difference.removed, [one.name]);
        assert_eq!(Difference::between(&before, &before), Difference::default());
    }

    #[test]
    fn whether_the_files_now_disable_a_task_is_told() {
        let mut disabled = task("one");
        disabled.enabled = false;
        let difference = Difference::between(&[task("one")], &[disabled]);
        assert!(difference.changed.iter().all(|changed| changed.sets_enabled));
    }

    #[test]
    fn secrets_that_differ_are_seen_though_they_are_not_shown() {
        let (mut before, mut now) = (Config::default(), Config::default());
        assert_eq!(needs_restart(&before, &now), Vec::<String>::new());
        before.consul.token = Some("one".to_owned().into());
        now.consul.token = Some("two".to_owned().into());
        now.port = 1;
        let mut provider = ProviderBlock::new("aws");
        before.providers.push(provider.clone());
        provider.task_env.insert("KEY".to_owned(), "secret".to_owned().into());
        now.providers.push(provider);
        now.tasks.push(task("one"));
        assert_eq!(needs_restart(&before, &now), ["consul", "port", "terraform_provider \"aws\""]);
    }

    #[test]
    fn a_new_task_may_not_use_a_provider_that_only_the_files_know() {
        let (before, mut now) = (Config::default(), Config::default());
        now.providers.push(ProviderBlock::new("aws"));
        let mut added = task("one");
        added.providers = vec!["aws".to_owned()];
        now.tasks.push(added);
        let difference = Difference::between(&before.tasks, &now.tasks);
        let error = check_providers(&difference, &before, &now).unwrap_err();
        assert!(error.to_string().contains("that needs a restart"), "{error}");
        assert!(check_providers(&difference, &now, &now).is_ok());
    }
}
