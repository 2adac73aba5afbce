//! Tokens of the double, with their expiry.

use std::time::{Duration, SystemTime};

use chrono::DateTime;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    GoDuration,
    testing::state::{
        Refused, Seen, State,
        format::{content_hash, rfc3339},
        names::{ANONYMOUS, MANAGEMENT, NAME_RULE, check_id, is_identity_name, is_uuid},
        tables::{Acl, Link, TemplatedPolicy, Token, TokenBody},
    },
    types::{NodeIdentity, ServiceIdentity},
};

pub(super) const SHORTEST: Duration = Duration::from_mins(1);
/// Of servers before 1.9 only; 1.19 takes two million hours.
pub(super) const LONGEST: Duration = Duration::from_hours(24);
const IDENTITY_RULE_NOW: &str = "Only lowercase alphanumeric characters, '-' and '_' are allowed";
/// Replacement of a secret that the reader may not see.
const HIDDEN: &str = "<hidden>";
const RESERVED: &str = "00000000-0000-0000-0000-0000000000";

/// The selection of a list of tokens.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::testing) struct TokenFilter<'a> {
    pub(in crate::testing) policy: Option<&'a str>,
    pub(in crate::testing) role: Option<&'a str>,
    pub(in crate::testing) service: Option<&'a str>,
    pub(in crate::testing) method: Option<&'a str>,
}

fn invalid(problem: &str) -> Refused {
    Refused::new(500, format!("Invalid Token: {problem}"))
}

/// Adds links, unless there are none.
pub(super) fn links(fields: &mut Map<String, Value>, name: &str, links: Vec<Value>) {
    if !links.is_empty() {
        fields.insert(name.to_owned(), Value::Array(links));
    }
}

/// Adds a list, unless it is empty.
pub(super) fn list<T: Serialize>(fields: &mut Map<String, Value>, name: &str, list: &[T]) {
    if !list.is_empty() {
        fields.insert(name.to_owned(), json!(list));
    }
}

/// Each element once, in the order of first mention.
pub(super) fn distinct<T: PartialEq>(list: Vec<T>) -> Vec<T> {
    let mut found: Vec<T> = Vec::new();
    for item in list {
        if !found.contains(&item) {
            found.push(item);
        }
    }
    found
}

/// Refuses identities that cannot be; `what` is the object that holds them.
pub(super) fn check_identities(
    what: &str,
    old: bool,
    services: &[ServiceIdentity],
    nodes: &[NodeIdentity],
    local: bool,
) -> Result<(), Refused> {
    let refused = |text: String| Err(Refused::new(500, text));
    let rule = if old { NAME_RULE } else { IDENTITY_RULE_NOW };
    for identity in services {
        let name = &identity.service_name;
        if name.is_empty() {
            return refused(format!(
                "Service identity is missing the service name field on this {what}"
            ));
        }
        if local && !identity.datacenters.is_empty() {
            return refused(format!(
                "Service identity {name:?} cannot specify a list of datacenters on a local token"
            ));
        }
        if !is_identity_name(name) {
            return refused(format!("Service identity {name:?} has an invalid name. {rule}"));
        }
    }
    for identity in nodes {
        let missing = if identity.node_name.is_empty() {
            Some("node name")
        } else if identity.datacenter.is_empty() {
            Some("datacenter")
        } else {
            None
        };
        if let Some(missing) = missing {
            return refused(format!("Node identity is missing the {missing} field on this {what}"));
        }
        if !is_identity_name(&identity.node_name) {
            return refused(format!("Node identity has an invalid name. {rule}"));
        }
    }
    Ok(())
}

/// The ids of what links name; `names` are those that there are.
fn resolve<'a>(
    links: &[Link],
    what: &str,
    names: &(impl Iterator<Item = (&'a String, &'a String)> + Clone),
) -> Result<Vec<String>, Refused> {
    let mut found = Vec::new();
    for link in links {
        let (by, wanted) = if link.id.is_empty() { ("name", &link.name) } else { ("ID", &link.id) };
        let id = names
            .clone()
            .find(|(id, name)| if by == "ID" { *id == wanted } else { *name == wanted })
            .map(|(id, _)| id.clone());
        found.push(id.ok_or_else(|| {
            Refused::new(500, format!("No such ACL {what} with {by} {wanted:?}"))
        })?);
    }
    Ok(distinct(found))
}

