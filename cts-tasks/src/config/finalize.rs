//! From merged bodies to a checked [`Config`].

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use super::{
    ClaimedBlock, Config, DEFAULT_DRIVER, DEFAULT_PORT, DEFAULT_SHUTDOWN_TIMEOUT,
    DEFAULT_WORKING_DIR, DriverBlock, LogLevel, api, api_tls, buffer_period,
    client::non_empty,
    consul,
    decode::{Findings, Group, SignedDuration, Spanned, group},
    environment::Environment,
    limits::InUse,
    provider,
    raw::{RawConfig, RawConsul},
    registry::{DRIVER_KEYS, Registry},
    service, storage, syslog,
    tasks::{self, Required, Shared, TaskBlock},
    vault,
};
use crate::{
    BufferPeriod, ConfigValue, DriverFactory, DriverKind, DriverSettings, Place, Severity, Source,
    Task,
};

/// Applies defaults and the environment, and checks everything; `None` if
/// there is no driver, which is reported. The result is of use only if no
/// errors were found.
pub(super) fn finalize(
    raw: &RawConfig,
    environment: &Environment,
    registry: &Registry,
    findings: &mut Findings,
) -> Option<(Config, Arc<dyn DriverFactory>)> {
    let working_dir = working_dir(raw);
    let parent = BufferPeriod::default();
    let buffer_period = buffer_period::finalize(raw.buffer_period.as_ref(), parent, findings);
    let default = RawConsul::default();
    let consul = consul::finalize(raw.consul.as_ref().unwrap_or(&default), environment, findings);
    let vault = vault::finalize(raw.vault.as_ref(), environment, findings);
    // A vault block that could not be read is not missing.
    let vault_known = vault.is_some() || findings.incomplete || raw.invalid.contains(&"vault");
    let provider_blocks = provider::finalize(raw.providers.as_ref(), vault_known, findings);
    // A block that could not be read is not missing.
    let providers_known = !findings.incomplete && !raw.invalid.contains(&"terraform_provider");
    check_license(raw, findings);
    let kind = driver_kind(raw, registry, findings);
    let shutdown_timeout = shutdown_timeout(raw, findings);
    let body = raw.driver.as_ref().map(|driver| &driver.body);
    let shared = Shared {
        environment,
        services: raw.services.as_ref().map_or(&[], |services| &services.0),
        providers: &provider_blocks.blocks,
        buffer_period,
        working_dir: &working_dir,
        shutdown_timeout,
        vault_known,
        driver: kind.map(|kind| InUse { kind, body }),
        task_blocks: kind.map_or(&[][..], |kind| kind.task_blocks()).to_vec(),
        required: kind.map_or_else(|| Required::by_all(&registry.drivers), Required::by),
    };
    service::check(shared.services, findings);
    let raw_tasks = raw.tasks.as_ref().map_or(&[][..], |tasks| &tasks.0);
    let tasks::Finalized { tasks, blocks: task_blocks } =
        tasks::finalize(raw_tasks, &shared, findings);
    if providers_known {
        tasks::check_aliases(raw_tasks, &provider_blocks, findings);
    }
    let config = Config {
        log_level: log_level(raw, findings),
        port: port(raw, findings),
        id: id(raw, environment, findings),
        working_dir,
        syslog: syslog::finalize(raw.syslog.as_ref(), findings),
        buffer_period,
        consul,
        vault,
        tls: api_tls::finalize(raw.tls.as_ref(), environment, findings),
        api_token_file: api::token_file(raw, environment, findings),
        api_hosts: api::hosts(raw, findings),
        api_cors_origins: api::cors_origins(raw, findings),
        shutdown_timeout,
        api_metrics: raw.api_metrics.as_ref().is_some_and(|metrics| metrics.value),
        storage: storage::finalize(raw.storage.as_ref(), environment, findings),
        driver: driver_block(raw, kind),
        providers: provider_blocks.blocks,
        tasks,
        blocks: claimed_blocks(raw, registry, findings),
        warnings: Vec::new(),
    };
    let kind = kind?;
    let factory = configure(kind, &config, &task_blocks, environment, findings)?;
    Some((config, factory))
}

