//! Auth methods of the double.

use serde_json::{Map, Value, json};

use crate::{
    GoDuration,
    testing::{
        filter::Schema,
        state::{
            Refused, Seen, State,
            names::{NAME_RULE, is_name},
            tables::{Method, MethodBody},
        },
    },
    types::JsonObject,
};

const AWS_IAM: &str = "aws-iam";
const KUBERNETES: &str = "kubernetes";

fn invalid(problem: impl std::fmt::Display) -> Refused {
    Refused::new(500, format!("Invalid Auth Method: {problem}"))
}

/// A list of texts in an auth method's settings.
fn texts<'a>(config: &'a JsonObject, name: &str) -> impl Iterator<Item = &'a str> {
    config.get(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

/// The names that a mapping of claims gives.
fn mapped<'a>(config: &'a JsonObject, name: &str) -> impl Iterator<Item = &'a str> {
    config
        .get(name)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.values())
        .filter_map(Value::as_str)
}

fn is_set(config: &JsonObject, name: &str) -> bool {
    config.get(name) == Some(&Value::Bool(true))
}

impl Method {
    /// Returns the fields that selectors of the method's binding rules can look at.
    pub(super) fn schema(&self) -> Schema {
        match self.body.kind.as_str() {
            AWS_IAM => {
                let Schema::Record(mut fields) =
                    Schema::texts(&["entity_name", "entity_id", "account_id", "entity_path"])
                else {
                    return Schema::texts(&[]);
                };
                fields.insert("entity_tags".to_owned(), Schema::map(Schema::Text));
                Schema::Record(fields)
            }
            KUBERNETES => {
                Schema::record([("serviceaccount", Schema::texts(&["namespace", "name", "uid"]))])
            }
            _ => Schema::record([
                ("value", Schema::map(Schema::Text)),
                ("list", Schema::map(Schema::list(Schema::Text))),
            ]),
        }
    }

    /// The variables that the bind names of its binding rules can use.
    pub(super) fn variables(&self) -> Vec<String> {
        let config = &self.body.config;
        let with = |prefix: &str, name: &str| format!("{prefix}.{name}");
        match self.body.kind.as_str() {
            AWS_IAM => {
                let mut names: Vec<String> =
                    ["entity_name", "entity_id", "account_id"].map(str::to_owned).into();
                if is_set(config, "EnableIAMEntityDetails") {
                    names.push("entity_path".to_owned());
                    let tags = texts(config, "IAMEntityTags");
                    names.extend(tags.map(|name| with("entity_tags", name)));
                }
                names
            }
            KUBERNETES => {
                ["namespace", "name", "uid"].map(|name| with("serviceaccount", name)).into()
            }
            _ => mapped(config, "ClaimMappings").map(|name| with("value", name)).collect(),
        }
    }

    /// Returns `true` if `aws-iam` trusts a role or user: by its ARN, or a beginning with `*` at
    /// its end.
    pub(super) fn trusts(&self, arn: &str) -> bool {
        texts(&self.body.config, "BoundIAMPrincipalARNs").any(|bound| {
            bound.strip_suffix('*').map_or(bound == arn, |beginning| arn.starts_with(beginning))
        })
    }

    fn to_json(&self, full: bool) -> Value {
        let body = &self.body;
        let mut fields = Map::new();
        let mut add = |name: &str, value: &str| {
            if !value.is_empty() {
                fields.insert(name.to_owned(), json!(value));
            }
        };
        add("Name", &body.name);
        add("Type", &body.kind);
        add("DisplayName", &body.display_name);
        add("Description", &body.description);
        add("TokenLocality", &body.token_locality);
        let ttl = body.max_token_ttl.parse::<GoDuration>().ok();
        if let Some(ttl) = ttl.filter(|ttl| !ttl.get().is_zero()) {
            add("MaxTokenTTL", &ttl.to_string());
        }
        if full {
            fields.insert("Config".into(), Value::Object(body.config.clone()));
        }
        fields.insert("CreateIndex".into(), json!(self.stamp.created));
        fields.insert("ModifyIndex".into(), json!(self.stamp.modified));
        Value::Object(fields)
    }
}

