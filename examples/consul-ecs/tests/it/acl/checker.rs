//! What has to be there after a quiet moment, to the last token.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::world::{CLUSTER, PREFIX};

/// What the deployment wants.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    /// Services with a task.
    pub(super) running: BTreeSet<String>,
    /// All services; each has a secret.
    pub(super) services: BTreeSet<String>,
}

/// What there is.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) tokens: Vec<Token>,
    /// Description and rules, by name.
    pub(super) policies: BTreeMap<String, (String, String)>,
    /// By service; `None` where the secret is gone.
    pub(super) secrets: BTreeMap<String, Option<Held>>,
    pub(super) client_secret: Option<Held>,
}

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) accessor: String,
    pub(super) secret: String,
    pub(super) description: String,
    pub(super) policies: Vec<String>,
}

/// What a secret holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    Ids { accessor: String, secret: String },
    Other(String),
}

impl Held {
    pub(super) fn read(text: &str) -> Self {
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        match (value["accessor_id"].as_str(), value["token"].as_str()) {
            (Some(accessor), Some(secret)) => {
                Self::Ids { accessor: accessor.to_owned(), secret: secret.to_owned() }
            }
            _ if text == "{}" => Self::Nothing,
            _ => Self::Other(text.to_owned()),
        }
    }
}

/// Policies that Consul and the test have made.
const FOREIGN_POLICIES: &[&str] = &["global-management", "guest-service"];

fn description(kind: &str, service: &str) -> String {
    format!("{kind} for {service} service\nconsul.hashicorp.com/cluster: {CLUSTER}")
}

fn rules(service: &str) -> String {
    [
        (format!("service \"{service}\""), "write"),
        (format!("service \"{service}-sidecar-proxy\""), "write"),
        ("service_prefix \"\"".to_owned(), "read"),
        ("node_prefix \"\"".to_owned(), "read"),
    ]
    .map(|(head, level)| format!("{head} {{\n  policy = \"{level}\"\n}}"))
    .join("\n")
}

/// Everything that is not as it has to be.
pub(super) fn violations(expected: &Expected, found: &Found) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(of_policies(expected, found));
    let mut strangers: Vec<&Token> = found.tokens.iter().collect();
    for service in &expected.running {
        let text = description("Token", service);
        let own: Vec<&Token> =
            found.tokens.iter().filter(|token| token.description == text).collect();
        strangers.retain(|token| token.description != text);
        match &own[..] {
            [token] => all.extend(of_token(token, &policy(service), held(found, service))),
            _ => all.push(format!("{service} has {} tokens", own.len())),
        }
    }
    let (clients, strangers): (Vec<&Token>, Vec<&Token>) =
        strangers.into_iter().partition(|token| token.description == "ECS Consul client Token");
    match &clients[..] {
        [token] => {
            let name = format!("{PREFIX}-consul-client-policy");
            all.extend(of_token(token, &name, found.client_secret.as_ref()));
        }
        _ => all.push(format!("there are {} client tokens", clients.len())),
    }
    let guest = description("Token", "guest").replace(CLUSTER, &format!("{CLUSTER}-2"));
    let left: BTreeSet<&str> = strangers.iter().map(|token| token.description.as_str()).collect();
    let foreign =
        ["Anonymous Token", "Initial Management Token", "Master Token", "a person's", &guest];
    for token in strangers {
        if !foreign.contains(&token.description.as_str()) {
            all.push(format!("token {} is left over: {:?}", token.accessor, token.description));
        }
    }
    for description in ["Anonymous Token", "a person's", &guest] {
        if !left.contains(description) {
            all.push(format!("the token {description:?} is gone, which is not ours"));
        }
    }
    for service in &expected.services {
        if held(found, service).is_none() {
            all.push(format!("the secret of {service} is gone"));
        }
    }
    all
}

fn policy(service: &str) -> String {
    format!("{service}-service")
}

fn held<'a>(found: &'a Found, service: &str) -> Option<&'a Held> {
    found.secrets.get(service).and_then(Option::as_ref)
}

fn of_token(token: &Token, policy: &str, held: Option<&Held>) -> Vec<String> {
    let mut all = Vec::new();
    if token.policies != [policy] {
        all.push(format!("token for {policy} has the policies {:?}", token.policies));
    }
    let ids = Held::Ids { accessor: token.accessor.clone(), secret: token.secret.clone() };
    if held != Some(&ids) {
        all.push(format!("the secret for {policy} does not hold its token"));
    }
    all
}

