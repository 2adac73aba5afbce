//! The settings of the HTTP API that stand at the top of the configuration.

use std::path::PathBuf;

use super::{
    decode::{Findings, Strings},
    environment::Environment,
    raw::RawConfig,
};

/// Checks `api_token_file`.
pub(super) fn token_file(
    raw: &RawConfig,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<PathBuf> {
    let configured = raw.api_token_file.as_ref()?;
    // An empty name must not leave the API open that was meant to be closed.
    if configured.value.is_empty() {
        findings.error_help(
            "api_token_file: the name of the file is empty",
            configured.place.clone(),
            "name the file that holds the token, or remove the setting",
        );
        return None;
    }
    Some(environment.resolve(&configured.value))
}

/// Checks `api_hosts`.
pub(super) fn hosts(raw: &RawConfig, findings: &mut Findings) -> Vec<String> {
    let is_host = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']'))
    };
    checked(raw.api_hosts.as_ref(), is_host, "api_hosts", "the name of a host", findings, |text| {
        let host = text.split("//").last().unwrap_or_default();
        format!(
            "write it without scheme and path, like {:?}",
            host.split('/').next().unwrap_or_default()
        )
    })
}

/// Checks `api_cors_origins`.
pub(super) fn cors_origins(raw: &RawConfig, findings: &mut Findings) -> Vec<String> {
    let is_origin = |text: &str| {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let is_authority = |rest: &str| {
            !rest.is_empty()
                && !rest.contains(['/', '?', '#', '@', '*'])
                && !rest.contains(char::is_whitespace)
        };
        text == "*" || rest.is_some_and(is_authority)
    };
    let origins = raw.api_cors_origins.as_ref();
    checked(origins, is_origin, "api_cors_origins", "an origin", findings, |_| {
        "write it as a browser sends it, like \"https://ui.example.com:8443\", without a path; \
         \"*\" is every page there is"
            .to_owned()
    })
}

fn checked(
    configured: Option<&Strings>,
    is_fine: impl Fn(&str) -> bool,
    key: &str,
    expected: &str,
    findings: &mut Findings,
    help: impl Fn(&str) -> String,
) -> Vec<String> {
    for item in configured.into_iter().flat_map(|list| &list.items) {
        if !is_fine(&item.value) {
            let message = format!("{key}: {:?} is not {expected}", item.value);
            findings.error_help(message, item.place.clone(), help(&item.value));
        }
    }
    configured.map(Strings::to_vec).unwrap_or_default()
}
