//! The settings of a task that bound its runs (`timeout`, `retry`, `shutdown_timeout`), and `env`.

use std::time::Duration;

use consul_watch::GoDuration;

use super::{
    Dynamic, ProviderBlock,
    decode::{Findings, GivenDuration, OneStringMap, SignedDuration, Spanned},
    provider::find_provider,
    raw::{RawRetry, RawTask},
};
use crate::{DriverKind, Retry, TaskEnv};

/// The shortest first pause: what fails at once must not be run without a break.
const LEAST_BACKOFF: Duration = Duration::from_millis(100);

/// Bounds of a task's runs.
pub(super) struct Limits {
    pub(super) timeout: Option<Duration>,
    pub(super) retry: Option<Retry>,
    pub(super) shutdown_timeout: Option<Duration>,
}

/// Checks the bounds of a task.
///
/// `longest_stop` is the deployment's time for a run to end after a stop.
pub(super) fn finalize(raw: &RawTask, longest_stop: Duration, findings: &mut Findings) -> Limits {
    let timeout = timeout(raw, findings);
    let retry = raw.retry.as_ref().map(|raw| retry(raw, findings));
    if let (Some(timeout), Some(retry)) = (timeout, retry) {
        refuse_tries_without_time(raw, timeout, retry, findings);
    }
    Limits { timeout, retry, shutdown_timeout: shutdown_timeout(raw, longest_stop, findings) }
}

fn timeout(raw: &RawTask, findings: &mut Findings) -> Option<Duration> {
    let timeout = raw.timeout.as_ref()?;
    match timeout.value.0 {
        SignedDuration::Positive(length) if !length.is_zero() => Some(length),
        _ => {
            findings.error_help(
                "timeout: must be longer than 0",
                timeout.place.clone(),
                "it is the longest that one run may take, such as \"10m\"; leave it out for no limit",
            );
            None
        }
    }
}

fn shutdown_timeout(raw: &RawTask, most: Duration, findings: &mut Findings) -> Option<Duration> {
    let timeout = raw.shutdown_timeout.as_ref()?;
    match timeout.value.0 {
        SignedDuration::Positive(length) if length <= most => Some(length),
        SignedDuration::Positive(length) => {
            findings.error_help(
                format!(
                    "shutdown_timeout: the task's {} is longer than the deployment's {}",
                    GoDuration::new(length),
                    GoDuration::new(most)
                ),
                timeout.place.clone(),
                "the deployment's ends every task; raise shutdown_timeout at the top of the \
                 configuration, or shorten this one",
            );
            None
        }
        SignedDuration::Negative => {
            findings.error_help(
                "shutdown_timeout: cannot be negative",
                timeout.place.clone(),
                "it is the time that a run of this task has to end after a stop, such as \"1m\"",
            );
            None
        }
    }
}

fn retry(raw: &RawRetry, findings: &mut Findings) -> Retry {
    let mut retry = Retry::TASK;
    if let Some(attempts) = &raw.attempts {
        match u32::try_from(attempts.value).ok().and_then(|tries| tries.checked_sub(1)) {
            Some(retries) => retry.limit = Some(retries),
            None if attempts.value > 0 => findings.error_help(
                format!("retry: attempts: {} is more than {}", attempts.value, u32::MAX),
                attempts.place.clone(),
                "it counts the tries of one run, the first one too",
            ),
            None => findings.error_help(
                format!("retry: attempts: {} is no number of tries", attempts.value),
                attempts.place.clone(),
                "it counts the tries of one run, the first one too: 1 is no second try",
            ),
        }
    }
    if let Some(backoff) = pause("backoff", raw.backoff.as_ref(), findings) {
        retry.backoff = backoff;
    }
    if let Some(longest) = pause("max_backoff", raw.max_backoff.as_ref(), findings) {
        retry.max_backoff = longest;
    }
    if retry.max_backoff < retry.backoff {
        let place = raw.max_backoff.as_ref().and_then(|longest| longest.place.clone());
        findings.error_help(
            format!(
                "retry: max_backoff {} is less than backoff {}",
                GoDuration::new(retry.max_backoff),
                GoDuration::new(retry.backoff)
            ),
            place.or_else(|| raw.backoff.as_ref().and_then(|backoff| backoff.place.clone())),
            "pauses begin with backoff and double up to max_backoff",
        );
    }
    retry
}