fn of_policies(expected: &Expected, found: &Found) -> Vec<String> {
    let mut all = Vec::new();
    let mut names: BTreeSet<String> = FOREIGN_POLICIES.iter().map(|&it| it.to_owned()).collect();
    names.insert(format!("{PREFIX}-consul-client-policy"));
    for service in &expected.running {
        let name = policy(service);
        if let Some(found) = found.policies.get(&name)
            && *found != (description("Policy", service), rules(service))
        {
            all.push(format!("the policy {name} is not what it has to be: {found:?}"));
        }
        names.insert(name);
    }
    let there: BTreeSet<String> = found.policies.keys().cloned().collect();
    all.extend(names.difference(&there).map(|name| format!("the policy {name} is missing")));
    all.extend(there.difference(&names).map(|name| format!("the policy {name} is left over")));
    all
}

mod tests {
    use super::*;

    fn token(service: &str) -> Token {
        Token {
            accessor: format!("accessor-{service}"),
            secret: format!("secret-{service}"),
            description: description("Token", service),
            policies: vec![policy(service)],
        }
    }

    fn other(description: &str) -> Token {
        Token { description: description.to_owned(), policies: Vec::new(), ..token(description) }
    }

    fn ids(token: &Token) -> Held {
        Held::Ids { accessor: token.accessor.clone(), secret: token.secret.clone() }
    }

    /// Two services run, a third does not.
    fn sound() -> (Expected, Found) {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let expected = Expected { running: names(&["a", "b"]), services: names(&["a", "b", "c"]) };
        let guest = description("Token", "guest").replace("cluster/prod", "cluster/prod-2");
        let client = Token {
            policies: vec!["prod-consul-client-policy".to_owned()],
            ..other("ECS Consul client Token")
        };
        let mut found = Found { client_secret: Some(ids(&client)), ..Found::default() };
        found.tokens = vec![token("a"), token("b"), client, other("Anonymous Token")];
        found.tokens.extend([other("a person's"), other(&guest), other("Master Token")]);
        for name in ["global-management", "guest-service", "prod-consul-client-policy"] {
            found.policies.insert(name.to_owned(), Default::default());
        }
        for service in ["a", "b"] {
            let text = (description("Policy", service), rules(service));
            found.policies.insert(policy(service), text);
            found.secrets.insert(service.to_owned(), Some(ids(&token(service))));
        }
        found.secrets.insert("c".to_owned(), Some(Held::Nothing));
        (expected, found)
    }

    #[test]
    fn what_is_sound_passes() {
        let (expected, found) = sound();
        assert_eq!(violations(&expected, &found), Vec::<String>::new());
    }

    /// A name and what it does to a sound state.
    type Plant = (&'static str, fn(&mut Found));

    #[test]
    fn every_planted_fault_is_found() {
        let plants: &[Plant] = &[
            ("a has 0 tokens", |found| drop(found.tokens.remove(0))),
            ("a has 2 tokens", |found| found.tokens.push(token("a"))),
            ("is left over: \"Token for c", |found| found.tokens.push(token("c"))),
            ("is left over: \"mine\"", |found| found.tokens.push(other("mine"))),
            ("has the policies []", |found| found.tokens[0].policies.clear()),
            ("has the policies [\"a-service\", \"x\"]", |found| {
                found.tokens[0].policies.push("x".to_owned());
            }),
            ("for a-service does not hold", |found| found.tokens[0].secret.push('x')),
            ("for a-service does not hold", |found| {
                found.secrets.insert("a".to_owned(), Some(Held::Nothing));
            }),
            ("the secret of c is gone", |found| drop(found.secrets.insert("c".to_owned(), None))),
            ("there are 0 client tokens", |found| drop(found.tokens.remove(2))),
            ("for prod-consul-client-policy does not hold", |found| found.client_secret = None),
            ("\"a person's\" is gone", |found| drop(found.tokens.remove(4))),
            ("cluster/prod-2\" is gone", |found| drop(found.tokens.remove(5))),
            ("policy b-service is missing", |found| drop(found.policies.remove("b-service"))),
            ("policy guest-service is missing", |found| {
                found.policies.remove("guest-service");
            }),
            ("policy c-service is left over", |found| {
                found.policies.insert("c-service".to_owned(), Default::default());
            }),
            ("policy b-service is not what", |found| {
                found.policies.get_mut("b-service").unwrap().1.push('x');
            }),
        ];
        for (symptom, plant) in plants {
            let (expected, mut found) = sound();
            plant(&mut found);
            let all = violations(&expected, &found);
            assert!(all.iter().any(|it| it.contains(symptom)), "{symptom}: {all:?}");
        }
    }
}