impl Acl {
    /// When a token ends that is made now.
    fn expiry(
        &self,
        old: bool,
        body: &TokenBody,
        now: Instant,
    ) -> Result<Option<(SystemTime, Instant)>, Refused> {
        let bad = |text: String| Refused::new(400, text);
        let length = if !body.expiration_ttl.is_empty() {
            let parsed = body.expiration_ttl.parse::<GoDuration>();
            parsed.map_err(|error| bad(format!("Token decoding failed: {error}")))?.get()
        } else if body.expiration_time.is_empty() {
            return Ok(None);
        } else {
            let at = DateTime::parse_from_rfc3339(&body.expiration_time)
                .map_err(|error| bad(format!("Token decoding failed: {error}")))?;
            SystemTime::from(at)
                .duration_since(self.wall(now))
                .map_err(|_past| Refused::new(500, "ExpirationTime cannot be before CreateTime"))?
        };
        if length.is_zero() {
            return Ok(None);
        }
        let (was, limit) = (GoDuration::new(length), |limit| GoDuration::new(limit));
        let problem = if length < SHORTEST {
            format!("less than {} in the future (was {was})", limit(SHORTEST))
        } else if old && length > LONGEST {
            format!("more than {} in the future (was {was})", limit(LONGEST))
        } else {
            return Ok(Some((self.wall(now) + length, now + length)));
        };
        Err(Refused::new(500, format!("ExpirationTime cannot be {problem}")))
    }
}

impl State {
    pub(super) fn policy_ids(&self, links: &[Link]) -> Result<Vec<String>, Refused> {
        resolve(links, "policy", &self.acl.policies.iter().map(|(id, policy)| (id, &policy.name)))
    }

    fn role_ids(&self, links: &[Link]) -> Result<Vec<String>, Refused> {
        resolve(links, "role", &self.acl.roles.iter().map(|(id, role)| (id, &role.name)))
    }

    /// Links as they are shown: with today's names, without what is gone.
    pub(super) fn policy_links(&self, ids: &[String]) -> Vec<Value> {
        let found = ids.iter().filter_map(|id| self.acl.policies.get_key_value(id));
        found.map(|(id, policy)| json!({ "ID": id, "Name": policy.name })).collect()
    }

    fn token_json(&self, accessor: &str, token: &Token, secret: Option<bool>) -> Value {
        let mut fields = Map::new();
        fields.insert("AccessorID".into(), json!(accessor));
        if let Some(visible) = secret {
            let shown = if visible { token.secret.as_str() } else { HIDDEN };
            fields.insert("SecretID".into(), json!(shown));
        }
        fields.insert("Description".into(), json!(token.description));
        links(&mut fields, "Policies", self.policy_links(&token.policies));
        let roles = token.roles.iter().filter_map(|id| self.acl.roles.get_key_value(id));
        let roles = roles.map(|(id, role)| json!({ "ID": id, "Name": role.name })).collect();
        links(&mut fields, "Roles", roles);
        list(&mut fields, "ServiceIdentities", &token.service_identities);
        list(&mut fields, "NodeIdentities", &token.node_identities);
        let templated = token.templated_policies.iter().map(TemplatedPolicy::json).collect();
        links(&mut fields, "TemplatedPolicies", templated);
        fields.insert("Local".into(), json!(token.local));
        if !token.auth_method.is_empty() {
            fields.insert("AuthMethod".into(), json!(token.auth_method));
        }
        if let Some((at, _)) = token.expires {
            fields.insert("ExpirationTime".into(), json!(rfc3339(at)));
        }
        fields.insert("CreateTime".into(), json!(rfc3339(token.created_at)));
        let content = (
            (&token.description, &token.policies, &token.roles, token.local),
            (&token.service_identities, &token.node_identities, &token.templated_policies),
        );
        fields.insert("Hash".into(), json!(content_hash(&content)));
        fields.insert("CreateIndex".into(), json!(token.stamp.created));
        fields.insert("ModifyIndex".into(), json!(token.stamp.modified));
        Value::Object(fields)
    }