/// The only task of a file for `task create`, checked with default settings
/// around it. What belongs to a driver is handed through.
pub(super) fn only_task(
    raw: &RawConfig,
    environment: &Environment,
    registry: &Registry,
    findings: &mut Findings,
) -> Option<Task> {
    let working_dir = working_dir(raw);
    let claimed = registry.drivers.iter().flat_map(|kind| kind.task_blocks()).chain(DRIVER_KEYS);
    let shared = Shared {
        environment,
        services: raw.services.as_ref().map_or(&[], |services| &services.0),
        providers: &[],
        buffer_period: BufferPeriod::default(),
        working_dir: &working_dir,
        // The daemon that gets the task checks it against its own.
        shutdown_timeout: Duration::MAX,
        vault_known: true,
        driver: None,
        task_blocks: claimed.copied().collect(),
        required: Required::by_all(&registry.drivers),
    };
    let raw_tasks = raw.tasks.as_ref().map_or(&[][..], |tasks| &tasks.0);
    tasks::finalize(raw_tasks, &shared, findings).tasks.into_iter().next()
}

fn working_dir(raw: &RawConfig) -> PathBuf {
    non_empty(raw.working_dir.as_ref()).unwrap_or_else(|| DEFAULT_WORKING_DIR.to_owned()).into()
}

fn log_level(raw: &RawConfig, findings: &mut Findings) -> LogLevel {
    let Some(level) = raw.log_level.as_ref().filter(|level| !level.value.is_empty()) else {
        return LogLevel::Info;
    };
    level.value.parse().unwrap_or_else(|_unknown: super::InvalidLogLevel| {
        findings.error_help(
            format!(
                "Invalid log level: {}. Valid log levels are: [TRACE DEBUG INFO WARN ERR]",
                level.value.to_uppercase()
            ),
            level.place.clone(),
            "use one of them, in upper or lower case",
        );
        LogLevel::Info
    })
}

fn port(raw: &RawConfig, findings: &mut Findings) -> u16 {
    let Some(port) = &raw.port else { return DEFAULT_PORT };
    u16::try_from(port.value).unwrap_or_else(|_out_of_range| {
        findings.error_help(
            format!("port: {} is not a port", port.value),
            port.place.clone(),
            "a port is a number from 1 to 65535, or 0 for any that is free",
        );
        DEFAULT_PORT
    })
}

fn shutdown_timeout(raw: &RawConfig, findings: &mut Findings) -> Duration {
    let Some(configured) = &raw.shutdown_timeout else { return DEFAULT_SHUTDOWN_TIMEOUT };
    match configured.value.0 {
        SignedDuration::Positive(length) => length,
        SignedDuration::Negative => {
            findings.error_help(
                "shutdown_timeout: cannot be negative",
                configured.place.clone(),
                "it is the time that a running apply has to end after a stop, such as \"5m\"",
            );
            DEFAULT_SHUTDOWN_TIMEOUT
        }
    }
}

fn id(raw: &RawConfig, environment: &Environment, findings: &mut Findings) -> String {
    if let Some(id) = non_empty(raw.id.as_ref()) {
        return id;
    }
    match (environment.hostname)() {
        Ok(hostname) => format!("cts-{hostname}"),
        Err(error) => {
            findings.error_help(
                format!("unable to read the hostname for the default id: {error}"),
                None,
                "set id in the configuration",
            );
            String::new()
        }
    }
}

fn check_license(raw: &RawConfig, findings: &mut Findings) {
    const HELP: &str = "remove it: this program needs no license";
    let path = raw.license_path.as_ref().map(|Spanned { place, .. }| ("license_path", place));
    let block = raw.license.as_ref().map(|license| ("license", &license.place));
    for (key, place) in path.into_iter().chain(block) {
        findings.warn(format!("{key} has no effect"), place.clone(), HELP);
    }
}

