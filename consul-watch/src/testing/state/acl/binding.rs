//! Binding rules of the double's auth methods.

use std::collections::BTreeMap;

use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    testing::{
        filter::Filter,
        login::{LoginAttempt, LoginIdentity},
        state::{
            Refused, Seen, State,
            names::{DATACENTER, check_id, is_identity_name, is_name},
            tables::{BindingBody, BindingRule, Link, LoginBody, Method, TokenBody},
        },
    },
    types::{NodeIdentity, ServiceIdentity},
};

fn invalid(problem: impl std::fmt::Display) -> Refused {
    Refused::new(500, format!("Invalid Binding Rule: {problem}"))
}

/// Fills the variables of a bind name in. Their values are taken in lower case.
fn interpolate(
    template: &str,
    variables: &BTreeMap<String, String>,
    old_version: bool,
) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else {
            return Err(if old_version {
                "parse error: syntax error".to_owned()
            } else {
                let end = template.len() + 1;
                format!("parse error at 1:{end}: expected \"}}\" but found end of string")
            });
        };
        let name = name.trim();
        let value = variables.get(name).ok_or_else(|| {
            let column = template.len() - after.len() + 1;
            format!("1:{column}: unknown variable accessed: {name}")
        })?;
        text.push_str(before);
        text.push_str(&value.to_lowercase());
        rest = tail;
    }
    text.push_str(rest);
    Ok(text)
}

fn fits(bind_type: &str, name: &str) -> bool {
    match bind_type {
        "service" | "node" => is_identity_name(name),
        _ => is_name(name),
    }
}

impl BindingRule {
    fn to_json(&self, id: &str) -> Value {
        let body = &self.body;
        let mut fields = Map::new();
        for (name, value) in [
            ("ID", id),
            ("Description", &body.description),
            ("AuthMethod", &body.auth_method),
            ("Selector", &body.selector),
            ("BindType", &body.bind_type),
            ("BindName", &body.bind_name),
        ] {
            fields.insert(name.to_owned(), json!(value));
        }
        fields.insert("CreateIndex".into(), json!(self.stamp.created));
        fields.insert("ModifyIndex".into(), json!(self.stamp.modified));
        Value::Object(fields)
    }
}

/// Words the refusal of current servers for a name that nothing could be bound to.
fn no_bind_name(bind_type: &str, problem: &str) -> String {
    format!("invalid BindName or BindVars: failed to validate bindType {bind_type:?}: {problem}")
}

/// Refuses a rule that could never work with its auth method.
fn check(body: &BindingBody, method: &Method, old_version: bool) -> Result<(), Refused> {
    if !body.selector.is_empty() {
        let selector = Filter::new(&body.selector, &method.schema());
        selector.map_err(|error| {
            Refused::new(500, format!("invalid Binding Rule: Selector is invalid: {error}"))
        })?;
    }
    let kinds: &[&str] = if old_version {
        &["service", "node", "role"]
    } else {
        &["service", "node", "role", "policy"]
    };
    if body.bind_type.is_empty() {
        return Err(invalid("no BindType is set"));
    }
    if !kinds.contains(&body.bind_type.as_str()) {
        let start =
            if old_version { "" } else { "invalid BindName or BindVars: invalid Binding Rule: " };
        return Err(invalid(format!("{start}unknown BindType {:?}", body.bind_type)));
    }
    if body.bind_name.is_empty() {
        return Err(invalid("no BindName is set"));
    }
    let samples = method.variables().into_iter().map(|name| (name, "fake".to_owned())).collect();
    let problem = match interpolate(&body.bind_name, &samples, old_version) {
        Ok(name) if fits(&body.bind_type, &name) => return Ok(()),
        Ok(_) if old_version => "invalid BindName".to_owned(),
        Err(error) if old_version => format!("invalid BindName: {error}"),
        Ok(name) => no_bind_name(&body.bind_type, &format!("invalid bind name: {name:?}")),
        Err(error) => {
            no_bind_name(&body.bind_type, &format!("error interpreting template: {error}"))
        }
    };
    Err(invalid(problem))
}

impl State {
    /// Makes a binding rule, or changes the one with this id.
    pub(in crate::testing) fn acl_rule_set(
        &mut self,
        id: Option<&str>,
        mut body: BindingBody,
    ) -> Result<Value, Refused> {
        let old = match id {
            None => None,
            Some(id) => {
                check_id("binding rule", id)?;
                let found = self.acl.rules.get(id).cloned();
                let missing = || Refused::new(500, format!("cannot find binding rule {id}"));
                Some(found.ok_or_else(missing)?)
            }
        };
        if let Some(old) = &old {
            if body.auth_method.is_empty() {
                body.auth_method.clone_from(&old.body.auth_method);
            }
            if body.auth_method != old.body.auth_method {
                let text = "the AuthMethod field of an Binding Rule is immutable";
                return Err(Refused::new(500, text));
            }
        }
        if body.auth_method.is_empty() {
            return Err(invalid("no AuthMethod is set"));
        }
        let Some(method) = self.acl.methods.get(&body.auth_method) else {
            let text = format!("cannot find auth method with name {:?}", body.auth_method);
            return Err(Refused::new(500, text));
        };
        check(&body, method, self.is_1_8())?;
        let stamp = self.stamp(old.map(|old| old.stamp), |indexes| &mut indexes.rules);
        let rule = BindingRule { body, stamp };
        let id = id.map_or_else(|| self.uuid(), str::to_owned);
        let answer = rule.to_json(&id);
        self.acl.rules.insert(id, rule);
        Ok(answer)
    }

