//! Sessions of the double: what keeps them alive, and what their end does.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{NODE, Refused, Seen, SessionRecord, State, names::SERF};
use crate::{
    GoDuration,
    types::{HealthStatus, Session, SessionBehavior, nullable},
};

/// The body of a session's creation, as it comes over the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[expect(clippy::option_option, reason = "Consul tells left out, null and a list apart")]
pub(in crate::testing) struct NewSession {
    #[serde(deserialize_with = "nullable")]
    name: String,
    node: Option<String>,
    lock_delay: Value,
    #[serde(deserialize_with = "nullable")]
    behavior: String,
    #[serde(rename = "TTL", deserialize_with = "nullable")]
    ttl: String,
    /// `None` is left out, `Some(None)` is `null`.
    #[serde(deserialize_with = "present")]
    node_checks: Option<Option<Vec<String>>>,
    /// Stands in for the checks of the node, from before there were others.
    #[serde(deserialize_with = "present")]
    checks: Option<Option<Vec<String>>>,
    #[serde(deserialize_with = "nullable")]
    service_checks: Vec<ServiceCheck>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ServiceCheck {
    #[serde(rename = "ID")]
    id: String,
}

impl NewSession {
    /// The node that it is to belong to.
    pub(in crate::testing) fn node_name(&self) -> &str {
        self.node.as_deref().unwrap_or(NODE)
    }
}

/// Tells a member that is `null` from one that is left out.
#[expect(clippy::option_option, reason = "Consul tells the three apart in its answers")]
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Vec<String>>>, D::Error> {
    Option::<Vec<String>>::deserialize(deserializer).map(Some)
}

const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_hours(24);

impl State {
    pub(in crate::testing) fn session_create(
        &mut self,
        new: &NewSession,
        now: Instant,
    ) -> Result<String, Refused> {
        let ttl = read_ttl(&new.ttl)?;
        let delete_keys = match new.behavior.as_str() {
            "" | "release" => false,
            "delete" => true,
            other => {
                return Err(Refused::new(500, format!("Invalid Behavior setting '{other}'")));
            }
        };
        let lock_delay = read_lock_delay(&new.lock_delay)?;
        let node = new.node_name().to_owned();
        if node.is_empty() {
            return Err(Refused::new(500, "Must provide Node"));
        }
        let given = new.checks.clone().or_else(|| new.node_checks.clone());
        let shown = given.unwrap_or_else(|| Some(vec![SERF.to_owned()]));
        let node_checks = shown.clone().unwrap_or_default();
        let failed = |text: String| {
            let start = if self.is_1_8() { "" } else { "apply failed: " };
            Refused::new(500, format!("{start}{text}"))
        };
        let service_checks: Vec<String> =
            new.service_checks.iter().map(|check| check.id.clone()).collect();
        let Some(record) = self.nodes.get(&node.to_lowercase()) else {
            return Err(failed("Missing node registration".to_owned()));
        };
        for id in node_checks.iter().chain(&service_checks) {
            match record.check(id).map(|record| &record.check.status) {
                None => {
                    return Err(failed(format!("Missing check '{id}' registration")));
                }
                Some(HealthStatus::Critical) => {
                    return Err(failed(format!("Check '{id}' is in critical state")));
                }
                Some(_) => {}
            }
        }
        let text = self.uuid();
        let index = self.commit();
        let session = Session {
            id: text.clone().try_into().map_err(|_bad| Refused::new(500, "no id"))?,
            name: new.name.clone(),
            node,
            lock_delay,
            behavior: if delete_keys { SessionBehavior::Delete } else { SessionBehavior::Release },
            ttl,
            node_checks,
            create_index: index,
            modify_index: index,
        };
        let record = SessionRecord {
            expires: ttl.map(|ttl| now + ttl * 2),
            session,
            ttl: new.ttl.clone(),
            node_checks: shown,
            delete_keys,
            service_checks,
        };
        self.sessions.insert(text.clone(), record);
        self.tables.sessions = index;
        Ok(text)
    }

    pub(in crate::testing) fn session_destroy(&mut self, id: &str, now: Instant) {
        let index = self.commit();
        self.end_session(id, index, now);
    }

