//! The complaint about unknown keys, with upstream's hints.

use std::collections::BTreeSet;

use super::decode::UnknownKey;
use crate::Diagnostic;

/// Limit of further places that a finding shows.
const MAX_PLACES: usize = 20;

/// Returns a single finding for all unknown keys of a file, or of a block in it.
pub(super) fn diagnostic(file: &str, unknown: &[UnknownKey]) -> Diagnostic {
    let keys: BTreeSet<&str> = unknown.iter().map(|key| key.path.as_str()).collect();
    let keys = keys.into_iter().collect::<Vec<_>>().join(", ");
    let message = if file.is_empty() {
        format!("invalid keys: {keys}")
    } else {
        format!("'{file}' has invalid keys: {keys}")
    };
    let mut places = unknown.iter().filter_map(|key| key.place.clone());
    let mut diagnostic = Diagnostic::error(message).at(places.next());
    diagnostic.also = places.take(MAX_PLACES).collect();
    let hints: BTreeSet<String> = unknown.iter().filter_map(hint).collect();
    if !hints.is_empty() {
        diagnostic = diagnostic.help(hints.into_iter().collect::<Vec<_>>().join("; "));
    }
    diagnostic
}

fn hint(key: &UnknownKey) -> Option<String> {
    let hint = match key.path.as_str() {
        "provider" => {
            "'provider' is an invalid key for Consul-Terraform-Sync (CTS) configuration, try \
             'terraform_provider'"
        }
        "driver.terraform-cloud" => {
            "the terraform-cloud driver is not part of this program; use one that includes it, or driver \"terraform\""
        }
        "high_availability" => {
            "high availability is not part of this program; use one that includes it, or remove the block"
        }
        path if path.starts_with("driver.") => "this program has no driver of this name",
        _ => return key.hint.clone(),
    };
    Some(hint.to_owned())
}
