//! The block `vault`.

use std::{fs, path::PathBuf};

use secrecy::SecretString;

use super::{
    client::{ConsulTls, ConsulTransport, finalize_tls, finalize_transport, non_empty, set},
    decode::{Findings, parse_bool},
    environment::Environment,
    raw::{RawTls, RawVault},
};

/// Connection settings for Vault, for dynamic values of `terraform_provider`
/// blocks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct VaultConfig {
    /// The address, with scheme.
    pub address: String,
    /// Enterprise namespace; empty is the default.
    pub namespace: String,
    /// The token; with an agent's file, what stood there when it was read.
    pub token: Option<SecretString>,
    /// File in which an agent keeps the token, which it replaces from time to time.
    pub agent_token_file: Option<PathBuf>,
    /// `true` if the token is wrapped; default false.
    pub unwrap_token: bool,
    /// `true` if the token is to be renewed; default true, false without a token or
    /// when an agent keeps it in a file.
    pub renew_token: bool,
    /// TLS; `None` if it is switched off.
    pub tls: Option<ConsulTls>,
    /// Timeouts and connection limits.
    pub transport: ConsulTransport,
}

impl VaultConfig {
    /// A Vault at this address, which stands with its scheme; no token, the
    /// system's certificates.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            namespace: String::new(),
            token: None,
            agent_token_file: None,
            unwrap_token: false,
            renew_token: false,
            tls: Some(ConsulTls::default()),
            transport: ConsulTransport::default(),
        }
    }
}

/// Applies defaults and the environment; `None` if Vault is not enabled,
/// which without an address it is not.
pub(super) fn finalize(
    raw: Option<&RawVault>,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<VaultConfig> {
    let default = RawVault::default();
    let raw = raw.unwrap_or(&default);
    let choose = |configured, variable: &str| match configured {
        Some(_) => non_empty(configured),
        None => environment.variable(variable),
    };
    let address = choose(raw.address.as_ref(), "VAULT_ADDR");
    let enabled = raw.enabled.as_ref().map_or(address.is_some(), |enabled| enabled.value);
    if !enabled {
        return None;
    }
    let agent_file = non_empty(raw.vault_agent_token_file.as_ref());
    let token = match &agent_file {
        Some(file) => agent_token(file, raw, environment, findings),
        None => choose(raw.token.as_ref(), "VAULT_TOKEN").or_else(|| home_token(environment)),
    };
    let flag = |variable: &str| environment.variable(variable).and_then(|text| parse_bool(&text));
    let mut vault = VaultConfig {
        address: address.unwrap_or_default(),
        namespace: choose(raw.namespace.as_ref(), "VAULT_NAMESPACE").unwrap_or_default(),
        unwrap_token: flag("VAULT_UNWRAP_TOKEN").unwrap_or(false),
        renew_token: flag("VAULT_RENEW_TOKEN").unwrap_or(agent_file.is_none() && token.is_some()),
        token: token.map(SecretString::from),
        agent_token_file: agent_file.map(|file| environment.resolve(&file)),
        tls: tls(raw.tls.as_ref(), environment),
        transport: ConsulTransport::default(),
    };
    set(&mut vault.unwrap_token, raw.unwrap_token.as_ref());
    set(&mut vault.renew_token, raw.renew_token.as_ref());
    if let Some(transport) = &raw.transport {
        vault.transport = finalize_transport(transport, "vault.transport", findings);
    }
    Some(vault)
}

fn agent_token(
    file: &str,
    raw: &RawVault,
    environment: &Environment,
    findings: &mut Findings,
) -> Option<String> {
    match fs::read_to_string(environment.resolve(file)) {
        Ok(text) => Some(text.trim().to_owned()).filter(|token| !token.is_empty()),
        Err(error) => {
            findings.error_help(
                format!("unable to read vault_agent_token_file {file}: {error}"),
                raw.vault_agent_token_file.as_ref().and_then(|file| file.place.clone()),
                "let the Vault agent write its token there before this program starts",
            );
            None
        }
    }
}

/// The token that Vault's command line leaves in the home directory.
fn home_token(environment: &Environment) -> Option<String> {
    let home = environment.variable("HOME")?;
    let text = fs::read_to_string(PathBuf::from(home).join(".vault-token")).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}

fn tls(raw: Option<&RawTls>, environment: &Environment) -> Option<ConsulTls> {
    let default = RawTls::default();
    let raw = raw.unwrap_or(&default);
    if raw.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
        return None;
    }
    let mut tls = finalize_tls(raw, "VAULT_", environment);
    if raw.verify.is_none() {
        let skip = environment.variable("VAULT_SKIP_VERIFY");
        tls.verify = !skip.and_then(|text| parse_bool(&text)).unwrap_or(false);
    }
    Some(tls)
}
