use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::{NODE, Refused, SERF, Seen, SessionRecord, State};
use crate::{
    GoDuration,
    types::{HealthStatus, Session, SessionBehavior, nullable},
};

/// The body of a session's creation, as it comes over the wire.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewSession {
    #[serde(deserialize_with = "nullable")]
    name: String,
    node: Option<String>,
    lock_delay: Value,
    #[serde(deserialize_with = "nullable")]
    behavior: String,
    #[serde(rename = "TTL", deserialize_with = "nullable")]
    ttl: String,
    #[serde(deserialize_with = "present")]
    node_checks: Option<Vec<String>>,
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

/// A list that is `null` is given, and empty.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    Option::<Vec<String>>::deserialize(deserializer).map(|list| Some(list.unwrap_or_default()))
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
        let node_checks = new.node_checks.clone().unwrap_or_else(|| vec![SERF.to_owned()]);
        let service_checks: Vec<String> =
            new.service_checks.iter().map(|check| check.id.clone()).collect();
        let Some(record) = self.nodes.get(&node.to_lowercase()) else {
            return Err(Refused::new(500, "Missing node registration"));
        };
        for id in node_checks.iter().chain(&service_checks) {
            match record.check(id).map(|record| &record.check.status) {
                None => {
                    return Err(Refused::new(500, format!("Missing check '{id}' registration")));
                }
                Some(HealthStatus::Critical) => {
                    return Err(Refused::new(500, format!("Check '{id}' is in critical state")));
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
    ) -> Option<(Session, Vec<String>)> {
        let record = self.sessions.get_mut(id)?;
        record.expires = record.session.ttl.map(|ttl| now + ttl * 2);
        Some((record.session.clone(), record.service_checks.clone()))
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

    /// Sessions that `matches` takes, with the ids of their service checks.
    pub(in crate::testing) fn session_list(
        &self,
        matches: impl Fn(&Session) -> bool,
    ) -> (Vec<(Session, Vec<String>)>, Seen) {
        let found = self.sessions.values().filter(|record| matches(&record.session));
        let list =
            found.map(|record| (record.session.clone(), record.service_checks.clone())).collect();
        (list, Seen::by_index(self.tables.sessions))
    }

    pub(in crate::testing) fn session_info(
        &self,
        id: &str,
    ) -> (Option<(Session, Vec<String>)>, Seen) {
        let found = self
            .sessions
            .get(id)
            .map(|record| (record.session.clone(), record.service_checks.clone()));
        // One object is watched, although the index is the table's.
        let seen = Seen::by_content(
            self.tables.sessions,
            &found.as_ref().map(|(session, _)| session.modify_index),
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
            Refused::new(500, format!("Session TTL '{text}' invalid: time: invalid duration"))
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
fn read_lock_delay(value: &Value) -> Result<Duration, Refused> {
    let bad = || Refused::new(400, "Request decode failed: invalid LockDelay");
    match value {
        Value::Null => Ok(Duration::from_secs(15)),
        Value::String(text) => {
            text.parse::<GoDuration>().map(GoDuration::get).map_err(|_bad| bad())
        }
        Value::Number(number) => {
            let number = number.as_u64().ok_or_else(bad)?;
            Ok(if number < 1000 {
                Duration::from_secs(number)
            } else {
                Duration::from_nanos(number)
            })
        }
        _ => Err(bad()),
    }
}
