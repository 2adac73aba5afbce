//! Intentions in the double, by precedence.

use serde_json::Value;
use tokio::time::Instant;

use super::{
    Refused, Seen, State,
    names::is_uuid,
    tables::{IntentionBody, Record},
};

/// The basis of the decision about a connection.
#[derive(Debug)]
pub(in crate::testing) enum Verdict {
    /// An intention, and how it is shown.
    Matched(bool, String),
    /// No intention: the default.
    Default(bool),
}

impl Verdict {
    pub(in crate::testing) fn allows(&self) -> bool {
        match self {
            Self::Matched(allowed, _) | Self::Default(allowed) => *allowed,
        }
    }
}

impl State {
    /// Intentions that `matches` takes, the deciding one first.
    fn sorted(&self, matches: impl Fn(&IntentionBody) -> bool) -> Vec<&Record> {
        let all = self.intentions.all.values();
        let mut found: Vec<&Record> = all.filter(|record| matches(&record.body)).collect();
        found.sort_by(|a, b| {
            let precedence = b.body.precedence().cmp(&a.body.precedence());
            precedence.then_with(|| a.body.names().cmp(&b.body.names()))
        });
        found
    }

    /// All intentions; `sees` gets the names of both ends.
    pub(in crate::testing) fn intention_list(
        &self,
        sees: impl Fn(&str, &str) -> bool,
    ) -> (Vec<Value>, Seen) {
        let found = self.sorted(|body| sees(&body.source_name, &body.destination_name));
        let old = self.is_1_8();
        let list = found.iter().map(|record| record.json(old)).collect();
        (list, Seen::by_index(self.intentions.index))
    }

    /// The intentions that concern a service, at one end or the other.
    pub(in crate::testing) fn intention_match(
        &self,
        by_source: bool,
        service: &str,
    ) -> (Vec<Value>, Seen) {
        let found = self.sorted(|body| {
            let name = if by_source { &body.source_name } else { &body.destination_name };
            name == service || name == "*"
        });
        let content: Vec<_> =
            found.iter().map(|record| (record.created, record.modified)).collect();
        let old = self.is_1_8();
        let list = found.iter().map(|record| record.json(old)).collect();
        (list, Seen::by_content(self.intentions.index, &content))
    }

    /// Judges a connection from one service to another, by the intention that comes first.
    pub(in crate::testing) fn intention_verdict(&self, source: &str, destination: &str) -> Verdict {
        let fits = |name: &str, wanted: &str| name == "*" || name == wanted;
        let found = self.sorted(|body| {
            fits(&body.source_name, source) && fits(&body.destination_name, destination)
        });
        match found.first() {
            Some(record) => Verdict::Matched(record.body.action == "allow", record.shown()),
            None => Verdict::Default(!self.acls_enabled() || self.acl_default_allow()),
        }
    }

    /// The names of both ends of an intention, by its id.
    pub(in crate::testing) fn intention_ends(&self, id: &str) -> Option<(String, String)> {
        let body = &self.intentions.all.get(id).filter(|record| record.id == id)?.body;
        Some((body.source_name.clone(), body.destination_name.clone()))
    }

    pub(in crate::testing) fn intention_by_id(
        &self,
        id: &str,
    ) -> Result<(Option<Value>, Seen), Refused> {
        check_intention_id(id, self.is_1_8())?;
        let found = self.intentions.all.get(id).filter(|record| record.id == id);
        let value = found.map(|record| record.json(self.is_1_8()));
        Ok((value, self.seen_one(found)))
    }

    pub(in crate::testing) fn intention_between(
        &self,
        source: &str,
        destination: &str,
    ) -> (Option<Value>, Seen) {
        let found = self.between(source, destination).map(|(_, record)| record);
        (found.map(|record| record.json(self.is_1_8())), self.seen_one(found))
    }

    fn seen_one(&self, found: Option<&Record>) -> Seen {
        let content = found.map(|record| (record.created, record.modified));
        Seen::by_content(self.intentions.index, &content)
    }

    fn between(&self, source: &str, destination: &str) -> Option<(&String, &Record)> {
        self.intentions.all.iter().find(|(_, record)| {
            record.body.source_name == source && record.body.destination_name == destination
        })
    }

    /// Makes an intention with an id.
    pub(in crate::testing) fn intention_create(
        &mut self,
        mut body: IntentionBody,
        now: Instant,
    ) -> Result<String, Refused> {
        if !body.id.is_empty() {
            let text = "ID must be empty when creating a new intention";
            return Err(Refused::new(500, text));
        }
        body.settle();
        body.check(self.is_1_8())?;
        self.refuse_duplicate(&body, "")?;
        let id = self.uuid();
        self.store(id.clone(), id.clone(), body, None, now);
        Ok(id)
    }

