//! `Definition`: a watch as an agent's configuration and `consul watch` describe it.

use secrecy::SecretString;
use serde_json::Value;

use super::{
    AgentService, CaRoots, CatalogNodes, CatalogServices, ConnectLeaf, Events, HealthChecks,
    HealthService, HealthState, KvGet, KvList,
};
use crate::{Consistency, Error, QueryOptions, Result, types::JsonObject};

/// A watch as Consul's agents have it in their configuration (`watches`), and as
/// `consul watch` takes it: its type and parameters in JSON.
///
/// | `type` | parameters besides `datacenter` and `token` |
/// |---|---|
/// | `key` | `key`, `stale` |
/// | `keyprefix` | `prefix`, `stale` |
/// | `services`, `nodes` | `filter`, `stale` |
/// | `service` | `service`, `tag` (one or a list), `passingonly`, `filter`, `stale` |
/// | `checks` | `service` or `state` (neither: any state), `filter`, `stale` |
/// | `event` | `name` (without it, all events) |
/// | `connect_roots` | |
/// | `connect_leaf` | `service` |
/// | `agent_service` | `service_id` |
///
/// Handlers are the caller's: their parameters are among [`Definition::exempt`].
///
/// ```
/// use consul_watch::query::{AnyQuery, Definition};
/// use serde_json::json;
///
/// let json = json!({ "type": "service", "service": "web", "tag": "v1", "args": ["reload"] });
/// let parameters = json.as_object().cloned().unwrap_or_default();
/// let definition = Definition::parse(parameters, &["args"])?;
/// assert_eq!(definition.exempt["args"], json!(["reload"]));
/// match definition.query {
///     AnyQuery::Service(query) => println!("watcher.watch({query:?})"),
///     other => println!("another type: {other:?}"),
/// }
/// # Ok::<(), consul_watch::Error>(())
/// ```
///
/// Source: Consul `api/watch`, 1.21.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Definition {
    /// The read to watch, in the given datacenter.
    pub query: AnyQuery,
    /// The token to watch with, for [`Client::with_token`](crate::Client::with_token); `None`
    /// is the client's own.
    pub token: Option<SecretString>,
    /// The parameters that were to be kept, as they were given.
    pub exempt: JsonObject,
}

/// The query of a [`Definition`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnyQuery {
    /// `key`
    Key(KvGet),
    /// `keyprefix`
    KeyPrefix(KvList),
    /// `services`
    Services(CatalogServices),
    /// `nodes`
    Nodes(CatalogNodes),
    /// `service`
    Service(HealthService),
    /// `checks` of a service.
    ServiceChecks(HealthChecks),
    /// `checks` in a state.
    Checks(HealthState),
    /// `event`
    Event(Events),
    /// `connect_roots`
    ConnectRoots(CaRoots),
    /// `connect_leaf`
    ConnectLeaf(ConnectLeaf),
    /// `agent_service`
    AgentService(AgentService),
}

impl Definition {
    /// Reads a definition. The parameters that `exempt` names are kept in
    /// [`Definition::exempt`]; any other that its type does not take is an error.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] with Consul's words for what is missing, contradictory, of the wrong
    /// type or left over.
    pub fn parse(parameters: JsonObject, exempt: &[&str]) -> Result<Self> {
        let mut given = Parameters(parameters);
        let datacenter = given.text("datacenter")?;
        let token = given.text("token")?.map(SecretString::from);
        let Some(kind) = given.text("type")? else {
            return Err(wrong("Watch type must be specified".to_owned()));
        };
        let query = AnyQuery::read(&kind, &mut given, datacenter)?;
        let mut kept = JsonObject::new();
        for name in exempt {
            if let Some(value) = given.0.remove(*name) {
                kept.insert((*name).to_owned(), value);
            }
        }
        if !given.0.is_empty() {
            let mut names: Vec<&str> = given.0.keys().map(String::as_str).collect();
            names.sort_unstable();
            return Err(wrong(format!("Invalid parameters: [{}]", names.join(" "))));
        }
        Ok(Self { query, token, exempt: kept })
    }
}