fn driver_kind<'r>(
    raw: &RawConfig,
    registry: &'r Registry,
    findings: &mut Findings,
) -> Option<&'r dyn DriverKind> {
    for place in raw.driver.iter().flat_map(|driver| &driver.others) {
        findings.error_help(
            "only one 'driver' block can be configured",
            place.clone(),
            "keep the block of one driver",
        );
    }
    if raw.driver.is_none() && raw.invalid.contains(&"driver") {
        return None;
    }
    let label = raw.driver.as_ref().map_or(DEFAULT_DRIVER, |driver| driver.label.as_str());
    let kind = registry.find_driver(label);
    if kind.is_none() && !findings.incomplete {
        let known: Vec<&str> = registry.drivers.iter().map(|kind| kind.label()).collect();
        findings.error_help(
            format!("this program has no driver {label:?}, which is the default"),
            None,
            if known.is_empty() {
                "use a program that includes it".to_owned()
            } else {
                format!("add a driver block of one that it has: {}", known.join(", "))
            },
        );
    }
    kind.map(Arc::as_ref)
}

fn driver_block(raw: &RawConfig, kind: Option<&dyn DriverKind>) -> DriverBlock {
    DriverBlock {
        label: raw
            .driver
            .as_ref()
            .map_or_else(|| DEFAULT_DRIVER.to_owned(), |driver| driver.label.clone()),
        body: raw.driver.as_ref().map(|driver| driver.body.clone()),
        secret_fields: kind.map_or(&[], |kind| kind.secret_fields()),
    }
}

fn configure(
    kind: &dyn DriverKind,
    config: &Config,
    task_blocks: &[TaskBlock],
    environment: &Environment,
    findings: &mut Findings,
) -> Option<Arc<dyn DriverFactory>> {
    let base_dir = environment.base_dir();
    let mut settings = DriverSettings::new(&config.consul, &base_dir);
    settings.label = kind.label();
    settings.body = config.driver.body.as_ref();
    settings.providers = &config.providers;
    settings.vault = config.vault.as_ref();
    settings.task_blocks = task_blocks;
    match kind.configure(settings, &mut findings.warnings) {
        Ok(factory) => Some(factory),
        Err(errors) => {
            findings.errors.extend(errors);
            None
        }
    }
}

/// The blocks that somebody outside of this crate claims, each checked by its kind.
fn claimed_blocks(
    raw: &RawConfig,
    registry: &Registry,
    findings: &mut Findings,
) -> BTreeMap<String, ClaimedBlock> {
    let mut blocks = BTreeMap::new();
    for group in group(&raw.rest) {
        let Some(kind) = registry.blocks.iter().find(|kind| kind.name() == group.key) else {
            continue;
        };
        let Some(body) = merge_claimed(&group, findings) else { continue };
        for finding in kind.check(&body) {
            match finding.severity {
                Severity::Error => findings.errors.push(finding),
                Severity::Warning => findings.warnings.push(finding),
            }
        }
        blocks.insert(
            group.key.to_owned(),
            ClaimedBlock { body, secret_fields: kind.secret_fields() },
        );
    }
    blocks
}

/// Merges a block over the files; in one file it may stand once.
fn merge_claimed(group: &Group<'_>, findings: &mut Findings) -> Option<ConfigValue> {
    let mut merged: Option<ConfigValue> = None;
    let mut files: Vec<&Arc<Source>> = Vec::new();
    for entry in &group.entries {
        let file = entry.key_place.as_ref().map(Place::source);
        let objects = entry.value.objects();
        let Some(objects) = objects.as_deref() else {
            findings.error(
                format!("{}: expected a block, found {}", group.key, entry.value.describe()),
                entry.value.place.clone(),
            );
            return None;
        };
        let again = file.is_some_and(|file| files.iter().any(|known| Arc::ptr_eq(known, file)));
        if again || objects.len() > 1 {
            findings.error_help(
                format!("only one '{}' block can be configured", group.key),
                entry.key_place.clone(),
                "keep one of the blocks, with the settings of both",
            );
        }
        files.extend(file);
        for object in objects {
            match &mut merged {
                Some(merged) => merged.merge((*object).clone()),
                None => merged = Some((*object).clone()),
            }
        }
    }
    merged
}
