//! The AWS IAM auth methods, merged with what other clusters and operators have put into them.

use consul_watch::types::{AclAuthMethod, JsonObject};
use serde_json::{Value, json};

use super::{LoginTokens, Registration};
use crate::{Action, Change, Error, Object, Result, Writer, consul::is_taken};

pub(super) const SERVICE_METHOD: &str = "iam-ecs-service-token";
pub(super) const CLIENT_METHOD: &str = "iam-ecs-client-token";
const PRINCIPALS: &str = "BoundIAMPrincipalARNs";
const TAGS: &str = "IAMEntityTags";
const DETAILS: &str = "EnableIAMEntityDetails";
const NAMESPACE_TAG: &str = "consul.hashicorp.com.namespace";

impl LoginTokens {
    /// Returns the auth methods as they are when newly created.
    pub(super) fn auth_methods(&self) -> Vec<AclAuthMethod> {
        let service_name = "consul.hashicorp.com.service-name";
        match self.settings.registration {
            Registration::Clients => vec![
                self.auth_method(CLIENT_METHOD, "client", &[]),
                self.auth_method(SERVICE_METHOD, "service", &[service_name, NAMESPACE_TAG]),
            ],
            Registration::Catalog => vec![self.auth_method(
                SERVICE_METHOD,
                "service",
                &["consul.hashicorp.com.gateway-kind", NAMESPACE_TAG, service_name],
            )],
        }
    }

    fn auth_method(&self, name: &str, whose: &str, tags: &[&str]) -> AclAuthMethod {
        let mut config = JsonObject::new();
        config.insert(PRINCIPALS.to_owned(), json!([self.principal]));
        config.insert(DETAILS.to_owned(), Value::Bool(true));
        if !tags.is_empty() {
            config.insert(TAGS.to_owned(), json!(tags));
        }
        let mut method = AclAuthMethod::new(name, "aws-iam", config);
        method.description = format!("AWS IAM auth method for ECS {whose} tokens");
        if self.tenancy.partition().is_some() && !tags.is_empty() {
            let mut rule = JsonObject::new();
            let selector = format!("entity_tags[\"{NAMESPACE_TAG}\"] != \"\"");
            rule.insert("Selector".to_owned(), selector.into());
            let namespace = format!("${{entity_tags.{NAMESPACE_TAG}}}");
            rule.insert("BindNamespace".to_owned(), namespace.into());
            method.namespace_rules.push(rule);
        }
        method
    }

    /// Creates an auth method, or adds to an existing one what it lacks.
    pub(super) async fn ensure_auth_method(
        &self,
        writer: &Writer,
        wanted: &AclAuthMethod,
    ) -> Result<()> {
        let name = &wanted.name;
        let (read, write) = (self.tenancy.home(), self.tenancy.home_write());
        // A second round if another writer creates it meanwhile.
        for _ in 0..2 {
            let found = self.consul.acl_auth_method(name, &read).await;
            let found = found.map_err(Error::consul(format!("reading auth method {name}")))?.value;
            let (action, method) = match found {
                None => (Action::Create, wanted.clone()),
                Some(found) => match self.merge_and_warn(&found, wanted) {
                    Some(merged) => (Action::Update, merged),
                    None => return Ok(()),
                },
            };
            let done = writer.write(Change::new(action, Object::AuthMethod, name), async {
                let done = match action {
                    Action::Create => self.consul.acl_auth_method_create(&method, &write).await,
                    _ => self.consul.acl_auth_method_update(&method, &write).await,
                };
                done.map_err(Error::consul(format!("upserting auth method {name}")))
            });
            match done.await {
                Err(Error::Consul { source, .. }) if is_taken(&source) => {}
                other => return other.map(drop),
            }
        }
        Ok(())
    }

    fn merge_and_warn(
        &self,
        stored: &AclAuthMethod,
        wanted: &AclAuthMethod,
    ) -> Option<AclAuthMethod> {
        for principal in wide_principals(stored).filter(|it| *it != self.principal) {
            tracing::warn!(
                auth_method = stored.name,
                principal,
                "the auth method trusts every role of an account, maybe since an earlier release; if nobody needs that, take it out of {PRINCIPALS}"
            );
        }
        merge(stored, wanted)
    }
}

/// Returns the principals that an auth method trusts by a pattern without a path.
fn wide_principals(method: &AclAuthMethod) -> impl Iterator<Item = &str> {
    let list = method.config.expose().get(PRINCIPALS).and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.filter(|arn| {
        // A prefix of `role/*` is as wide: `r*` and `*` match every role, too.
        let begin = arn.splitn(6, ':').nth(5).and_then(|resource| resource.strip_suffix('*'));
        begin.is_some_and(|begin| ["role/", "user/"].iter().any(|kind| kind.starts_with(begin)))
    })
}

