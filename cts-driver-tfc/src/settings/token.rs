//! The places that the platform's token comes from, and reading it there again.

use std::{fmt, path::PathBuf, sync::Arc};

use cts_tasks::{
    ConfigValue, Source,
    config::{Entry, ValueKind},
};
use secrecy::SecretString;

use super::variables::Variables;
use crate::{Error, Hostname, Result};

/// Environment variable of the token; it stands over the configuration.
pub(super) const VARIABLE: &str = "TFC_TOKEN";

/// Lookup of variables in an environment.
pub(super) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Place that the token was read from.
#[derive(Clone)]
pub(super) enum Origin {
    /// Configuration that came from no file, and cannot be read again.
    Given,
    /// Variable [`VARIABLE`].
    Environment,
    /// Block of the driver in this file of the configuration.
    File(PathBuf),
    /// Token that `terraform login` has stored, or that the CLI configuration has.
    Login,
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given => "the configuration",
            Self::Environment => VARIABLE,
            Self::File(_) => "the configuration's file",
            Self::Login => "the credentials of terraform login",
        })
    }
}

impl Origin {
    /// Returns the place of the driver's setting `token`.
    pub(super) fn of(entry: &Entry) -> Self {
        match &entry.value.place {
            Some(place) if place.source().path.is_file() => Self::File(place.source().path.clone()),
            _ => Self::Given,
        }
    }

    /// Reads the token there as it is now; `None` if there is none any more, or it cannot have
    /// changed.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] with the file that cannot be read.
    pub(super) fn read(
        &self,
        host: &Hostname,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<SecretString>> {
        match self {
            Self::Given => Ok(None),
            Self::Environment => Ok(Variables(environment).get(VARIABLE).map(Into::into)),
            Self::File(path) => {
                let keys = ["driver", "terraform-cloud", "token"];
                Ok(parsed(path.clone())?.and_then(|config| text(&config, &keys)).map(Into::into))
            }
            Self::Login => login(host, environment),
        }
    }
}

/// Returns the token that Terraform's own commands would use for a host: the variable
/// `TF_TOKEN_<host>`, the block `credentials` of the CLI configuration, or what `terraform login`
/// has stored; the first that is there.
///
/// Source: Terraform documentation, CLI configuration, credentials.
pub(super) fn login(
    host: &Hostname,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<SecretString>> {
    let variable = Variables(environment);
    let name = host.authority().to_ascii_lowercase();
    let suffix = name.replace('.', "_");
    // Names of variables cannot have a dash in all shells, so Terraform takes two underscores as
    // well.
    for suffix in [suffix.replace('-', "__"), suffix] {
        if let Some(token) = variable.get(&format!("TF_TOKEN_{suffix}")) {
            return Ok(Some(token.into()));
        }
    }
    let home = variable.get("HOME").map(PathBuf::from);
    let configured = variable.get("TF_CLI_CONFIG_FILE").map(PathBuf::from);
    // `TF_CLI_CONFIG_FILE` replaces `.terraformrc`, and not the stored credentials.
    let files = [
        configured.or_else(|| home.as_ref().map(|home| home.join(".terraformrc"))),
        home.map(|home| home.join(".terraform.d/credentials.tfrc.json")),
    ];
    for file in files.into_iter().flatten() {
        let Some(config) = parsed(file)? else { continue };
        if let Some(token) = text(&config, &["credentials", &name, "token"]) {
            return Ok(Some(token.into()));
        }
    }
    Ok(None)
}

/// Reads a file of HCL or JSON; `None` if it is not there.
fn parsed(path: PathBuf) -> Result<Option<ConfigValue>> {
    let refuse = |problem: String| Error::Setting { setting: "token", problem };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refuse(format!("cannot read {}: {error}", path.display()))),
    };
    let shown = path.display().to_string();
    // The diagnostic would show the line, which may hold the token.
    let read = ConfigValue::parse(Source { path, text }).map_err(|diagnostic| {
        let place = diagnostic.place.as_ref().map(cts_tasks::Place::line_column);
        let (line, column) = place.unwrap_or_default();
        refuse(format!("{shown}:{line}:{column} is neither HCL nor JSON that could be read"))
    })?;
    Ok(Some(read))
}

/// Returns the text below these keys; later ones stand over earlier ones, as files are merged.
fn text(value: &ConfigValue, keys: &[&str]) -> Option<String> {
    match (&value.kind, keys) {
        (ValueKind::String(text), []) => {
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        }
        (ValueKind::Object(entries), [key, below @ ..]) => {
            let mut fitting =
                entries.iter().rev().filter(|entry| entry.key.eq_ignore_ascii_case(key));
            fitting.find_map(|entry| text(&entry.value, below))
        }
        (ValueKind::List(items), keys) => items.iter().rev().find_map(|item| text(item, keys)),
        _ => None,
    }
}
