//! Secrets Manager's rules about versions, for what moto cannot do: refuse, page, lose answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::stub::{ok, refused};

/// Secrets by name, each with its versions in order of creation.
#[derive(Debug, Default, Clone)]
pub(super) struct Secrets {
    state: Arc<Mutex<BTreeMap<String, Secret>>>,
}

#[derive(Debug, Default)]
struct Secret {
    versions: Vec<(String, Value)>,
    current: Option<String>,
}

pub(super) fn arn(name: &str) -> String {
    format!("arn:aws:secretsmanager:us-east-1:123456789012:secret:{name}-AbCdEf")
}

impl Secrets {
    /// Makes a secret, with a first version if there is a value.
    pub(super) fn create(&self, name: &str, value: Option<&str>) {
        let mut secret = Secret::default();
        if let Some(value) = value {
            secret.put("first", json!({"SecretString": value}));
        }
        self.state.lock().unwrap().insert(name.to_owned(), secret);
    }

    /// A version that another program writes.
    pub(super) fn put(&self, name: &str, version: &str, value: Value) {
        self.state.lock().unwrap().get_mut(name).unwrap().put(version, value);
    }

    /// Makes an old version the current one again.
    pub(super) fn put_back(&self, name: &str, version: &str) {
        self.state.lock().unwrap().get_mut(name).unwrap().current = Some(version.to_owned());
    }

    pub(super) fn current(&self, name: &str) -> (String, Value) {
        let state = self.state.lock().unwrap();
        let current = state[name].current.clone().unwrap();
        let value = state[name].version(&current).unwrap().clone();
        (current, value)
    }

    pub(super) fn answer(&self, action: &str, input: &Value) -> ResponseTemplate {
        match action {
            "GetSecretValue" => self.get(input),
            "UpdateSecret" => self.update(input),
            "ListSecrets" => self.list(input),
            other => panic!("{other}"),
        }
    }

    fn get(&self, input: &Value) -> ResponseTemplate {
        let state = self.state.lock().unwrap();
        let name = input["SecretId"].as_str().unwrap();
        let Some((name, secret)) = find(&state, name) else { return not_found() };
        let asked = input["VersionId"].as_str().map(str::to_owned);
        let (kind, id) = match asked {
            Some(id) => ("VersionId", id),
            None => ("staging label", secret.current.clone().unwrap_or("AWSCURRENT".to_owned())),
        };
        let Some(value) = secret.version(&id) else {
            let message =
                format!("Secrets Manager can't find the specified secret value for {kind}: {id}");
            return refused(400, "ResourceNotFoundException", &message);
        };
        let stages = if secret.current.as_ref() == Some(&id) { vec!["AWSCURRENT"] } else { vec![] };
        let mut answer =
            json!({"ARN": arn(name), "Name": name, "VersionId": id, "VersionStages": stages});
        answer.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        ok(&answer)
    }

    fn update(&self, input: &Value) -> ResponseTemplate {
        let mut state = self.state.lock().unwrap();
        let Some(name) = find(&state, input["SecretId"].as_str().unwrap()) else {
            return not_found();
        };
        let name = name.0.to_owned();
        let token = input["ClientRequestToken"].as_str().unwrap();
        assert!((32..=64).contains(&token.len()), "{token}");
        let value = json!({"SecretString": input["SecretString"]});
        let secret = state.get_mut(&name).unwrap();
        match secret.version(token) {
            Some(known) if *known != value => {
                let message = format!("A resource with the ID {token} already exists.");
                return refused(400, "ResourceExistsException", &message);
            }
            // The same once more: nothing changes.
            Some(_) => {}
            None => secret.put(token, value),
        }
        ok(&json!({"ARN": arn(&name), "Name": name, "VersionId": token}))
    }

    /// Two to a page.
    fn list(&self, input: &Value) -> ResponseTemplate {
        assert_eq!(input["Filters"][0]["Key"], "name");
        let prefixes = input["Filters"][0]["Values"].as_array().unwrap();
        let state = self.state.lock().unwrap();
        let chosen =
            |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str().unwrap()));
        let entries: Vec<Value> = state
            .iter()
            .filter(|(name, _)| chosen(name))
            .map(|(name, secret)| {
                let stages = |id: &String| match &secret.current {
                    Some(current) if current == id => json!(["AWSCURRENT"]),
                    _ => json!([]),
                };
                let versions: BTreeMap<&String, Value> =
                    secret.versions.iter().map(|(id, _)| (id, stages(id))).collect();
                json!({"ARN": arn(name), "Name": name, "SecretVersionsToStages": versions})
            })
            .collect();
        let page: usize = input["NextToken"].as_str().map_or(0, |page| page.parse().unwrap());
        let more = entries.len() > 2 * (page + 1);
        let some: Vec<Value> = entries.into_iter().skip(2 * page).take(2).collect();
        ok(&json!({"SecretList": some, "NextToken": more.then(|| (page + 1).to_string())}))
    }
}

impl Secret {
    fn put(&mut self, id: &str, value: Value) {
        self.versions.push((id.to_owned(), value));
        self.current = Some(id.to_owned());
    }

    fn version(&self, id: &str) -> Option<&Value> {
        self.versions.iter().find(|(known, _)| known == id).map(|(_, value)| value)
    }
}

fn find<'a>(
    state: &'a BTreeMap<String, Secret>,
    name_or_arn: &str,
) -> Option<(&'a str, &'a Secret)> {
    let mut all = state.iter().map(|(name, secret)| (name.as_str(), secret));
    all.find(|(name, _)| *name == name_or_arn || arn(name) == name_or_arn)
}

fn not_found() -> ResponseTemplate {
    let message = "Secrets Manager can't find the specified secret.";
    refused(400, "ResourceNotFoundException", message)
}
