//! Prepared queries of the double.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::{
    Refused, State,
    names::is_uuid,
    tables::{QueryBody, QueryService},
};
use crate::{
    GoDuration,
    testing::acl::{Access, Authorizer, Resource},
    types::{HealthStatus, ServiceEntry},
};

/// Replacement of a query's token.
const HIDDEN: &str = "<hidden>";

/// The parameters of a query's execution besides its name.
#[derive(Debug)]
pub(in crate::testing) struct Execution<'a> {
    pub(in crate::testing) limit: usize,
    pub(in crate::testing) connect: bool,
    pub(in crate::testing) near: Option<&'a str>,
}

impl QueryBody {
    /// The name that rules hold against it; without one only its id leads to it.
    fn rule_name(&self) -> Option<&str> {
        (!self.name.is_empty() || self.template.is_set()).then_some(self.name.as_str())
    }

    fn may(&self, who: &Authorizer, access: Access) -> bool {
        self.rule_name().is_none_or(|name| who.allows(Resource::Query, name, access))
    }

    /// The secret of the token that it is carried out with, if it has one.
    pub(in crate::testing) fn token(&self) -> Option<&str> {
        Some(self.token.as_str()).filter(|token| !token.is_empty())
    }

    /// As this token sees it.
    pub(in crate::testing) fn shown_to(&self, who: &Authorizer) -> Value {
        let mut shown = self.clone();
        if !shown.token.is_empty() && !is_manager(who) {
            HIDDEN.clone_into(&mut shown.token);
        }
        json!(shown)
    }

    fn check(&self) -> Result<(), Refused> {
        let refused =
            |problem: String| Err(Refused::new(500, format!("Invalid prepared query: {problem}")));
        if self.name.is_empty() && !self.template.is_set() && self.session.is_empty() {
            return refused("Must be bound to a session".to_owned());
        }
        if self.token == HIDDEN {
            return refused(format!(
                "Bad Token '{HIDDEN}', it looks like a query definition with a redacted token was submitted"
            ));
        }
        if self.service.service.is_empty() {
            return refused("Must provide a Service name to query".to_owned());
        }
        if self.service.failover.nearest_n < 0 {
            let given = self.service.failover.nearest_n;
            return refused(format!("Bad NearestN '{given}', must be >= 0"));
        }
        let ttl = &self.dns.ttl;
        if let Some(positive) = ttl.strip_prefix('-')
            && let Ok(ttl) = positive.parse::<GoDuration>()
        {
            return refused(format!("DNS TTL '-{}', must be >=0", ttl.get().as_nanos()));
        }
        if !ttl.is_empty() && ttl.parse::<GoDuration>().is_err() {
            return refused(format!("Bad DNS TTL '{ttl}': time: invalid duration {ttl:?}"));
        }
        Ok(())
    }

    /// Returns the query as it is when it is asked for by this name.
    fn rendered(&self, name: &str) -> Result<Self, Refused> {
        if !self.template.is_set() {
            return Ok(self.clone());
        }
        let service = self.template.fill(&self.name, name, &json!(self.service));
        let service = service
            .and_then(|service| serde_json::from_value(service).map_err(|error| error.to_string()));
        match service {
            Ok(mut service) => {
                let QueryService { tags, .. } = &mut service;
                if self.template.remove_empty_tags {
                    tags.retain(|tag| !tag.is_empty());
                }
                Ok(Self { service, ..self.clone() })
            }
            Err(problem) => Err(Refused::new(500, problem)),
        }
    }

    /// Returns `true` if an instance is among its results, but for checks.
    fn wants(&self, entry: &ServiceEntry) -> bool {
        let wanted = &self.service;
        let has = |tag: &str| entry.service.tags.iter().any(|have| have.eq_ignore_ascii_case(tag));
        let all_in = |wanted: &BTreeMap<String, String>, have: &BTreeMap<String, String>| {
            wanted.iter().all(|(key, value)| have.get(key) == Some(value))
        };
        wanted.tags.iter().all(|tag| match tag.strip_prefix('!') {
            Some(unwanted) => !has(unwanted),
            None => has(tag),
        }) && all_in(&wanted.node_meta, &entry.node.meta)
            && all_in(&wanted.service_meta, &entry.service.meta)
    }

    /// Returns `true` if the instance's checks allow it.
    fn is_healthy(&self, entry: &ServiceEntry) -> bool {
        let counted =
            |id: &String| !self.service.ignore_check_ids.iter().any(|ignored| ignored == id);
        entry.checks.iter().filter(|check| counted(&check.check_id)).all(|check| {
            match check.status {
                HealthStatus::Passing => true,
                HealthStatus::Critical => false,
                _ => !self.service.only_passing,
            }
        })
    }
}

/// Returns `true` if the caller may change ACLs, and therefore sees all queries
/// with their tokens.
fn is_manager(who: &Authorizer) -> bool {
    who.allows(Resource::Acl, "", Access::Write)
}

