//! User events in the double: the last 256.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{Refused, State, format::go_regexp_words};
use crate::types::UserEvent;

/// Events that an agent keeps.
const KEPT: usize = 256;
/// Longest payload that gossip carries, with the event's name.
const LIMIT: usize = 512;

/// For whom an event is meant, as regular expressions.
#[derive(Debug, Default)]
pub(in crate::testing) struct EventTarget {
    pub(in crate::testing) node: String,
    pub(in crate::testing) service: String,
    pub(in crate::testing) tag: String,
}

impl State {
    /// Fires an event, which the only agent has received at once.
    pub(in crate::testing) fn event_fire(
        &mut self,
        name: &str,
        payload: Bytes,
        target: EventTarget,
    ) -> Result<Value, Refused> {
        if name.is_empty() {
            return Err(Refused::new(400, "Missing name"));
        }
        for (what, expression) in
            [("node", &target.node), ("service", &target.service), ("tag", &target.tag)]
        {
            if let Err(problem) = regex::Regex::new(expression) {
                let words = go_regexp_words(expression, &problem);
                let text = format!("Invalid {what} filter: {words}");
                return Err(Refused::new(500, text));
            }
        }
        if !target.tag.is_empty() && target.service.is_empty() {
            return Err(Refused::new(500, "Cannot provide tag filter without service filter"));
        }
        if name.len() + payload.len() > LIMIT {
            let text =
                format!("user event exceeds configured limit of {LIMIT} bytes before encoding");
            return Err(Refused::new(500, text));
        }
        let logical_time = self.events.0.back().map_or(1, |last| last.logical_time) + 1;
        let event = UserEvent {
            id: self.uuid(),
            name: name.to_owned(),
            payload,
            node_filter: target.node,
            service_filter: target.service,
            tag_filter: target.tag,
            version: 1,
            logical_time,
        };
        // The answer is written before gossip has given the event its time.
        let answer = event_json(&UserEvent { logical_time: 0, ..event.clone() });
        self.events.0.push_back(event);
        if self.events.0.len() > KEPT {
            self.events.0.pop_front();
        }
        Ok(answer)
    }

    /// Events that `matches` takes, and the number that stands for the newest
    /// of them. These numbers have no order.
    pub(in crate::testing) fn event_list(
        &self,
        matches: impl Fn(&UserEvent) -> bool,
    ) -> (Value, u64) {
        let found: Vec<&UserEvent> = self.events.0.iter().filter(|event| matches(event)).collect();
        let index = found.last().and_then(|last| last.index()).unwrap_or(1);
        (found.into_iter().map(event_json).collect(), index)
    }
}

fn event_json(event: &UserEvent) -> Value {
    let payload = Some(&event.payload).filter(|payload| !payload.is_empty());
    json!({
        "ID": event.id, "Name": event.name, "Payload": payload.map(|bytes| STANDARD.encode(bytes)),
        "NodeFilter": event.node_filter, "ServiceFilter": event.service_filter,
        "TagFilter": event.tag_filter, "Version": event.version, "LTime": event.logical_time,
    })
}
