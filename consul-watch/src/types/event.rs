//! User events.

use bytes::Bytes;
use serde::Deserialize;

use super::from_base64;

/// A user event, as an agent has received it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct UserEvent {
    /// The event's id, a UUID.
    #[serde(rename = "ID")]
    pub id: String,
    /// The event's name.
    pub name: String,
    /// Payload; not necessarily text.
    #[serde(default, deserialize_with = "from_base64")]
    pub payload: Bytes,
    /// Expression for the nodes that it is meant for.
    #[serde(default)]
    pub node_filter: String,
    /// Expression for the services that it is meant for.
    #[serde(default)]
    pub service_filter: String,
    /// Expression for the tags of these services.
    #[serde(default)]
    pub tag_filter: String,
    /// Version of the message format.
    #[serde(default)]
    pub version: u64,
    /// Gossip's logical time; it does not order events strictly.
    #[serde(default, rename = "LTime")]
    pub logical_time: u64,
}

impl UserEvent {
    /// Returns `X-Consul-Index` as it is while this is the agent's newest event: the
    /// two halves of its id, combined bit by bit. `None` if the id is not a UUID.
    ///
    /// These numbers have no order.
    ///
    /// Source: Consul 1.21 `agent/event_endpoint.go` (`uuidToUint64`).
    pub fn index(&self) -> Option<u64> {
        let part = |from: usize, to: usize| self.id.get(from..to);
        let lower = [part(0, 8)?, part(9, 13)?, part(14, 18)?].concat();
        let upper = [part(19, 23)?, part(24, 36)?].concat();
        let lower = u64::from_str_radix(&lower, 16).ok()?;
        let upper = u64::from_str_radix(&upper, 16).ok()?;
        // Consul replaces an index of 0 by 1.
        Some((lower ^ upper).max(1))
    }
}

/// The events after the one that was the newest when the index was `seen`.
///
/// If that one is not there any more, because an agent keeps only 256, all are new.
///
/// ```
/// # use consul_watch::types::{UserEvent, new_events};
/// # fn example(events: &[UserEvent], index: Option<u64>) {
/// for event in new_events(events, index) {
///     println!("{}: {} bytes", event.name, event.payload.len());
/// }
/// # }
/// ```
pub fn new_events(events: &[UserEvent], seen: Option<u64>) -> &[UserEvent] {
    let known = seen.and_then(|seen| events.iter().rposition(|event| event.index() == Some(seen)));
    known.and_then(|at| events.get(at + 1..)).unwrap_or(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured() -> Vec<UserEvent> {
        serde_json::from_str(include_str!("../../tests/data/1.8.7/event-list.json")).unwrap()
    }

    /// Spec: CP49
    #[test]
    fn the_index_is_the_newest_events_id() {
        let events: Vec<UserEvent> = serde_json::from_str(
            r#"[{"ID":"aa578d81-a30b-41a2-40bd-bc2fd8ca1fd2","Name":"a"}, {"ID":"x","Name":"b"}]"#,
        )
        .unwrap();
        // As Consul 1.8.7 answered.
        assert_eq!(events[0].index(), Some(16_927_396_774_895_771_248));
        assert_eq!(events[1].index(), None);
    }

    /// Spec: CW11
    #[test]
    fn only_what_came_after_the_last_seen_event_is_new() {
        let events = captured();
        assert_eq!(events.len(), 2);
        assert_eq!(new_events(&events, None).len(), 2);
        assert_eq!(new_events(&events, Some(1)).len(), 2);
        assert_eq!(new_events(&events, events[0].index()), &events[1..]);
        assert!(new_events(&events, events[1].index()).is_empty());
    }

    #[test]
    fn payloads_are_bytes() {
        let events = captured();
        assert_eq!(events[0].payload.as_ref(), b"\xff\x00payload");
        assert!(events[1].payload.is_empty());
    }
}