/// Returns the stored auth method with its missing parts added; `None` if nothing is missing.
///
/// In this way two clusters that share one Consul trust each other's roles.
///
/// Deviation: all other stored settings stay, where upstream drops what an operator has set.
fn merge(stored: &AclAuthMethod, wanted: &AclAuthMethod) -> Option<AclAuthMethod> {
    let mut config = stored.config.expose().clone();
    let mut changed = false;
    for key in [PRINCIPALS, TAGS] {
        let Some(more) = wanted.config.expose().get(key) else { continue };
        let have = lenient_texts(key, config.get(key));
        let more = lenient_texts(key, Some(more));
        // Compared as sets: the order of an operator's list is no reason to write.
        if more.iter().any(|text| !have.contains(text)) {
            let merged = unique(have.into_iter().chain(more).collect());
            config.insert(key.to_owned(), json!(merged));
            changed = true;
        }
    }
    if config.get(DETAILS) != Some(&Value::Bool(true)) {
        config.insert(DETAILS.to_owned(), Value::Bool(true));
        changed = true;
    }
    let mut method = stored.clone();
    for rule in &wanted.namespace_rules {
        if !method.namespace_rules.contains(rule) {
            method.namespace_rules.push(rule.clone());
            changed = true;
        }
    }
    method.config = config.into();
    changed.then_some(method)
}

fn lenient_texts(key: &str, value: Option<&Value>) -> Vec<String> {
    let (texts, problem) = texts(value);
    if let Some(problem) = problem {
        tracing::warn!(setting = key, problem, "the auth method's settings are not as expected");
    }
    texts
}

/// Returns the texts of a list, and what is wrong with it.
fn texts(value: Option<&Value>) -> (Vec<String>, Option<String>) {
    let list = match value {
        None | Some(Value::Null) => return (Vec::new(), None),
        Some(Value::Array(list)) => list,
        Some(other) => {
            return (Vec::new(), Some(format!("value of type {} is not a []string", kind(other))));
        }
    };
    let texts: Vec<String> = list.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let other = list.iter().find(|item| !item.is_string());
    let problem = other.map(|item| format!("an element of type {} is not a string", kind(item)));
    (texts, problem)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Sorts the texts and drops duplicates.
fn unique(mut texts: Vec<String>) -> Vec<String> {
    texts.sort();
    texts.dedup();
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Case ACL36: texts are taken out of a list; other elements and other types are reported.
    #[test]
    fn texts_are_taken_out_of_lists_leniently() {
        assert_eq!(texts(None), (Vec::new(), None));
        assert_eq!(texts(Some(&Value::Null)), (Vec::new(), None));
        assert_eq!(texts(Some(&json!(["b", "a"]))), (vec!["b".to_owned(), "a".to_owned()], None));
        let (found, problem) = texts(Some(&json!(["a", 1])));
        assert_eq!(found, ["a"]);
        assert!(problem.unwrap().contains("number"));
        for not_a_list in [json!(1), json!("a"), json!({})] {
            let (found, problem) = texts(Some(&not_a_list));
            assert!(found.is_empty() && problem.unwrap().ends_with("is not a []string"));
        }
        let (found, problem) = texts(Some(&json!([1, 2])));
        assert!(found.is_empty() && problem.is_some());
    }

    #[test]
    fn a_pattern_without_a_path_is_wide() {
        let account = "arn:aws:iam::123456789012:";
        let arns = ["role/*", "role/consul-ecs/*", "role/web", "user/*", "*", "ro*", "role/c*"];
        let arns: Vec<String> = arns.iter().map(|arn| format!("{account}{arn}")).collect();
        let mut config = JsonObject::new();
        config.insert(PRINCIPALS.to_owned(), json!(arns));
        let method = AclAuthMethod::new("m", "aws-iam", config);
        let wide: Vec<&str> =
            wide_principals(&method).filter_map(|arn| arn.strip_prefix(account)).collect();
        assert_eq!(wide, ["role/*", "user/*", "*", "ro*"]);
    }

    /// Case ACL37: merged lists are sorted and free of duplicates.
    #[test]
    fn merged_lists_are_sorted_and_hold_each_once() {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        assert_eq!(unique(Vec::new()), Vec::<String>::new());
        assert_eq!(unique(owned(&["b", "a"])), ["a", "b"]);
        assert_eq!(unique(owned(&["b", "a", "b", "a"])), ["a", "b"]);
    }
}