/// Refuses a second try that never begins, because the run's time is over before.
fn refuse_tries_without_time(
    raw: &RawTask,
    timeout: Duration,
    retry: Retry,
    findings: &mut Findings,
) {
    if retry.limit == Some(0) || retry.backoff < timeout {
        return;
    }
    let place = raw.retry.as_ref().and_then(|raw| raw.backoff.as_ref()?.place.clone());
    findings.error_help(
        format!(
            "retry: backoff {} is not less than timeout {}",
            GoDuration::new(retry.backoff),
            GoDuration::new(timeout)
        ),
        place.or_else(|| raw.timeout.as_ref().and_then(|timeout| timeout.place.clone())),
        "timeout bounds a run with its pauses, so no second try would begin: raise timeout, \
         shorten backoff, or ask for no second try with attempts = 1",
    );
}

fn pause(
    key: &str,
    raw: Option<&Spanned<GivenDuration>>,
    findings: &mut Findings,
) -> Option<Duration> {
    let raw = raw?;
    match raw.value.0 {
        SignedDuration::Positive(length) if length >= LEAST_BACKOFF => Some(length),
        _ => {
            findings.error_help(
                format!("retry: {key}: must be at least {}", GoDuration::new(LEAST_BACKOFF)),
                raw.place.clone(),
                "it is a pause between two tries, such as \"2s\"",
            );
            None
        }
    }
}

/// The facts that decide whether a task may set an environment variable.
pub(super) struct EnvRules<'a> {
    /// `None` if it is not known which one is meant.
    pub(super) driver: Option<InUse<'a>>,
    pub(super) providers: &'a [ProviderBlock],
    /// Vault is configured, or may be where the configuration cannot be read.
    pub(super) vault_known: bool,
}

/// Checks the environment variables of a task: their names, and that the driver passes them on
/// and sets none of them itself.
pub(super) fn env(raw: &RawTask, rules: &EnvRules<'_>, findings: &mut Findings) -> TaskEnv {
    let mut env = TaskEnv::default();
    for (name, value) in raw.env.iter().flat_map(OneStringMap::entries) {
        let refused = rules
            .driver
            .and_then(|driver| driver.refused_env(name))
            .or_else(|| of_a_provider(name, raw, rules.providers));
        if let Err(error) = env.set(name.as_str(), value.value.as_str()) {
            findings.error(format!("env: {error}"), value.place.clone());
        } else if !rules.vault_known && Dynamic::detect(&value.value) == Some(Dynamic::Vault) {
            findings.error_help(
                format!("env: {name} needs Vault: missing Vault configuration"),
                value.place.clone(),
                "add a vault block",
            );
        } else if let Some(reason) = refused {
            findings.error_help(
                format!("env: {name} cannot be set: {reason}"),
                value.place.clone(),
                "remove it from env",
            );
        }
    }
    env
}

/// Says which of the task's providers sets this variable already.
fn of_a_provider(name: &str, raw: &RawTask, providers: &[ProviderBlock]) -> Option<String> {
    let used = raw.providers.iter().flat_map(|named| &named.items);
    let blocks = used.filter_map(|id| find_provider(providers, &id.value));
    let block = blocks.into_iter().find(|block| block.task_env.contains_key(name))?;
    Some(format!("task_env of terraform_provider {:?} sets it", block.id()))
}

/// The driver in use, with its block.
#[derive(Clone, Copy)]
pub(super) struct InUse<'a> {
    pub(super) kind: &'a dyn DriverKind,
    pub(super) body: Option<&'a super::ConfigValue>,
}

impl InUse<'_> {
    fn refused_env(&self, name: &str) -> Option<String> {
        self.kind.refused_env(name, self.body)
    }
}
