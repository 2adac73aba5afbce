//! Sets up passive health checks of upstreams, which are part of a service's `service-defaults`.

use std::time::Duration;

use consul_watch::{
    Client, QueryOptions, WriteOptions,
    types::{ConfigEntry, JsonObject},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    Error, Result,
    config::{OutlierDetectionConfig, ResilienceConfig},
    registration::{MeshService, RetryPolicy, retry},
};

const KIND: &str = "service-defaults";
/// Number of attempts: one, and upstream's five retries.
const ATTEMPTS: u32 = 6;

/// Builds the passive health check of a configuration.
///
/// Source: consul-ecs 0.10 `subcommand/mesh-init` and its `config`: without an object there are
/// four defaults, with one only the last two of them.
pub fn passive_health_check(outliers: Option<&OutlierDetectionConfig>) -> JsonObject {
    let settings = match outliers {
        Some(given) => OutlierDetectionConfig {
            interval: given.interval.or(Some(0)),
            max_failures: given.max_failures.or(Some(0)),
            ..*given
        },
        None => OutlierDetectionConfig {
            // 10 s in nanoseconds, as the configuration counts.
            interval: Some(10_000_000_000),
            max_failures: Some(5),
            ..OutlierDetectionConfig::default()
        },
    };
    let members = [
        ("Interval", settings.interval),
        ("MaxFailures", settings.max_failures.map(u64::from)),
        ("EnforcingConsecutive5xx", settings.enforcing_consecutive_5xx.map(u64::from)),
        ("Consecutive5xx", settings.consecutive_5xx.map(u64::from)),
        (
            "EnforcingConsecutiveGatewayFailure",
            Some(settings.enforcing_consecutive_gateway_failure.map_or(100, u64::from)),
        ),
        ("ConsecutiveGatewayFailure", settings.consecutive_gateway_failure.map(u64::from)),
        ("MaxEjectionPercent", Some(settings.max_ejection_percent.map_or(50, u64::from))),
    ];
    members
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))))
        .collect()
}

/// Adds the check to the defaults of an entry's upstreams, unless it has one there.
pub fn merged(mut entry: ConfigEntry, check: JsonObject) -> ConfigEntry {
    let mut upstreams = taken(&mut entry.settings, "UpstreamConfig");
    let mut defaults = taken(&mut upstreams, "Defaults");
    if defaults.get("PassiveHealthCheck").is_none_or(Value::is_null) {
        defaults.insert("PassiveHealthCheck".to_owned(), Value::Object(check));
    }
    upstreams.insert("Defaults".to_owned(), Value::Object(defaults));
    entry.settings.insert("UpstreamConfig".to_owned(), Value::Object(upstreams));
    entry
}

