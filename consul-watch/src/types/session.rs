//! Sessions and their ids.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize};

use super::{from_go_text, go_text, nullable};

/// Identifies a session; Consul makes it, a UUID.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// A text is not the id of a session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a session id cannot be empty")]
pub struct EmptySessionId;

impl SessionId {
    /// The id as Consul writes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionId {
    type Err = EmptySessionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(text.to_owned())
    }
}

impl TryFrom<String> for SessionId {
    type Error = EmptySessionId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() { Err(EmptySessionId) } else { Ok(Self(text)) }
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

/// Fate of the keys that a session holds when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum SessionBehavior {
    /// The locks are released, the keys stay.
    #[default]
    Release,
    /// The keys are deleted.
    Delete,
}

/// A session, as Consul shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Session {
    /// The session's id.
    #[serde(rename = "ID")]
    pub id: SessionId,
    /// A name for people.
    #[serde(default, deserialize_with = "nullable")]
    pub name: String,
    /// The node that it is bound to.
    #[serde(default, deserialize_with = "nullable")]
    pub node: String,
    /// Time for which its keys cannot be acquired after it was invalidated.
    #[serde(default, deserialize_with = "nanos")]
    pub lock_delay: Duration,
    /// Fate of its keys.
    #[serde(default)]
    pub behavior: SessionBehavior,
    /// Time to live: it ends between one and two of these after its last renewal;
    /// `None` is never.
    #[serde(default, rename = "TTL", deserialize_with = "from_go_text")]
    pub ttl: Option<Duration>,
    /// Node checks that end it when they turn critical.
    #[serde(default, deserialize_with = "nullable")]
    pub node_checks: Vec<String>,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

/// A session to create. The default has no TTL and lives as long as the agent's node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct SessionRequest {
    /// A name for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The node to bind to; `None` is the agent's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Time for which its keys cannot be acquired after it was invalidated. `None`
    /// is Consul's default of 15 s; more than 60 s counts as 60 s.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "go_text")]
    pub lock_delay: Option<Duration>,
    /// Fate of its keys when it ends.
    pub behavior: SessionBehavior,
    /// 10 s to 24 h; `None` is no limit.
    #[serde(rename = "TTL", skip_serializing_if = "Option::is_none", serialize_with = "go_text")]
    pub ttl: Option<Duration>,
    /// Node checks to bind to; `None` is `serfHealth`, an empty list is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_checks: Option<Vec<String>>,
    /// Ids of service checks to bind to.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "service_checks")]
    pub service_checks: Vec<String>,
}

fn nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let nanos = Option::<i64>::deserialize(deserializer)?.unwrap_or(0);
    Ok(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)))
}

fn service_checks<S: serde::Serializer>(ids: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ids.iter().map(|id| serde_json::json!({ "ID": id })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_as_consul_writes_them() {
        let session: Session = serde_json::from_str(
            r#"{"ID":"x","Name":"","Node":"n","LockDelay":15000000000,"Behavior":"release","TTL":"",
                "NodeChecks":["serfHealth"],"ServiceChecks":null,"CreateIndex":5,"ModifyIndex":5}"#,
        )
        .unwrap();
        assert_eq!((session.lock_delay, session.ttl), (Duration::from_secs(15), None));
        assert!(serde_json::from_str::<Session>(r#"{"ID":""}"#).is_err());
    }

    #[test]
    fn requests_say_only_what_differs_from_the_default() {
        let json = serde_json::to_string(&SessionRequest::default()).unwrap();
        assert_eq!(json, r#"{"Behavior":"release"}"#);
        let request = SessionRequest {
            lock_delay: Some(Duration::ZERO),
            ttl: Some(Duration::from_secs(10)),
            node_checks: Some(Vec::new()),
            service_checks: vec!["c".into()],
            ..SessionRequest::default()
        };
        assert_eq!(
            serde_json::to_string(&request).unwrap(),
            r#"{"LockDelay":"0s","Behavior":"release","TTL":"10s","NodeChecks":[],"ServiceChecks":[{"ID":"c"}]}"#
        );
    }
}