    pub(in crate::testing) fn acl_rule(&self, id: &str) -> Result<(Option<Value>, Seen), Refused> {
        check_id("binding rule", id)?;
        let found = self.acl.rules.get(id).map(|rule| rule.to_json(id));
        Ok((found, Seen::by_index(self.acl.indexes.rules)))
    }

    pub(in crate::testing) fn acl_rules(&self, method: Option<&str>) -> (Value, Seen) {
        let found = self.acl.rules.iter();
        let found =
            found.filter(|(_, rule)| method.is_none_or(|name| rule.body.auth_method == name));
        (found.map(|(id, rule)| rule.to_json(id)).collect(), Seen::by_index(self.acl.indexes.rules))
    }

    pub(in crate::testing) fn acl_rule_delete(&mut self, id: &str) -> Result<Value, Refused> {
        check_id("binding rule", id)?;
        if self.acl.rules.remove(id).is_none() {
            return self.acl_nothing_to_delete("binding rule");
        }
        self.stamp(None, |indexes| &mut indexes.rules);
        Ok(Value::Bool(true))
    }

    /// Judges a login and makes its token.
    pub(in crate::testing) fn acl_login(
        &mut self,
        login: LoginBody,
        now: Instant,
    ) -> Result<Value, Refused> {
        let Some(method) = self.acl.methods.get(&login.auth_method).cloned() else {
            return Err(if self.is_1_8() {
                Refused::new(403, "ACL not found")
            } else {
                let name = &login.auth_method;
                Refused::new(403, format!("ACL not found: auth method {name:?} not found"))
            });
        };
        let mut identity = self.identify(&method, login.bearer_token)?;
        identity.restrict(method.variables());
        let mut body = self.bound(&method, &identity)?;
        if [
            body.roles.len(),
            body.policies.len(),
            body.service_identities.len(),
            body.node_identities.len(),
        ]
        .iter()
        .all(|count| *count == 0)
        {
            return Err(Refused::new(403, "Permission denied"));
        }
        "token created via login".clone_into(&mut body.description);
        if !login.meta.is_empty() {
            body.description = format!("{}: {}", body.description, json!(login.meta));
        }
        body.local = method.body.token_locality != "global";
        body.auth_method.clone_from(&method.body.name);
        body.expiration_ttl.clone_from(&method.body.max_token_ttl);
        self.acl_token_set(None, body, now)
    }

    fn identify(&self, method: &Method, bearer: String) -> Result<LoginIdentity, Refused> {
        let kind = method.body.kind.as_str();
        let Some(verifier) = self.acl.verifiers.0.get(kind) else {
            let text = format!(
                "this double has no verifier for auth methods of type {kind:?}; give it one with TestConsul::set_login_verifier"
            );
            return Err(Refused::new(500, text));
        };
        let attempt = LoginAttempt {
            auth_method: &method.body.name,
            kind,
            config: &method.body.config,
            bearer_token: &SecretString::from(bearer),
        };
        let identity = verifier.verify(&attempt).map_err(|text| Refused::new(500, text))?;
        match &identity.principal {
            Some(arn) if !method.trusts(arn) => {
                Err(Refused::new(500, format!("IAM principal {arn} is not trusted")))
            }
            _ => Ok(identity),
        }
    }

    /// Builds the token that the binding rules of an auth method give to an
    /// identity.
    fn bound(&self, method: &Method, identity: &LoginIdentity) -> Result<TokenBody, Refused> {
        let mut body = TokenBody::default();
        let (schema, fields) = (method.schema(), identity.fields());
        for rule in self.acl.rules.values().map(|rule| &rule.body) {
            if rule.auth_method != method.body.name {
                continue;
            }
            let selected = rule.selector.is_empty()
                || Filter::new(&rule.selector, &schema).is_ok_and(|filter| filter.matches(&fields));
            if !selected {
                continue;
            }
            let kind = rule.bind_type.as_str();
            let refused = |problem: String| {
                let text = format!("cannot compute {kind:?} bind name for bind target: {problem}");
                Refused::new(500, text)
            };
            let name = interpolate(&rule.bind_name, &identity.variables, self.is_1_8())
                .map_err(refused)?;
            if !fits(kind, &name) {
                let bound = &rule.bind_name;
                let text = if self.is_1_8() {
                    format!("computed {kind:?} bind name for bind target is invalid: {bound:?}")
                } else {
                    format!("invalid bind name: {name:?}")
                };
                return Err(Refused::new(500, text));
            }
            match kind {
                "service" => body.service_identities.push(ServiceIdentity::new(name)),
                "node" => body.node_identities.push(NodeIdentity::new(name, DATACENTER)),
                // What does not exist is not bound.
                "role" if self.acl.roles.values().any(|role| role.name == name) => {
                    body.roles.push(Link { name, ..Link::default() });
                }
                "policy" if self.acl.policies.values().any(|policy| policy.name == name) => {
                    body.policies.push(Link { name, ..Link::default() });
                }
                _ => {}
            }
        }
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_names_are_filled_in() {
        let variables = BTreeMap::from([
            ("value.svc".to_owned(), "Web".to_owned()),
            ("entity_tags.consul.hashicorp.com.service-name".to_owned(), "api".to_owned()),
        ]);
        let fill = |template: &str| interpolate(template, &variables, true);
        assert_eq!(fill("x-${value.svc}-${ value.svc }").unwrap(), "x-web-web");
        assert_eq!(fill("${entity_tags.consul.hashicorp.com.service-name}").unwrap(), "api");
        assert_eq!(fill("${bad}").unwrap_err(), "1:3: unknown variable accessed: bad");
        assert_eq!(fill("${value.svc").unwrap_err(), "parse error: syntax error");
        assert_eq!(
            interpolate("${value.svc", &variables, false).unwrap_err(),
            "parse error at 1:12: expected \"}\" but found end of string"
        );
    }
}