/// Removes and returns the object of a name; an empty one if there is none.
fn taken(members: &mut JsonObject, name: &str) -> JsonObject {
    match members.remove(name) {
        Some(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

/// Returns `true` if an error reports that there is no such entry.
pub fn is_not_found(error: &consul_watch::Error) -> bool {
    // By its text, since the status alone (404 or 500) does not tell.
    let text = error.to_string().to_lowercase();
    !error.is_permission_denied()
        && error.status().is_some()
        && (text.contains("not found") || text.contains("no such config entry"))
}

/// Sets up the check that the configuration asks for; an existing one stays.
///
/// Defaults that this Consul does not know are left out, settings of the configuration are not.
///
/// Deviation: upstream fails where Consul does not know a member, and overwrites a change that
/// somebody else makes at the same time; here an entry is replaced only as it was read.
///
/// # Errors
///
/// [`Error::Consul`] if the entry can be neither read nor found missing, or not written in six
/// attempts; [`Error::Other`] if somebody else changes it each time.
pub async fn set_up(
    client: &Client,
    service: &MeshService,
    resilience: &ResilienceConfig,
    stop: &CancellationToken,
) -> Result<()> {
    let mut options = WriteOptions::default();
    options.namespace.clone_from(&service.namespace);
    options.partition.clone_from(&service.partition);
    let options = &options;
    let policy = RetryPolicy::every(Duration::from_secs(1)).with_attempts(ATTEMPTS);
    let outliers = resilience.outlier_detection.as_ref();
    let mut check = passive_health_check(outliers);
    for _ in 0..ATTEMPTS {
        let existing = existing(client, service).await?;
        // Check-and-set with index 0 creates only.
        let index = existing.as_ref().map_or(0, |entry| entry.modify_index);
        let entry = existing.unwrap_or_else(|| ConfigEntry::new(KIND, service.name.as_str()));
        let entry = &merged(entry, check.clone());
        let written = retry(policy, "writing service defaults", stop, || async move {
            match client.config_set(entry, Some(index), options).await {
                Ok(true) => Ok(Written::Done),
                Ok(false) => Ok(Written::Conflict),
                Err(error) => match unknown_members(&error) {
                    members if members.is_empty() => {
                        Err(Error::consul("writing service defaults", error))
                    }
                    members => Ok(Written::Unknown(members, error)),
                },
            }
        });
        match written.await? {
            Written::Done => return Ok(()),
            Written::Conflict => {
                tracing::debug!(
                    service = service.name,
                    "the service defaults have changed meanwhile"
                );
            }
            Written::Unknown(members, error) => {
                let before = check.len();
                // The configuration's own settings stay, so that the refusal then names them.
                check.retain(|name, _| !members.contains(name) || is_set(name, outliers));
                if check.len() == before {
                    return Err(Error::consul("writing service defaults", error));
                }
                tracing::debug!(?members, "this Consul does not know all defaults; without them");
            }
        }
    }
    Err(Error::Other {
        operation: "writing service defaults",
        retryable: true,
        source: "somebody else keeps changing them".into(),
    })
}

/// Outcome of a write.
enum Written {
    Done,
    /// The entry is no longer as it was read.
    Conflict,
    /// Consul does not know these members of the check.
    Unknown(Vec<String>, consul_watch::Error),
}

/// Returns the members of a passive health check that an older Consul refuses.
///
/// Source: measured on Consul 1.19.2, which does not know `EnforcingConsecutiveGatewayFailure`.
fn unknown_members(error: &consul_watch::Error) -> Vec<String> {
    let text = error.to_string();
    let keys =
        text.split("invalid config key \"").skip(1).filter_map(|rest| rest.split('"').next());
    let members =
        keys.filter_map(|key| key.strip_prefix("UpstreamConfig.Defaults.PassiveHealthCheck."));
    members.map(str::to_owned).collect()
}

/// Returns `true` if the configuration sets this member.
fn is_set(member: &str, outliers: Option<&OutlierDetectionConfig>) -> bool {
    outliers.is_some_and(|given| match member {
        "Interval" => given.interval.is_some(),
        "MaxFailures" => given.max_failures.is_some(),
        "EnforcingConsecutiveGatewayFailure" => {
            given.enforcing_consecutive_gateway_failure.is_some()
        }
        "MaxEjectionPercent" => given.max_ejection_percent.is_some(),
        // All others are present only if they were given.
        _ => true,
    })
}

async fn existing(client: &Client, service: &MeshService) -> Result<Option<ConfigEntry>> {
    let mut query = QueryOptions::default();
    query.namespace.clone_from(&service.namespace);
    query.partition.clone_from(&service.partition);
    match client.config_entry(KIND, &service.name, &query).await {
        Ok(answer) => Ok(answer.value),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => {
            let operation =
                format!("failed to fetch existing service defaults for service {:?}", service.name);
            Err(Error::consul(operation, error))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(outliers: Option<OutlierDetectionConfig>) -> Value {
        Value::Object(passive_health_check(outliers.as_ref()))
    }

    /// Case MI25: unset members of outlier detection have defaults, set ones stay.
    #[test]
    fn what_is_missing_has_defaults() {
        let two = json!({"EnforcingConsecutiveGatewayFailure": 100, "MaxEjectionPercent": 50});
        let mut all = two.clone();
        all["Interval"] = 10_000_000_000_u64.into();
        all["MaxFailures"] = 5.into();
        assert_eq!(check(None), all);
        let mut empty = two;
        empty["Interval"] = 0.into();
        empty["MaxFailures"] = 0.into();
        assert_eq!(check(Some(OutlierDetectionConfig::default())), empty);
        let given = OutlierDetectionConfig {
            interval: Some(1),
            max_failures: Some(2),
            enforcing_consecutive_5xx: Some(3),
            consecutive_5xx: Some(4),
            enforcing_consecutive_gateway_failure: Some(5),
            consecutive_gateway_failure: Some(6),
            max_ejection_percent: Some(7),
        };
        assert_eq!(
            check(Some(given)),
            json!({"Interval": 1, "MaxFailures": 2, "EnforcingConsecutive5xx": 3, "Consecutive5xx": 4,
                "EnforcingConsecutiveGatewayFailure": 5, "ConsecutiveGatewayFailure": 6, "MaxEjectionPercent": 7})
        );
        let partial =
            OutlierDetectionConfig { max_failures: Some(9), ..OutlierDetectionConfig::default() };
        empty["MaxFailures"] = 9.into();
        assert_eq!(check(Some(partial)), empty);
    }

    /// Case MI23: service-defaults without a passive health check get one; an existing one stays.
    #[test]
    fn an_entry_keeps_what_it_has() {
        let check = passive_health_check(None);
        let new = merged(ConfigEntry::new(KIND, "web"), check.clone());
        assert_eq!(
            new.settings["UpstreamConfig"]["Defaults"]["PassiveHealthCheck"],
            Value::Object(check.clone())
        );
        let mut entry = ConfigEntry::new(KIND, "web");
        entry.settings =
            json!({"Protocol": "http", "UpstreamConfig": {"Defaults": {"ConnectTimeoutMs": 1}}})
                .as_object()
                .unwrap()
                .clone();
        let with = merged(entry, check.clone());
        assert_eq!(with.settings["Protocol"], "http");
        assert_eq!(with.settings["UpstreamConfig"]["Defaults"]["ConnectTimeoutMs"], 1);
        assert_eq!(
            with.settings["UpstreamConfig"]["Defaults"]["PassiveHealthCheck"]["MaxFailures"],
            5
        );
        let mut own = ConfigEntry::new(KIND, "web");
        own.settings =
            json!({"UpstreamConfig": {"Defaults": {"PassiveHealthCheck": {"MaxFailures": 1}}}})
                .as_object()
                .unwrap()
                .clone();
        assert_eq!(merged(own.clone(), check), own);
    }

    /// Case MI24: only the texts of a missing entry, in any case of letters, count as "not found";
    /// a refusal or a network error does not.
    #[test]
    fn only_what_is_not_there_counts_as_not_found() {
        let status = |status: u16, message: &str| consul_watch::Error::Status {
            operation: "config.get",
            status: http_status(status),
            message: message.to_owned(),
            retry_after: None,
        };
        for text in
            ["not found", "No such config entry", "NOT FOUND", "Config entry Not Found for it"]
        {
            assert!(is_not_found(&status(404, text)) && is_not_found(&status(500, text)), "{text}");
        }
        assert!(!is_not_found(&status(403, "Permission denied")));
        assert!(!is_not_found(&status(500, "rpc error: Permission denied")));
        let network = consul_watch::Error::Transport {
            operation: "config.get",
            address: "x".into(),
            source: "host not found".into(),
        };
        assert!(!is_not_found(&network));
    }

    fn http_status(code: u16) -> http::StatusCode {
        http::StatusCode::from_u16(code).unwrap()
    }
}