    fn refuse_duplicate(&self, body: &IntentionBody, own: &str) -> Result<(), Refused> {
        let all = self.intentions.all.iter();
        let twin =
            all.filter(|(id, _)| *id != own).find(|(_, other)| other.body.names() == body.names());
        match twin {
            Some(_) if !self.is_1_8() => {
                // The entry of the destination would have the source once more.
                let of = |record: &&Record| record.body.destination_name == body.destination_name;
                let sources = self.intentions.all.values().filter(of).count();
                let name = &body.source_name;
                let text = format!("Sources[{sources}] defines {name:?} more than once");
                Err(Refused::new(500, text))
            }
            Some((_, twin)) => {
                Err(Refused::new(500, format!("duplicate intention found: {}", twin.shown())))
            }
            None => Ok(()),
        }
    }

    pub(in crate::testing) fn intention_update(
        &mut self,
        id: &str,
        mut body: IntentionBody,
        now: Instant,
    ) -> Result<(), Refused> {
        lookup(id, self.is_1_8())?;
        let Some(old) = self.intentions.all.get(id).cloned() else {
            let text = format!("Cannot modify non-existent intention: '{id}'");
            return Err(Refused::new(500, text));
        };
        body.settle();
        if !self.is_1_8() && body.destination_name != old.body.destination_name {
            let text = "Cannot modify Destination partition/namespace/name for an intention once it exists.";
            return Err(Refused::new(500, text));
        }
        body.check(self.is_1_8())?;
        self.refuse_duplicate(&body, id)?;
        self.store(id.to_owned(), id.to_owned(), body, Some(&old), now);
        Ok(())
    }

    /// Makes or replaces the intention between two services.
    pub(in crate::testing) fn intention_set(
        &mut self,
        mut body: IntentionBody,
        now: Instant,
    ) -> Result<(), Refused> {
        body.settle();
        body.check(self.is_1_8())?;
        let old = self.between(&body.source_name, &body.destination_name);
        let old = old.map(|(key, record)| (key.clone(), record.clone()));
        match old {
            Some((_, record)) if record.body == body => {}
            Some((key, record)) => self.store(key, record.id.clone(), body, Some(&record), now),
            None => {
                let key = self.uuid();
                self.store(key, String::new(), body, None, now);
            }
        }
        Ok(())
    }

    fn store(
        &mut self,
        key: String,
        id: String,
        mut body: IntentionBody,
        old: Option<&Record>,
        now: Instant,
    ) {
        body.id = String::new();
        let (index, updated_at) = (self.commit(), self.wall(now));
        let record = Record {
            body,
            id,
            created_at: old.map_or(updated_at, |old| old.created_at),
            updated_at,
            created: old.map_or(index, |old| old.created),
            modified: index,
        };
        self.intentions.all.insert(key, record);
        self.intentions.index = index;
    }

    pub(in crate::testing) fn intention_delete(&mut self, id: &str) -> Result<(), Refused> {
        lookup(id, self.is_1_8())?;
        if self.intentions.all.remove(id).is_none() {
            let text = format!("Cannot delete non-existent intention: '{id}'");
            return Err(Refused::new(500, text));
        }
        self.intentions.index = self.commit();
        Ok(())
    }

    pub(in crate::testing) fn intention_delete_between(&mut self, source: &str, destination: &str) {
        let Some(key) = self.between(source, destination).map(|(key, _)| key.clone()) else {
            return;
        };
        self.intentions.all.remove(&key);
        self.intentions.index = self.commit();
    }

    pub(super) fn lower_intentions(&mut self, lower: impl Fn(&mut u64)) {
        lower(&mut self.intentions.index);
        for record in self.intentions.all.values_mut() {
            lower(&mut record.created);
            lower(&mut record.modified);
        }
    }
}

/// Why an id is none, in the words of the table that keeps intentions: since 1.9 they are
/// parts of configuration entries.
fn problem(id: &str, old: bool) -> Option<String> {
    if is_uuid(id) {
        return None;
    }
    let problem = if id.len() == 36 { "Invalid UUID" } else { "UUID must be 36 characters" };
    let what = if old { "intention" } else { "config entry" };
    Some(format!("failed {what} lookup: index error: {problem}"))
}

fn check_intention_id(id: &str, old: bool) -> Result<(), Refused> {
    if id.is_empty() && !old {
        return Err(Refused::new(404, "Intention not found"));
    }
    let start = if old { "Bad request: " } else { "" };
    problem(id, old).map_or(Ok(()), |text| Err(Refused::new(400, format!("{start}{text}"))))
}

fn lookup(id: &str, old: bool) -> Result<(), Refused> {
    problem(id, old)
        .map_or(Ok(()), |text| Err(Refused::new(500, format!("Intention lookup failed: {text}"))))
}