/// Refuses settings that lack what their kind requires.
fn check_config(body: &MethodBody) -> Result<(), Refused> {
    let config = &body.config;
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    match body.kind.as_str() {
        AWS_IAM => {
            if texts(config, "BoundIAMPrincipalARNs").next().is_none() {
                let text = "BoundIAMPrincipalARNs is required and must have at least 1 entry";
                return Err(invalid(text));
            }
            if texts(config, "IAMEntityTags").next().is_some()
                && !is_set(config, "EnableIAMEntityDetails")
            {
                let text = "Must set EnableIAMEntityDetails=true to use IAMUserTags";
                return Err(invalid(text));
            }
        }
        KUBERNETES => {
            for name in ["Host", "CACert", "ServiceAccountJWT"] {
                if text(name).is_empty() {
                    return Err(invalid(format!("Config.{name} is required")));
                }
            }
        }
        _ => {
            let keys = texts(config, "JWTValidationPubKeys").count();
            let sources =
                [keys > 0, !text("JWKSURL").is_empty(), !text("OIDCDiscoveryURL").is_empty()];
            if sources.into_iter().filter(|given| *given).count() != 1 {
                return Err(invalid(
                    "exactly one of 'JWTValidationPubKeys', 'JWKSURL', or 'OIDCDiscoveryURL' must be set for type \"jwt\"",
                ));
            }
        }
    }
    Ok(())
}

impl State {
    /// Makes an auth method, or changes the one of this name.
    pub(in crate::testing) fn acl_method_set(
        &mut self,
        body: MethodBody,
    ) -> Result<Value, Refused> {
        if body.name.is_empty() {
            return Err(invalid("no Name is set"));
        }
        if !is_name(&body.name) {
            return Err(invalid(format!("invalid Name. {NAME_RULE}")));
        }
        let old = self.acl.methods.get(&body.name).cloned();
        if old.as_ref().is_some_and(|old| !body.kind.is_empty() && old.body.kind != body.kind) {
            return Err(Refused::new(500, "the Type field of an Auth Method is immutable"));
        }
        let kinds: &[&str] =
            if self.is_1_8() { &["jwt", KUBERNETES] } else { &[AWS_IAM, "jwt", KUBERNETES] };
        if !kinds.contains(&body.kind.as_str()) {
            return Err(invalid(format!("Type should be one of: [{}]", kinds.join(" "))));
        }
        if !body.max_token_ttl.is_empty() {
            let ttl = body.max_token_ttl.parse::<GoDuration>();
            let bad = |error| Refused::new(400, format!("AuthMethod decoding failed: {error}"));
            let ttl = ttl.map_err(bad)?;
            let too_long = self.is_1_8() && ttl.get() > super::token::LONGEST;
            for (out, word, limit) in [
                (ttl.get() < super::token::SHORTEST, "less", super::token::SHORTEST),
                (too_long, "more", super::token::LONGEST),
            ] {
                if out && !ttl.get().is_zero() {
                    let limit = GoDuration::new(limit);
                    let text = format!("MaxTokenTTL {ttl} cannot be {word} than {limit}");
                    return Err(Refused::new(500, text));
                }
            }
        }
        if !matches!(body.token_locality.as_str(), "" | "local" | "global") {
            return Err(invalid("TokenLocality should be one of 'local' or 'global'"));
        }
        check_config(&body)?;
        let stamp = self.stamp(old.map(|old| old.stamp), |indexes| &mut indexes.methods);
        let method = Method { body, stamp };
        let answer = method.to_json(true);
        self.acl.methods.insert(method.body.name.clone(), method);
        Ok(answer)
    }

    pub(in crate::testing) fn acl_method(&self, name: &str) -> (Option<Value>, Seen) {
        let found = self.acl.methods.get(name).map(|method| method.to_json(true));
        (found, Seen::by_index(self.acl.indexes.methods))
    }

    pub(in crate::testing) fn acl_methods(&self) -> (Value, Seen) {
        let list = self.acl.methods.values().map(|method| method.to_json(false)).collect();
        (list, Seen::by_index(self.acl.indexes.methods))
    }

    /// Deletes an auth method with its binding rules and the tokens of its logins.
    pub(in crate::testing) fn acl_method_delete(&mut self, name: &str) -> Result<Value, Refused> {
        if self.acl.methods.remove(name).is_none() {
            return self.acl_nothing_to_delete("auth method");
        }
        let index = self.stamp(None, |indexes| &mut indexes.methods).modified;
        let acl = &mut self.acl;
        let before = (acl.rules.len(), acl.tokens.len());
        acl.rules.retain(|_, rule| rule.body.auth_method != name);
        acl.tokens.retain(|_, token| token.auth_method != name);
        if acl.rules.len() != before.0 {
            acl.indexes.rules = index;
        }
        if acl.tokens.len() != before.1 {
            acl.indexes.tokens = index;
        }
        Ok(Value::Bool(true))
    }
}