fn unknown(id: &str) -> Refused {
    Refused::new(500, format!("Cannot modify non-existent prepared query: '{id}'"))
}

impl State {
    /// Makes a query and gives its id.
    pub(in crate::testing) fn query_create(
        &mut self,
        mut query: QueryBody,
        who: &Authorizer,
    ) -> Result<String, Refused> {
        if !query.id.is_empty() {
            let text = "ID must be empty when creating a new prepared query";
            return Err(Refused::new(500, text));
        }
        query.id = self.uuid();
        let id = query.id.clone();
        self.query_put(query, who)?;
        Ok(id)
    }

    pub(in crate::testing) fn query_update(
        &mut self,
        id: &str,
        query: QueryBody,
        who: &Authorizer,
    ) -> Result<(), Refused> {
        let old = self.query_to_change(id)?;
        if !old.may(who, Access::Write) {
            return Err(who.denied(Resource::Query, &old.name, Access::Write));
        }
        self.query_put(QueryBody { id: id.to_owned(), ..query }, who)
    }

    pub(in crate::testing) fn query_delete(
        &mut self,
        id: &str,
        who: &Authorizer,
    ) -> Result<(), Refused> {
        let old = self.query_to_change(id)?;
        if !old.may(who, Access::Write) {
            return Err(who.denied(Resource::Query, &old.name, Access::Write));
        }
        let index = self.commit();
        self.queries.all.remove(id);
        self.queries.index = index;
        Ok(())
    }

    fn query_to_change(&self, id: &str) -> Result<&QueryBody, Refused> {
        self.query_by_id(id)
            .map_err(|refused| {
                let text = format!("Prepared Query lookup failed: {}", refused.text);
                Refused::new(refused.status, text)
            })?
            .ok_or_else(|| unknown(id))
    }

    fn query_by_id(&self, id: &str) -> Result<Option<&QueryBody>, Refused> {
        if id.len() != 36 {
            let text = "failed prepared query lookup: index error: UUID must be 36 characters";
            return Err(Refused::new(500, text));
        }
        Ok(self.queries.all.get(id))
    }

    fn query_put(&mut self, mut query: QueryBody, who: &Authorizer) -> Result<(), Refused> {
        if !query.may(who, Access::Write) {
            return Err(who.denied(Resource::Query, &query.name, Access::Write));
        }
        query.check()?;
        let others = self.queries.all.values().filter(|other| other.id != query.id);
        let (names, ids): (HashSet<String>, HashSet<&str>) =
            others.clone().map(|other| (other.name.to_lowercase(), other.id.as_str())).unzip();
        let start = if self.is_1_8() { "" } else { "raft apply failed: " };
        let refused = |text: String| Err(Refused::new(500, format!("{start}{text}")));
        if !query.name.is_empty() && names.contains(&query.name.to_lowercase()) {
            return refused(format!("name '{}' aliases an existing query name", query.name));
        }
        if others.clone().any(|other| {
            query.name.is_empty()
                && other.name.is_empty()
                && query.template.is_set()
                && other.template.is_set()
        }) {
            return refused("a query template with an empty name already exists".to_owned());
        }
        if ids.contains(query.name.as_str()) {
            return refused(format!("name '{}' aliases an existing query ID", query.name));
        }
        if !query.session.is_empty() && !self.sessions.contains_key(&query.session) {
            if self.is_1_8() && query.session.len() != 36 {
                return refused(
                    "invalid session: index error: UUID must be 36 characters".to_owned(),
                );
            }
            return refused(format!("invalid session {:?}", query.session));
        }
        query.template.check(&query.name, &json!(query.service)).map_err(|problem| {
            Refused::new(500, format!("{start}failed compiling template: {problem}"))
        })?;
        let index = self.commit();
        let old = self.queries.all.get(&query.id);
        query.create_index = old.map_or(index, |old| old.create_index);
        query.modify_index = index;
        self.queries.all.insert(query.id.clone(), query);
        self.queries.index = index;
        Ok(())
    }

    /// All queries that the token may see, and the index of the last change.
    pub(in crate::testing) fn query_list(&self, who: &Authorizer) -> (Vec<&QueryBody>, u64) {
        let all = self.queries.all.values();
        let seen = all.filter(|query| {
            is_manager(who) || (query.rule_name().is_some() && query.may(who, Access::Read))
        });
        (seen.collect(), self.queries.index.max(1))
    }

    /// The query with this id.
    pub(in crate::testing) fn query_get(
        &self,
        id: &str,
        who: &Authorizer,
    ) -> Result<Option<&QueryBody>, Refused> {
        let found = self.query_by_id(id)?;
        match found {
            Some(query) if !is_manager(who) && !query.may(who, Access::Read) => {
                Err(who.denied(Resource::Query, &query.name, Access::Read))
            }
            found => Ok(found),
        }
    }

