//! The settings of a task that bound its runs, and its environment.

use std::time::Duration;

use consul_watch::GoDuration;
use cts_tasks::Task;
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::support::{load, task, task_text, try_load};

const SERVICES: &str = "condition \"services\" { names = [\"a\"] }\n";

fn of(body: &str) -> Task {
    task(&format!("{SERVICES}{body}"))
}

#[test]
fn a_task_without_bounds_has_none() {
    let task = of("");
    assert!(task.env.is_empty());
    assert_eq!((task.timeout, task.retry, task.shutdown_timeout), (None, None, None));
    // As it was before there were any: an older version reads what this one stores.
    let stored = serde_json::to_value(&task).unwrap();
    for key in ["env", "timeout", "retry", "shutdown_timeout"] {
        assert_eq!(stored.get(key), None, "{key}");
    }
}

#[test]
fn bounds_are_read_and_survive_a_store() {
    let task = of("timeout = \"10m\"\nshutdown_timeout = \"90s\"\n\
         retry {\n attempts = 5\n backoff = \"2s\"\n max_backoff = \"1m\"\n}\n\
         env {\n AWS_REGION = \"eu\"\n NUMBER = 5\n}\n");
    assert_eq!(task.timeout, Some(Duration::from_mins(10)));
    assert_eq!(task.shutdown_timeout, Some(Duration::from_secs(90)));
    let retry = task.retry.unwrap();
    assert_eq!(retry.limit, Some(4));
    assert_eq!(retry.backoff, Duration::from_secs(2));
    assert_eq!(retry.max_backoff, Duration::from_mins(1));
    let env: Vec<_> = task.env.iter().map(|(name, value)| (name, value.expose_secret())).collect();
    assert_eq!(env, [("AWS_REGION", "eu"), ("NUMBER", "5")]);
    let stored = serde_json::to_string(&task).unwrap();
    assert_eq!(serde_json::from_str::<Task>(&stored).unwrap(), task);
}

#[test]
fn a_task_may_take_as_long_to_end_as_the_deployment_gives() {
    let config = load(&format!(
        "shutdown_timeout = \"20m\"\n{}",
        task_text(&format!("{SERVICES}shutdown_timeout = \"20m\""))
    ));
    assert_eq!(config.tasks[0].shutdown_timeout, Some(Duration::from_mins(20)));
}

#[test]
fn a_variable_of_a_provider_of_the_task_is_refused() {
    let provider = "terraform_provider \"aws\" { task_env { TOKEN = \"x\" } }\n";
    let with = |body: &str| format!("{provider}{}", task_text(&format!("{SERVICES}{body}")));
    let found = super::support::error(&with("providers = [\"aws\"]\nenv { TOKEN = \"y\" }"));
    assert_eq!(
        found,
        "test.hcl:7:15: env: TOKEN cannot be set: task_env of terraform_provider \"aws\" sets it"
    );
    // Of a provider that the task does not use there is nothing in its way.
    load(&with("env { TOKEN = \"y\" }"));
}

/// Not among the mistakes that nothing hides: what a driver sets, and whether there is a Vault,
/// is not known where the rest cannot be read.
#[test]
fn what_the_driver_sets_and_a_missing_vault_are_told_with_their_place() {
    for (body, expected) in [
        ("env = { OWN_LOG = \"x\" }", "6:19: env: OWN_LOG cannot be set: the driver sets it"),
        (
            "env { A = \"{{ with secret \\\"s\\\" }}{{ .Data.x }}{{ end }}\" }",
            "6:11: env: A needs Vault: missing Vault configuration",
        ),
    ] {
        let text = task_text(&format!("{SERVICES}\n{body}"));
        assert_eq!(super::support::error(&text), format!("test.hcl:{expected}"));
    }
    let vault = "vault { address = \"https://v\" }\n";
    let text = "env { A = \"{{ with secret \\\"s\\\" }}{{ .Data.x }}{{ end }}\" }";
    load(&format!("{vault}{}", task_text(&format!("{SERVICES}{text}"))));
}

#[test]
fn no_value_of_env_is_shown_with_the_configuration() {
    let text = task_text(&format!("{SERVICES}env {{ TOKEN = \"Zq7XkVWv3J\" }}"));
    let config = load(&text);
    let shown = format!("{config:?} {:?}", config.tasks);
    assert!(shown.contains("TOKEN") && !shown.contains("Zq7X"), "{shown}");
}

proptest! {
    /// Whatever the numbers are, a block is taken with exactly them, or refused.
    #[test]
    fn a_retry_is_what_it_says_or_a_mistake(
        attempts in -2_i64..6, backoff in 0_u64..400, longest in 0_u64..400,
    ) {
        let written = |length: u64| GoDuration::new(Duration::from_millis(length));
        let (first, last) = (written(backoff), written(longest));
        let text = task_text(&format!(
            "{SERVICES}retry {{\n attempts = {attempts}\n backoff = \"{first}\"\n \
             max_backoff = \"{last}\"\n}}"
        ));
        let sound = attempts >= 1 && backoff >= 100 && longest >= backoff;
        match try_load(&text) {
            Ok(loaded) => {
                prop_assert!(sound);
                let retry = loaded.config.tasks[0].retry.unwrap();
                prop_assert_eq!(retry.limit.map(i64::from), Some(attempts - 1));
                prop_assert_eq!(retry.backoff, first.get());
                prop_assert_eq!(retry.max_backoff, last.get());
            }
            Err(found) => {
                prop_assert!(!sound);
                prop_assert!(found.iter().all(|found| found.place.is_some()));
            }
        }
    }
}
