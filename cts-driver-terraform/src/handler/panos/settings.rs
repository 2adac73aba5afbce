//! Address and credentials of a firewall, from a provider's block or the environment.

use std::{collections::BTreeMap, time::Duration};

use cts_tasks::{Literal, ProviderBlock};
use secrecy::{ExposeSecret as _, SecretString};

use crate::{Error, Result};

/// Default time limit of one request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Address, user and credentials of a firewall.
pub(super) struct PanosSettings {
    pub(super) address: String,
    pub(super) username: String,
    pub(super) credential: Credential,
    pub(super) timeout: Duration,
    pub(super) verify: bool,
}

pub(super) enum Credential {
    Key(SecretString),
    Password(SecretString),
}

impl PanosSettings {
    /// Takes each argument from the block, its `task_env`, or the environment.
    pub(super) fn read(
        provider: &ProviderBlock,
        environment: &BTreeMap<String, SecretString>,
    ) -> Result<Self> {
        let find = |argument: &str| find(provider, environment, argument);
        let needed = |argument: &str| {
            find(argument).ok_or_else(|| {
                Error::invalid(format!(
                    "auto_commit of provider {} needs {argument}: set it in the provider's block, \
                     or {} in the environment",
                    provider.id(),
                    variable(argument)
                ))
            })
        };
        let username = needed("username")?;
        let hostname = needed("hostname")?;
        let credential = match find("api_key") {
            Some(key) => Credential::Key(key.into()),
            None => Credential::Password(needed("password")?.into()),
        };
        let protocol = find("protocol").unwrap_or_else(|| "https".to_owned());
        let mut address = format!("{protocol}://{hostname}");
        if let Some(port) = find("port").filter(|port| port != "0") {
            address = format!("{address}:{port}");
        }
        let seconds =
            find("timeout").and_then(|seconds| seconds.parse().ok()).filter(|seconds| *seconds > 0);
        Ok(Self {
            address,
            username,
            credential,
            timeout: seconds.map_or(TIMEOUT, Duration::from_secs),
            verify: find("verify_certificate").is_none_or(|verify| verify != "false"),
        })
    }
}

fn find(
    provider: &ProviderBlock,
    environment: &BTreeMap<String, SecretString>,
    argument: &str,
) -> Option<String> {
    let given = match provider.arguments.get(argument) {
        Some(Literal::String(text)) => Some(text.clone()),
        Some(Literal::Number(number)) => Some(number.to_string()),
        Some(Literal::Bool(value)) => Some(value.to_string()),
        _ => None,
    };
    let name = variable(argument);
    let inherited = || {
        let value = provider.task_env.get(&name).or_else(|| environment.get(&name))?;
        Some(value.expose_secret().to_owned())
    };
    given.filter(|text| !text.is_empty()).or_else(inherited).filter(|text| !text.is_empty())
}

fn variable(argument: &str) -> String {
    format!("PANOS_{}", argument.to_ascii_uppercase())
}