    pub(super) fn end_session(&mut self, id: &str, index: u64, now: Instant) {
        let Some(record) = self.sessions.remove(id) else {
            return;
        };
        self.tables.sessions = index;
        self.unlock(id, record.delete_keys, record.session.lock_delay, index, now);
        self.end_queries_of(id, index);
    }

    /// Ends the sessions of a node that depend on a check, or with `None` all of the node's.
    pub(super) fn end_bound_sessions(
        &mut self,
        node: &str,
        check: Option<&str>,
        index: u64,
        now: Instant,
    ) {
        let ended: Vec<String> = self
            .sessions
            .iter()
            .filter(|(_, record)| record.session.node.eq_ignore_ascii_case(node))
            .filter(|(_, record)| {
                check.is_none_or(|check| {
                    record
                        .session
                        .node_checks
                        .iter()
                        .chain(&record.service_checks)
                        .any(|bound| bound.eq_ignore_ascii_case(check))
                })
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            self.end_session(&id, index, now);
        }
    }

    pub(in crate::testing) fn session_renew(
        &mut self,
        id: &str,
        now: Instant,
    ) -> Option<SessionRecord> {
        let record = self.sessions.get_mut(id)?;
        record.expires = record.session.ttl.map(|ttl| now + ttl * 2);
        Some(record.clone())
    }

    /// Starts all timers again, as a new leader does.
    pub(in crate::testing) fn restart_session_timers(&mut self, now: Instant) {
        for record in self.sessions.values_mut() {
            record.expires = record.session.ttl.map(|ttl| now + ttl * 2);
        }
        self.lock_delays.clear();
    }

    pub(super) fn expire_sessions(&mut self, now: Instant) {
        let due: Vec<String> = self
            .sessions
            .iter()
            .filter(|(_, record)| record.expires.is_some_and(|expires| expires <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            self.session_destroy(&id, now);
        }
    }

    /// Sessions that `matches` takes.
    pub(in crate::testing) fn session_list(
        &self,
        matches: impl Fn(&Session) -> bool,
    ) -> (Vec<SessionRecord>, Seen) {
        let found = self.sessions.values().filter(|record| matches(&record.session));
        (found.cloned().collect(), Seen::by_index(self.tables.sessions))
    }

    pub(in crate::testing) fn session_info(&self, id: &str) -> (Option<SessionRecord>, Seen) {
        let found = self.sessions.get(id).cloned();
        // One object is watched, although the index is the table's.
        let seen = Seen::by_content(
            self.tables.sessions,
            &found.as_ref().map(|record| record.session.modify_index),
        );
        (found, seen)
    }
}

fn read_ttl(text: &str) -> Result<Option<Duration>, Refused> {
    if text.is_empty() {
        return Ok(None);
    }
    let ttl = text
        .parse::<GoDuration>()
        .map_err(|_bad| {
            let words = format!("time: invalid duration {text:?}");
            Refused::new(500, format!("Session TTL '{text}' invalid: {words}"))
        })?
        .get();
    if ttl.is_zero() {
        return Ok(None);
    }
    if ttl < SHORTEST || ttl > LONGEST {
        let given = ttl.as_nanos();
        return Err(Refused::new(
            500,
            format!(
                "Invalid Session TTL '{given}', must be between [{}={}]",
                GoDuration::new(SHORTEST),
                GoDuration::new(LONGEST)
            ),
        ));
    }
    Ok(Some(ttl))
}

/// A text, or a number: of seconds below 1000, else of nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number below zero is taken as zero, and a fraction is cut off"
)]
fn read_lock_delay(value: &Value) -> Result<Duration, Refused> {
    match value {
        Value::String(text) => {
            // A delay below zero is none.
            let magnitude = text.strip_prefix('-').unwrap_or(text);
            let read = magnitude.parse::<GoDuration>().map_err(|_bad| {
                let words = format!("time: invalid duration {text:?}");
                Refused::new(400, format!("Request decode failed: {words}"))
            })?;
            Ok(if text.starts_with('-') { Duration::ZERO } else { read.get() })
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default().max(0.0) as u64;
            Ok(if number < 1000 {
                Duration::from_secs(number)
            } else {
                Duration::from_nanos(number)
            })
        }
        Value::Null => Ok(Duration::from_secs(15)),
        // What is neither counts as no delay.
        _ => Ok(Duration::ZERO),
    }
}