    /// The templates that a token or a role is to use. Servers before 1.17 do not know any.
    pub(super) fn templated(
        &self,
        what: &str,
        given: Option<Vec<TemplatedPolicy>>,
    ) -> Result<Vec<TemplatedPolicy>, Refused> {
        if given.is_some() && self.is_1_8() {
            let text = "decoding failed: json: unknown field \"TemplatedPolicies\"";
            let what = if what == "role" { "Role" } else { "Token" };
            return Err(Refused::new(400, format!("Bad request: {what} {text}")));
        }
        let templated = distinct(given.unwrap_or_default());
        templated.iter().try_for_each(|policy| policy.check(what))?;
        Ok(templated)
    }

    /// Makes the first token.
    pub(in crate::testing) fn acl_bootstrap(
        &mut self,
        secret: &str,
        now: Instant,
    ) -> Result<Value, Refused> {
        if let Some(index) = self.acl.bootstrapped {
            return Err(Refused::new(
                403,
                format!(
                    "Permission denied: ACL bootstrap no longer allowed (reset index: {index})"
                ),
            ));
        }
        if !secret.is_empty() && !is_uuid(secret) {
            return Err(Refused::new(400, "invalid UUID"));
        }
        let body = TokenBody {
            description: "Bootstrap Token (Global Management)".to_owned(),
            secret: secret.to_owned(),
            policies: vec![Link { id: MANAGEMENT.to_owned(), ..Link::default() }],
            ..TokenBody::default()
        };
        let mut token = self.acl_token_set(None, body, now)?;
        self.acl.bootstrapped = Some(self.acl.indexes.tokens);
        if let Some(fields) = token.as_object_mut() {
            let secret = fields.get("SecretID").cloned().unwrap_or_default();
            fields.insert("ID".to_owned(), secret);
        }
        Ok(token)
    }

    /// Makes a token, or changes the one with this accessor.
    pub(in crate::testing) fn acl_token_set(
        &mut self,
        accessor: Option<&str>,
        body: TokenBody,
        now: Instant,
    ) -> Result<Value, Refused> {
        let old_server = self.is_1_8();
        let old = match accessor {
            None => None,
            Some(accessor) => {
                check_id("token", accessor)?;
                let found = self.acl.tokens.get(accessor).cloned();
                let missing = || Refused::new(500, format!("Cannot find token {accessor:?}"));
                Some(found.ok_or_else(missing)?)
            }
        };
        if let Some(old) = &old {
            if !body.secret.is_empty() && body.secret != old.secret {
                let whose = if old_server { "tokens" } else { "token's" };
                let text = format!("Changing a {whose} SecretID is not permitted");
                return Err(Refused::new(500, text));
            }
            if body.local != old.local {
                let accessor = accessor.unwrap_or_default();
                let verb = if old_server { "cannot" } else { "Cannot" };
                return Err(Refused::new(500, format!("{verb} toggle local mode of {accessor}")));
            }
        } else {
            self.check_new_token(&body)?;
        }
        let expires = match &old {
            Some(old) => old.expires,
            None => self.acl.expiry(old_server, &body, now)?,
        };
        let policies = self.policy_ids(&body.policies)?;
        let roles = self.role_ids(&body.roles)?;
        check_identities(
            "token",
            old_server,
            &body.service_identities,
            &body.node_identities,
            body.local,
        )?;
        let templated = self.templated("token", body.templated_policies)?;
        let given = |id: String| (!id.is_empty()).then_some(id);
        let accessor = accessor.map(str::to_owned).or_else(|| given(body.accessor));
        let accessor = accessor.unwrap_or_else(|| self.uuid());
        let secret = old.as_ref().map(|old| old.secret.clone()).or_else(|| given(body.secret));
        let secret = secret.unwrap_or_else(|| self.uuid());
        let created_at = old.as_ref().map_or_else(|| self.acl.wall(now), |old| old.created_at);
        let stamp = self.stamp(old.as_ref().map(|old| old.stamp), |indexes| &mut indexes.tokens);
        let token = Token {
            secret,
            description: body.description,
            policies,
            roles,
            service_identities: distinct(body.service_identities),
            node_identities: distinct(body.node_identities),
            templated_policies: templated,
            local: body.local,
            auth_method: old.map_or(body.auth_method, |old| old.auth_method),
            created_at,
            expires,
            stamp,
        };
        let answer = self.token_json(&accessor, &token, Some(true));
        self.acl.tokens.insert(accessor, token);
        Ok(answer)
    }