    /// Finds the query that answers to an id or a name, and fills its template.
    pub(in crate::testing) fn query_resolve(
        &self,
        asked: &str,
    ) -> Result<Option<QueryBody>, Refused> {
        if is_uuid(asked)
            && let Some(query) = self.queries.all.get(asked)
        {
            if query.template.is_set() {
                let text = "prepared query templates can only be resolved up by name, not by ID";
                return Err(Refused::new(500, text));
            }
            return Ok(Some(query.clone()));
        }
        let name = asked.to_lowercase();
        let all = || self.queries.all.values();
        let exact = all().find(|query| !query.name.is_empty() && query.name.to_lowercase() == name);
        let longest = || {
            all()
                .filter(|query| query.template.is_set())
                .filter(|query| name.starts_with(&query.name.to_lowercase()))
                .max_by_key(|query| query.name.len())
        };
        exact.or_else(longest).map(|query| query.rendered(asked)).transpose()
    }

    /// Refuses a token that may not learn what such a query is.
    pub(in crate::testing) fn query_vet_explain(
        query: &QueryBody,
        who: &Authorizer,
    ) -> Result<(), Refused> {
        let seen = is_manager(who) || (query.rule_name().is_some() && query.may(who, Access::Read));
        if seen { Ok(()) } else { Err(who.denied(Resource::Query, &query.name, Access::Read)) }
    }

    /// Carries a query out; `who` decides what is seen. Instances come in a
    /// random order, but for the node that they are to be near.
    pub(in crate::testing) fn query_execute(
        &mut self,
        query: &QueryBody,
        how: &Execution<'_>,
        who: &Authorizer,
    ) -> Vec<ServiceEntry> {
        let connect = how.connect || query.service.connect;
        let (mut found, _) = self.instances(&query.service.service, connect, true);
        found.retain(|entry| {
            query.wants(entry)
                && query.is_healthy(entry)
                && who.allows(Resource::Node, &entry.node.name, Access::Read)
                && who.allows(Resource::Service, &entry.service.name, Access::Read)
        });
        self.random.shuffle(&mut found);
        let near = how.near.unwrap_or(&query.service.near);
        let near = if near == "_agent" { super::NODE } else { near };
        found.sort_by_key(|entry| !near.is_empty() && entry.node.name != near);
        if how.limit > 0 {
            found.truncate(how.limit);
        }
        found
    }

    /// Queries that are bound to a session go with it.
    pub(super) fn end_queries_of(&mut self, session: &str, index: u64) {
        let before = self.queries.all.len();
        self.queries.all.retain(|_, query| query.session != session);
        if self.queries.all.len() < before {
            self.queries.index = index;
        }
    }

    /// The result of a query, but for its instances.
    pub(in crate::testing) fn query_answer(query: &QueryBody, nodes: &[Value]) -> Value {
        json!({
            "Service": query.service.service, "Nodes": nodes, "DNS": query.dns,
            "Datacenter": "dc1", "Failovers": 0,
        })
    }

    /// Adds what answers to executed and explained queries say of themselves.
    pub(in crate::testing) fn query_told(&self, mut value: Value, consistency: &str) -> Value {
        if let Some(fields) = value.as_object_mut() {
            fields.extend(self.query_meta(u64::from(!self.is_1_8())));
            fields.insert("ConsistencyLevel".to_owned(), json!(consistency));
            if !self.is_1_8() && fields.contains_key("Nodes") {
                fields.insert("PeerName".to_owned(), json!(""));
            }
        }
        value
    }

    /// A query as this server shows it to a token.
    pub(in crate::testing) fn query_shown(&self, query: &QueryBody, who: &Authorizer) -> Value {
        let mut value = query.shown_to(who);
        let Some(service) = value.get_mut("Service").and_then(Value::as_object_mut) else {
            return value;
        };
        // What nobody gave is `null`.
        let empty = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty)
                || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        for name in ["IgnoreCheckIDs", "Tags", "NodeMeta", "ServiceMeta"] {
            if let Some(value) = service.get_mut(name).filter(|value| empty(value)) {
                *value = Value::Null;
            }
        }
        if let Some(failover) = service.get_mut("Failover").and_then(Value::as_object_mut) {
            for (_, value) in failover.iter_mut().filter(|(_, value)| empty(value)) {
                *value = Value::Null;
            }
            if self.is_1_8() {
                failover.remove("Targets");
            }
        }
        if self.is_1_8() {
            service.remove("SamenessGroup");
        } else {
            service.insert("Peer".to_owned(), json!(""));
        }
        value
    }

    pub(super) fn lower_queries(&mut self, lower: impl Fn(&mut u64)) {
        lower(&mut self.queries.index);
        for query in self.queries.all.values_mut() {
            lower(&mut query.create_index);
            lower(&mut query.modify_index);
        }
    }
}
