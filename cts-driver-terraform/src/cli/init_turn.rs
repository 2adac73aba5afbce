//! Turns of `init` where all directories share one cache of providers.

use std::ffi::OsString;

use cts_tasks::Stop;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{Error, Result};

/// Lets only one `init` run at a time where providers are kept in a cache that
/// all directories share, because the tool does not lock it.
#[derive(Debug)]
pub(super) struct InitTurn {
    turns: Option<Semaphore>,
}

impl InitTurn {
    pub(super) fn new(environment: &[(OsString, OsString)]) -> Self {
        Self { turns: shares_a_cache(environment).then(|| Semaphore::new(1)) }
    }

    /// Waits until `init` may run.
    pub(super) async fn wait(&self, stop: &Stop) -> Result<Option<SemaphorePermit<'_>>> {
        let Some(turns) = &self.turns else { return Ok(None) };
        tokio::select! {
            permit = turns.acquire() => Ok(permit.ok()),
            reason = stop.stopped() => Err(Error::Interrupted { reason }),
        }
    }
}

/// Returns `true` if a provider cache is configured, by variable or in the tool's own
/// configuration file.
fn shares_a_cache(environment: &[(OsString, OsString)]) -> bool {
    let variable = |name: &str| {
        environment.iter().find(|(known, value)| known == name && !value.is_empty()).map(|(_, v)| v)
    };
    let home = |file: &str| variable("HOME").map(|home| std::path::Path::new(home).join(file));
    let files = [
        variable("TF_CLI_CONFIG_FILE").map(Into::into),
        variable("TERRAFORM_CONFIG").map(Into::into),
        home(".terraformrc"),
        home(".tofurc"),
    ];
    variable("TF_PLUGIN_CACHE_DIR").is_some()
        || files
            .into_iter()
            .flatten()
            .any(|file| std::fs::read(file).is_ok_and(|text| mentions_a_cache(&text)))
}

fn mentions_a_cache(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).contains("plugin_cache_dir")
}

#[cfg(test)]
mod tests {
    use super::shares_a_cache;

    #[test]
    fn a_cache_is_found_in_the_environment_or_in_the_configuration_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rc");
        std::fs::write(&file, "plugin_cache_dir = \"/x\"\n").unwrap();
        assert!(!shares_a_cache(&[("TF_PLUGIN_CACHE_DIR".into(), "".into())]));
        assert!(shares_a_cache(&[("TF_PLUGIN_CACHE_DIR".into(), "/x".into())]));
        assert!(shares_a_cache(&[("TF_CLI_CONFIG_FILE".into(), file.into())]));
        assert!(!shares_a_cache(&[("HOME".into(), directory.path().into())]));
    }
}