impl AnyQuery {
    fn read(kind: &str, given: &mut Parameters, datacenter: Option<String>) -> Result<Self> {
        let options = QueryOptions { datacenter, ..QueryOptions::default() };
        Ok(match kind {
            "key" => {
                let key = given.required("key", "Must specify a single key to watch")?;
                Self::Key(KvGet::new(key).options(given.stale(options)?))
            }
            "keyprefix" => {
                let prefix = given.required("prefix", "Must specify a single prefix to watch")?;
                Self::KeyPrefix(KvList::new(prefix).options(given.stale(options)?))
            }
            "services" => Self::Services(CatalogServices::new().options(given.narrow(options)?)),
            "nodes" => Self::Nodes(CatalogNodes::new().options(given.narrow(options)?)),
            "service" => Self::Service(given.service(options)?),
            "checks" => {
                let (service, state) = (given.text("service")?, given.text("state")?);
                let options = given.narrow(options)?;
                match (service, state.as_deref()) {
                    (Some(_), Some(_)) => {
                        return Err(wrong("Cannot specify service and state".to_owned()));
                    }
                    (Some(name), None) => {
                        Self::ServiceChecks(HealthChecks::new(name).options(options))
                    }
                    (None, None | Some("any")) => Self::Checks(HealthState::any().options(options)),
                    (None, Some(state)) => {
                        let state = state.to_owned().into();
                        Self::Checks(HealthState::of(state).options(options))
                    }
                }
            }
            "event" => Self::Event(
                given.text("name")?.map_or_else(Events::new, Events::named).options(options),
            ),
            "connect_roots" => Self::ConnectRoots(CaRoots::new().options(options)),
            "connect_leaf" => {
                let name = given.required("service", "Must specify a single service to watch")?;
                Self::ConnectLeaf(ConnectLeaf::new(name).options(options))
            }
            "agent_service" => {
                let problem = "Must specify a single service ID to watch";
                Self::AgentService(AgentService::new(given.required("service_id", problem)?))
            }
            other => return Err(wrong(format!("Unsupported watch type: {other}"))),
        })
    }
}

/// The parameters that nobody has taken yet.
struct Parameters(JsonObject);

impl Parameters {
    /// A text; an empty one counts as absent.
    fn text(&mut self, name: &str) -> Result<Option<String>> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            Some(_) => Err(wrong(format!("Expecting {name} to be a string"))),
        }
    }

    fn required(&mut self, name: &str, problem: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| wrong(problem.to_owned()))
    }

    fn flag(&mut self, name: &str) -> Result<bool> {
        match self.0.remove(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(wrong(format!("Expecting {name} to be a boolean"))),
        }
    }

    /// A text or a list of texts.
    fn texts(&mut self, name: &str) -> Result<Vec<String>> {
        let items = match self.0.remove(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(one) => vec![one],
        };
        let texts = items.into_iter().map(|item| match item {
            Value::String(text) => Ok(text),
            _ => Err(wrong(format!("Expecting {name} to be a string or []string"))),
        });
        texts.filter(|text| !matches!(text, Ok(text) if text.is_empty())).collect()
    }

    fn stale(&mut self, mut options: QueryOptions) -> Result<QueryOptions> {
        if self.flag("stale")? {
            options.consistency = Consistency::Stale;
        }
        Ok(options)
    }

    fn narrow(&mut self, options: QueryOptions) -> Result<QueryOptions> {
        let mut options = self.stale(options)?;
        options.filter = self.text("filter")?;
        Ok(options)
    }

    fn service(&mut self, options: QueryOptions) -> Result<HealthService> {
        let name = self.required("service", "Must specify a single service to watch")?;
        let mut query = HealthService::new(name).options(self.narrow(options)?);
        for tag in self.texts("tag")? {
            query = query.tag(tag);
        }
        Ok(if self.flag("passingonly")? { query.passing() } else { query })
    }
}