    fn check_new_token(&self, body: &TokenBody) -> Result<(), Refused> {
        let TokenBody { accessor, secret, .. } = body;
        let reserved = |id: &str| {
            let text = format!("UUIDs with the prefix {RESERVED:?} are reserved");
            if id.starts_with(RESERVED) { Err(invalid(&text)) } else { Ok(()) }
        };
        if !accessor.is_empty() {
            if !is_uuid(accessor) {
                return Err(if self.is_1_8() {
                    let text = check_id("token", accessor).err().map(|refused| refused.text);
                    let text = text.unwrap_or_default();
                    Refused::new(500, format!("Failed acl token lookup by accessor: {text}"))
                } else {
                    invalid("AccessorID - not a valid UUID")
                });
            }
            if self.acl.tokens.contains_key(accessor) {
                return Err(invalid("AccessorID is already in use"));
            }
            reserved(accessor)?;
        }
        if !secret.is_empty() {
            if !is_uuid(secret) {
                let is = if self.is_1_8() { "is" } else { "-" };
                return Err(invalid(&format!("SecretID {is} not a valid UUID")));
            }
            if self.acl.tokens.values().any(|token| token.secret == *secret) {
                return Err(invalid("SecretID is already in use"));
            }
            reserved(secret)?;
        }
        Ok(())
    }

    /// A token with the rights of another one. Its own secret is a new one.
    pub(in crate::testing) fn acl_token_clone(
        &mut self,
        accessor: &str,
        description: String,
        now: Instant,
    ) -> Result<Value, Refused> {
        check_id("token", accessor)?;
        let Some(old) = self.acl.tokens.get(accessor).cloned() else {
            return Err(self.acl_missing("token"));
        };
        if !old.auth_method.is_empty() {
            let text = "Cannot clone a token created from an auth method";
            return Err(Refused::new(403, format!("Permission denied: {text}")));
        }
        let stamp = self.stamp(None, |indexes| &mut indexes.tokens);
        let description = if description.is_empty() { old.description } else { description };
        let secret = self.uuid();
        let created_at = self.acl.wall(now);
        let token = Token { secret, description, created_at, stamp, ..old };
        let accessor = self.uuid();
        let answer = self.token_json(&accessor, &token, Some(true));
        self.acl.tokens.insert(accessor, token);
        Ok(answer)
    }

    pub(in crate::testing) fn acl_token(
        &self,
        accessor: &str,
        visible: bool,
    ) -> Result<(Option<Value>, Seen), Refused> {
        check_id("token", accessor)?;
        let found = self.acl.tokens.get(accessor);
        let found = found.map(|token| self.token_json(accessor, token, Some(visible)));
        Ok((found, Seen::by_index(self.acl.indexes.tokens)))
    }

    /// Adds what a token gives, with all that it refers to.
    pub(in crate::testing) fn acl_expand(&self, accessor: &str, value: &mut Value) {
        let (Some(token), Some(fields)) = (self.acl.tokens.get(accessor), value.as_object_mut())
        else {
            return;
        };
        let roles: Vec<_> =
            token.roles.iter().filter_map(|id| self.acl.roles.get_key_value(id)).collect();
        let mut ids: Vec<&String> = token.policies.iter().collect();
        ids.extend(roles.iter().flat_map(|(_, role)| &role.policies));
        let policies: Vec<Value> =
            distinct(ids).into_iter().filter_map(|id| self.acl_policy(id).ok()?.0).collect();
        let roles: Vec<Value> = roles.iter().map(|(id, role)| self.role_json(id, role)).collect();
        let or_null = |list: Vec<Value>| if list.is_empty() { Value::Null } else { json!(list) };
        let default = if self.acl.default_allow { "allow" } else { "deny" };
        for (name, value) in [
            ("ExpandedPolicies", or_null(policies)),
            ("ExpandedRoles", or_null(roles)),
            ("NamespaceDefaultPolicyIDs", Value::Null),
            ("NamespaceDefaultRoleIDs", Value::Null),
            ("AgentACLDefaultPolicy", json!(default)),
            ("AgentACLDownPolicy", json!("extend-cache")),
            ("ResolvedByAgent", json!(crate::testing::state::NODE)),
        ] {
            fields.insert(name.to_owned(), value);
        }
    }

