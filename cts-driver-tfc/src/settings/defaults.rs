//! The settings that hold where the configuration says nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use cts_driver_terraform::{
    VersionConstraint,
    dynamic::{LiveValues, ValueSource},
};
use cts_tasks::DriverSettings;

use super::{RunSettings, Settings, for_one, token::Origin};
use crate::{Hostname, RetryOptions, TlsOptions};

impl Settings {
    pub(super) fn defaults(settings: &DriverSettings<'_>) -> Self {
        let values: Arc<dyn ValueSource> = Arc::new(LiveValues::new(*settings));
        Self {
            host: Hostname::default(),
            organization: String::new(),
            token: String::new().into(),
            origin: Origin::Given,
            environment: Arc::new(|name| std::env::var(name).ok()),
            prefix: String::new(),
            tags: Vec::new(),
            allowed_tags: Vec::new(),
            denied_tags: Vec::new(),
            project: None,
            auto_apply: true,
            delete_workspace: false,
            run: RunSettings::default(),
            requests_per_second: None,
            max_retry: RetryOptions::default().limit,
            tls: TlsOptions::default(),
            required_providers: BTreeMap::new(),
            providers: settings.providers.to_vec(),
            supported_versions: LOWEST_VERSION.parse().unwrap_or_else(|_never| {
                // The text above is a constraint, which a test checks.
                VersionConstraint::default()
            }),
            token_values: for_one(&values),
            values,
            base_dir: settings.base_dir.to_owned(),
        }
    }
}

/// Oldest Terraform that the generated modules work with; there is no newest.
const LOWEST_VERSION: &str = ">= 0.13.0";

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            // One look a second at a short run, within 20 requests a second for all tasks.
            poll_min: Duration::from_secs(1),
            poll_max: Duration::from_secs(5),
            timeout: None,
            discard_stale: true,
            discard_others: false,
            retry_errored: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use cts_driver_terraform::VersionConstraint;

    #[test]
    fn the_lowest_version_is_a_constraint() {
        assert!(super::LOWEST_VERSION.parse::<VersionConstraint>().is_ok());
    }
}
