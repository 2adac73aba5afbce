//! Checks that an instance could run the cluster's stored tasks.

use std::path::{Path, PathBuf};

use cts_tasks::Task;

/// Obstacle of a stored task that this instance could not overcome as leader.
///
/// The text is the one that upstream logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("compatibility check failure: {0}")]
pub struct Incompatible(String);

/// Checks that this instance could run these tasks: that the directories of local modules exist,
/// and that their providers are configured.
///
/// `directory` is the base of relative modules; `providers` are the names of the configured
/// `terraform_provider` blocks.
///
/// Source: Consul documentation `nia/architecture#instance-compatibility-checks`.
/// Deviation: the providers are checked, too.
pub async fn check(tasks: &[Task], directory: &Path, providers: &[String]) -> Vec<Incompatible> {
    let mut found = Vec::new();
    for task in tasks {
        let module = &task.module;
        if is_local(module) {
            let path: PathBuf = directory.join(module);
            let problem = match tokio::fs::metadata(&path).await {
                Ok(metadata) if metadata.is_dir() => None,
                Ok(_) => Some("not a directory".to_owned()),
                Err(error) => Some(os_text(&error)),
            };
            // As written in the task, which is the form that the operator knows.
            found.extend(problem.map(|problem| Incompatible(format!("stat {module}: {problem}"))));
        }
        for provider in &task.providers {
            // `dns.alias` names a block by its provider and alias.
            let name = provider.split('.').next().unwrap_or(provider);
            if !providers.iter().any(|known| known == name) {
                found.push(Incompatible(format!(
                    "task {}: no terraform_provider block for {name:?}",
                    task.name
                )));
            }
        }
    }
    found
}

fn is_local(module: &str) -> bool {
    module.starts_with("./") || module.starts_with("../") || module.starts_with('/')
}

/// Returns the text of a system error as Go programs write it: lower case, without the number.
fn os_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_missing_is_told_in_the_words_of_upstream() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("here")).unwrap();
        std::fs::write(directory.path().join("file"), "").unwrap();
        let mut tasks = ["./example-module", "./here", "./file", "registry/x/y"].map(|module| {
            let mut task = cts_tasks::testing::task("t");
            task.module = module.to_owned();
            task
        });
        tasks[1].providers = vec!["local.one".into(), "dns".into()];
        let found = check(&tasks, directory.path(), &["local".to_owned()]).await;
        let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "compatibility check failure: stat ./example-module: no such file or directory",
                "compatibility check failure: task t: no terraform_provider block for \"dns\"",
                "compatibility check failure: stat ./file: not a directory",
            ]
        );
    }
}