    /// The token of the request. Without one there is none, not even the anonymous one.
    pub(in crate::testing) fn acl_token_self(
        &self,
        secret: &str,
    ) -> Result<(Value, Seen), Refused> {
        let found = self.acl.tokens.iter().find(|(_, token)| token.secret == secret);
        let missing = || {
            let start = if self.is_1_8() { "" } else { "token does not exist: " };
            Refused::new(403, format!("{start}ACL not found"))
        };
        let (accessor, token) = found.ok_or_else(missing)?;
        let value = self.token_json(accessor, token, Some(true));
        Ok((value, Seen::by_index(self.acl.indexes.tokens)))
    }

    pub(in crate::testing) fn acl_tokens(
        &self,
        filter: TokenFilter<'_>,
        visible: bool,
    ) -> (Value, Seen) {
        // Since 1.12 lists have the secrets too.
        let secret = (!self.is_1_8()).then_some(visible);
        let has = |ids: &[String], wanted: Option<&str>| {
            wanted.is_none_or(|wanted| ids.iter().any(|id| id == wanted))
        };
        let found = self.acl.tokens.iter().filter(|(_, token)| {
            has(&token.policies, filter.policy)
                && has(&token.roles, filter.role)
                && filter.method.is_none_or(|name| token.auth_method == name)
                && filter.service.is_none_or(|name| {
                    token.service_identities.iter().any(|identity| identity.service_name == name)
                })
        });
        let list =
            found.map(|(accessor, token)| self.token_json(accessor, token, secret)).collect();
        (list, Seen::by_index(self.acl.indexes.tokens))
    }

    /// Deletes a token; `own` is the secret of the request.
    pub(in crate::testing) fn acl_token_delete(
        &mut self,
        accessor: &str,
        own: &str,
    ) -> Result<Value, Refused> {
        if !is_uuid(accessor) {
            return Err(Refused::new(500, "Accessor ID is missing or an invalid UUID"));
        }
        if accessor == ANONYMOUS {
            let text = "Delete operation not permitted on the anonymous token";
            return Err(Refused::new(500, text));
        }
        match self.acl.tokens.get(accessor) {
            None => return self.acl_nothing_to_delete("token"),
            Some(token) if token.secret == own => {
                let text = "Deletion of the request's authorization token is not permitted";
                return Err(Refused::new(500, text));
            }
            Some(_) => {}
        }
        self.acl.tokens.remove(accessor);
        self.stamp(None, |indexes| &mut indexes.tokens);
        Ok(Value::Bool(true))
    }

    /// Ends a token that a login made.
    pub(in crate::testing) fn acl_logout(&mut self, secret: &str) -> Result<Value, Refused> {
        let found = self.acl.tokens.iter().find(|(_, token)| token.secret == secret);
        let Some((accessor, token)) = found else {
            return Err(if secret.is_empty() && !self.is_1_8() {
                Refused::new(401, "Supplied token does not exist")
            } else {
                Refused::new(403, "ACL not found")
            });
        };
        if token.auth_method.is_empty() {
            let why = if self.is_1_8() { "" } else { ": token wasn't created via login" };
            return Err(Refused::new(403, format!("Permission denied{why}")));
        }
        let accessor = accessor.clone();
        self.acl.tokens.remove(&accessor);
        self.stamp(None, |indexes| &mut indexes.tokens);
        Ok(Value::Bool(true))
    }
}