fn wrong(problem: String) -> Error {
    Error::Input { operation: "watch definition", problem }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(json: &Value, exempt: &[&str]) -> Result<Definition> {
        Definition::parse(json.as_object().unwrap().clone(), exempt)
    }

    /// Spec: CW15
    #[test]
    fn what_is_wrong_is_said_in_consuls_words() {
        for (json, problem) in [
            (json!({ "key": "a" }), "Watch type must be specified"),
            (json!({ "type": "" }), "Watch type must be specified"),
            (json!({ "type": 7 }), "Expecting type to be a string"),
            (json!({ "type": "invalid" }), "Unsupported watch type: invalid"),
            (json!({ "type": "key" }), "Must specify a single key to watch"),
            (json!({ "type": "keyprefix" }), "Must specify a single prefix to watch"),
            (json!({ "type": "service" }), "Must specify a single service to watch"),
            (json!({ "type": "connect_leaf" }), "Must specify a single service to watch"),
            (json!({ "type": "agent_service" }), "Must specify a single service ID to watch"),
            (
                json!({ "type": "checks", "service": "web", "state": "critical" }),
                "Cannot specify service and state",
            ),
            (json!({ "type": "key", "key": "a", "stale": "x" }), "Expecting stale to be a boolean"),
            (
                json!({ "type": "service", "service": "web", "tag": [1] }),
                "Expecting tag to be a string or []string",
            ),
            // What one type takes is left over with another.
            (
                json!({ "type": "key", "key": "a", "prefix": "b", "foo": 1 }),
                "Invalid parameters: [foo prefix]",
            ),
            (json!({ "type": "connect_roots", "handler": "x" }), "Invalid parameters: [handler]"),
        ] {
            let error = parse(&json, &["args"]).unwrap_err();
            assert!(!error.is_retryable());
            assert_eq!(error.to_string(), format!("watch definition: {problem}"), "{json}");
        }
    }

    /// Spec: CW15
    #[test]
    fn exempt_parameters_are_kept_and_the_others_used() {
        let json = json!({
            "type": "key", "key": "a", "datacenter": "dc2", "token": "planted", "stale": true,
            "handler_type": "script", "args": ["sh", "-c", "true"],
        });
        let definition = parse(&json, &["args", "handler_type", "absent"]).unwrap();
        let kept = json!({ "handler_type": "script", "args": ["sh", "-c", "true"] });
        assert_eq!(Value::Object(definition.exempt.clone()), kept);
        let options = QueryOptions {
            datacenter: Some("dc2".into()),
            consistency: Consistency::Stale,
            ..QueryOptions::default()
        };
        assert_eq!(definition.query, AnyQuery::Key(KvGet::new("a").options(options)));
        assert!(definition.token.is_some() && !format!("{definition:?}").contains("planted"));
        assert!(parse(&json!({ "type": "connect_roots" }), &[]).unwrap().exempt.is_empty());
    }

    #[test]
    fn each_type_becomes_its_query() {
        let filtered =
            || QueryOptions { filter: Some("x is empty".into()), ..QueryOptions::default() };
        let web = HealthService::new("web");
        for (json, query) in [
            (
                json!({ "type": "keyprefix", "prefix": "a/" }),
                AnyQuery::KeyPrefix(KvList::new("a/")),
            ),
            (
                json!({ "type": "services", "filter": "x is empty" }),
                AnyQuery::Services(CatalogServices::new().options(filtered())),
            ),
            (
                json!({ "type": "nodes", "filter": "x is empty" }),
                AnyQuery::Nodes(CatalogNodes::new().options(filtered())),
            ),
            (
                json!({ "type": "service", "service": "web", "tag": "v1", "passingonly": true }),
                AnyQuery::Service(web.clone().tag("v1").passing()),
            ),
            (
                json!({ "type": "service", "service": "web", "tag": ["v1", "v2"] }),
                AnyQuery::Service(web.tag("v1").tag("v2")),
            ),
            (
                json!({ "type": "checks", "service": "web" }),
                AnyQuery::ServiceChecks(HealthChecks::new("web")),
            ),
            (
                json!({ "type": "checks", "state": "critical" }),
                AnyQuery::Checks(HealthState::of("critical".to_owned().into())),
            ),
            (
                json!({ "type": "checks", "filter": "x is empty" }),
                AnyQuery::Checks(HealthState::any().options(filtered())),
            ),
            (json!({ "type": "event" }), AnyQuery::Event(Events::new())),
            (json!({ "type": "event", "name": "x" }), AnyQuery::Event(Events::named("x"))),
            (json!({ "type": "connect_roots" }), AnyQuery::ConnectRoots(CaRoots::new())),
            (
                json!({ "type": "connect_leaf", "service": "web" }),
                AnyQuery::ConnectLeaf(ConnectLeaf::new("web")),
            ),
            (
                json!({ "type": "agent_service", "service_id": "web-1" }),
                AnyQuery::AgentService(AgentService::new("web-1")),
            ),
        ] {
            assert_eq!(parse(&json, &[]).unwrap().query, query, "{json}");
        }
    }
}
