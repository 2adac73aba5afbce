//! The blocks `terraform_provider`.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::{
    decode::{Findings, Scalar, TypedBlock, lone},
    dynamic::{self, Dynamic},
    raw::RawProviders,
    value::{ConfigValue, Entry},
};
use crate::{Literal, ProviderBlock};

/// The block that a task's `providers` entry means: the one of this id, or the
/// first of this name.
///
/// Source: Consul-Terraform-Sync 0.9.0 `driver/terraform.go`.
pub fn find_provider<'a>(providers: &'a [ProviderBlock], id: &str) -> Option<&'a ProviderBlock> {
    match id.split_once('.') {
        Some(_) => providers.iter().find(|block| block.id() == id),
        None => providers.iter().find(|block| block.name == id),
    }
}

/// The checked blocks, and what is not known of them for mistakes in them.
#[derive(Debug, Default)]
pub(super) struct Finalized {
    pub(super) blocks: Vec<ProviderBlock>,
    /// Names of blocks with mistakes: their aliases may be others.
    doubtful: Vec<String>,
    /// A block has no name that could be read.
    unnamed: bool,
}

impl Finalized {
    /// Blocks that were checked before.
    pub(super) fn checked(blocks: Vec<ProviderBlock>) -> Self {
        Self { blocks, ..Self::default() }
    }

    /// Returns `true` if a block of this name may be there, although none was read.
    pub(super) fn is_doubtful(&self, name: &str) -> bool {
        self.unnamed || self.doubtful.iter().any(|known| known == name)
    }
}

/// Checks the blocks.
///
/// Source: Consul-Terraform-Sync 0.9.0 `config/terraform_provider.go`.
pub(super) fn finalize(
    raw: Option<&RawProviders>,
    vault: bool,
    findings: &mut Findings,
) -> Finalized {
    let Some(RawProviders(raw)) = raw else { return Finalized::default() };
    for (labels, place) in &raw.odd {
        let message = if labels.is_empty() {
            "missing provider name for the terraform_provider block".to_owned()
        } else {
            format!("unexpected terraform_provider block labels: {}", labels.join(", "))
        };
        findings.error_help(message, place.clone(), "write terraform_provider \"name\" { … }");
    }
    let mut finalized = Finalized { unnamed: !raw.odd.is_empty(), ..Finalized::default() };
    let blocks = &mut finalized.blocks;
    let odd = |block: &&TypedBlock| raw.odd.iter().any(|(_, place)| *place == block.place);
    for raw in raw.blocks.iter().filter(|block| !odd(block)) {
        let before = findings.errors.len();
        let block = finalize_block(raw, findings);
        if findings.errors.len() > before {
            finalized.doubtful.push(raw.label.clone());
        }
        let Some(block) = block else { continue };
        if blocks.iter().any(|other| other.id() == block.id()) {
            findings.error_help(
                format!("duplicate provider configuration: {}", block.id()),
                block.place.clone(),
                "give each block of one provider an alias of its own",
            );
        }
        if !vault {
            refuse_vault(&raw.body, findings);
        }
        blocks.push(block);
    }
    finalized
}

fn refuse_vault(body: &ConfigValue, findings: &mut Findings) {
    dynamic::each(body, &mut |kind, value| {
        if kind == Dynamic::Vault {
            findings.error_help(
                "detected dynamic configuration using Vault: missing Vault configuration",
                value.place.clone(),
                "add a vault block with an address",
            );
        }
    });
}

fn finalize_block(raw: &TypedBlock, findings: &mut Findings) -> Option<ProviderBlock> {
    let objects = raw.body.objects();
    let Some([body]) = objects.as_deref() else {
        findings.error_help(
            "unexpected terraform_provider block format",
            raw.place.clone(),
            "write terraform_provider \"name\" { … } with the provider's arguments",
        );
        return None;
    };
    let mut block = ProviderBlock { place: raw.place.clone(), ..ProviderBlock::new(&raw.label) };
    let mut arguments = Vec::new();
    for entry in body.entries().unwrap_or_default() {
        match entry.key.as_str() {
            "alias" => block.alias = meta::<String>(entry, findings),
            "auto_commit" => block.auto_commit = meta(entry, findings).unwrap_or_default(),
            "task_env" => task_env(entry, &mut block.task_env, findings),
            _ => arguments.push(entry.clone()),
        }
    }
    let arguments = ConfigValue { kind: super::ValueKind::Object(arguments), place: None };
    if let Literal::Map(arguments) = arguments.to_literal() {
        block.arguments = arguments;
    }
    Some(block)
}

fn meta<T: Scalar>(entry: &Entry, findings: &mut Findings) -> Option<T> {
    let value = T::read(&lone(&entry.value).kind);
    if value.is_none() {
        findings.error(
            format!(
                "terraform_provider.{}: expected {}, found {}",
                entry.key,
                T::EXPECTED,
                entry.value.describe()
            ),
            entry.value.place.clone(),
        );
    }
    value
}

fn task_env(
    entry: &Entry,
    environment: &mut BTreeMap<String, SecretString>,
    findings: &mut Findings,
) {
    let Some(objects) = entry.value.objects() else {
        findings.error_help(
            "unexpected task_env block format: task_env should be a map of strings",
            entry.value.place.clone(),
            "write task_env { NAME = \"value\" }",
        );
        return;
    };
    for member in objects.into_iter().filter_map(ConfigValue::entries).flatten() {
        match &lone(&member.value).kind {
            super::ValueKind::String(text) => {
                environment.insert(member.key.clone(), text.clone().into());
            }
            _ => findings.error_help(
                format!(
                    "unexpected task_env block format: value for {:?} should be a string",
                    member.key
                ),
                member.value.place.clone(),
                "put quotes around the value",
            ),
        }
    }
}
