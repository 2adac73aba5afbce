//! Configuration entries of the double.

use serde_json::{Value, json};

use super::{Refused, Seen, State, tables::Entry};
use crate::types::JsonObject;

/// Kinds that all servers know.
const KINDS: [&str; 7] = [
    "ingress-gateway",
    "proxy-defaults",
    "service-defaults",
    "service-resolver",
    "service-router",
    "service-splitter",
    "terminating-gateway",
];
/// Kinds that servers since 1.9 have brought. Intentions have calls of their own.
const LATER: [&str; 10] = [
    "api-gateway",
    "bound-api-gateway",
    "exported-services",
    "file-system-certificate",
    "http-route",
    "inline-certificate",
    "jwt-provider",
    "mesh",
    "sameness-group",
    "tcp-route",
];

/// An entry that is to be written.
#[derive(Debug)]
pub(in crate::testing) struct NewEntry {
    pub(in crate::testing) kind: String,
    pub(in crate::testing) name: String,
    fields: JsonObject,
}

impl NewEntry {
    /// Takes a body apart. Settings are kept as they are; what reads always
    /// have is added.
    pub(in crate::testing) fn read(
        mut body: JsonObject,
        kind_is_known: impl Fn(&str) -> bool,
    ) -> Result<Self, String> {
        // Of all names only these two keep to their two spellings until the kind is known.
        let take = |body: &mut JsonObject, name: &str| {
            let found = body.remove(name).or_else(|| body.remove(&name.to_lowercase()));
            found.map(|found| found.as_str().unwrap_or_default().to_owned())
        };
        let (kind, name) = (take(&mut body, "Kind"), take(&mut body, "Name"));
        let Some(kind) = kind else {
            return Err("Payload does not contain a kind/Kind key at the top level".to_owned());
        };
        let mut name = name.unwrap_or_default();
        if !kind_is_known(&kind) {
            return Err(format!("invalid config entry kind: {kind}"));
        }
        let mut body = spelt(&kind, body)?;
        for index in ["CreateIndex", "ModifyIndex", "Hash"] {
            body.remove(index);
        }
        match kind.as_str() {
            "proxy-defaults" if name.is_empty() => "global".clone_into(&mut name),
            "mesh" => "mesh".clone_into(&mut name),
            _ => {}
        }
        if matches!(kind.as_str(), "proxy-defaults" | "service-defaults") {
            for always in ["Expose", "MeshGateway"] {
                body.entry(always).or_insert_with(|| json!({}));
            }
        }
        if kind == "ingress-gateway" {
            body.entry("TLS").or_insert_with(|| json!({ "Enabled": false }));
            let listeners = body.get_mut("Listeners").and_then(Value::as_array_mut);
            for listener in listeners.into_iter().flatten().filter_map(Value::as_object_mut) {
                let protocol = listener.get("Protocol").and_then(Value::as_str).unwrap_or_default();
                let protocol = if protocol.is_empty() { "tcp" } else { protocol }.to_lowercase();
                listener.insert("Protocol".to_owned(), json!(protocol));
            }
        }
        if kind == "service-defaults" {
            match body.get_mut("Protocol") {
                Some(Value::String(protocol)) => *protocol = protocol.to_lowercase(),
                // Simple values are taken as text.
                Some(other @ Value::Number(_)) => *other = json!(other.to_string()),
                _ => {}
            }
        }
        if kind == "proxy-defaults" {
            body.entry("Config").or_insert(Value::Null);
        }
        body.insert("Kind".to_owned(), json!(kind));
        body.insert("Name".to_owned(), json!(name));
        Ok(Self { kind, name, fields: body })
    }

    /// Names of the services whose settings it refers to.
    pub(in crate::testing) fn targets(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (list, inner) in [("Routes", Some("Destination")), ("Splits", None)] {
            let items = self.fields.get(list).and_then(Value::as_array).into_iter().flatten();
            let items = items.filter_map(|item| inner.map_or(Some(item), |inner| item.get(inner)));
            found.extend(items.filter_map(service));
        }
        found.extend(self.fields.get("Redirect").and_then(service));
        found
    }

    fn check(&self, old: bool) -> Result<(), Refused> {
        let refused = |text: String| Err(Refused::new(500, text));
        if self.kind == "proxy-defaults" && self.name != "global" && !old {
            return refused(format!(
                "invalid name ({:?}), only \"global\" is supported",
                self.name
            ));
        }
        if self.name.is_empty() {
            let plain = !old || self.kind != "service-defaults";
            let what = if plain { "Name" } else { "serviceName" };
            return refused(format!("{what} is required"));
        }
        if self.kind == "service-splitter" {
            let splits = self.fields.get("Splits").and_then(Value::as_array);
            let weight = |split: &Value| split.get("Weight").and_then(Value::as_f64);
            let sum: f64 = splits.into_iter().flatten().filter_map(weight).sum();
            if (sum - 100.0).abs() > 0.005 {
                return refused(format!("the sum of all split weights must be 100, not {sum:.6}"));
            }
        }
        Ok(())
    }
}

/// Names of the members of a kind's entries, besides those that all have. Kinds that
/// are not listed keep the names that they came with.
fn members(kind: &str) -> Option<&'static [&'static str]> {
    Some(match kind {
        "service-defaults" => &[
            "Protocol",
            "Mode",
            "TransparentProxy",
            "MutualTLSMode",
            "MeshGateway",
            "Expose",
            "ExternalSNI",
            "UpstreamConfig",
            "Destination",
            "MaxInboundConnections",
            "LocalConnectTimeoutMs",
            "LocalRequestTimeoutMs",
            "BalanceInboundConnections",
            "RateLimits",
            "EnvoyExtensions",
        ],
        "service-resolver" => &[
            "DefaultSubset",
            "Subsets",
            "Redirect",
            "Failover",
            "ConnectTimeout",
            "RequestTimeout",
            "LoadBalancer",
            "PrioritizeByLocality",
        ],
        "service-router" => &["Routes"],
        "service-splitter" => &["Splits"],
        "proxy-defaults" => &[
            "Config",
            "Mode",
            "TransparentProxy",
            "MutualTLSMode",
            "MeshGateway",
            "Expose",
            "AccessLogs",
            "EnvoyExtensions",
            "FailoverPolicy",
            "PrioritizeByLocality",
        ],
        "ingress-gateway" => &["TLS", "Defaults", "Listeners"],
        "terminating-gateway" => &["Services"],
        _ => return None,
    })
}

/// The members of an entry under the names that answers show: Consul takes them in any
/// case, and with underscores between their words. Unknown ones are refused.
fn spelt(kind: &str, body: JsonObject) -> Result<JsonObject, String> {
    const SHARED: [&str; 6] =
        ["Meta", "Namespace", "Partition", "CreateIndex", "ModifyIndex", "Hash"];
    let Some(members) = members(kind) else { return Ok(body) };
    let plain = |name: &str| name.replace('_', "").to_lowercase();
    let mut unknown = Vec::new();
    let mut found = JsonObject::new();
    for (name, value) in body {
        let known = members.iter().chain(&SHARED).find(|known| plain(known) == plain(&name));
        match known {
            Some(known) => drop(found.insert((*known).to_owned(), value)),
            None => unknown.push(name),
        }
    }
    if unknown.is_empty() {
        // Empty texts are left out of answers.
        found.retain(|_, value| value.as_str() != Some(""));
        return Ok(found);
    }
    unknown.sort();
    let lines: Vec<String> =
        unknown.iter().map(|name| format!("\t* invalid config key {name:?}\n")).collect();
    let lines = lines.concat();
    let errors = if unknown.len() == 1 { "error" } else { "errors" };
    Err(format!("{} {errors} occurred:\n{lines}\n", unknown.len()))
}

/// Kinds that discovery chains are made of.
fn shapes_chains(kind: &str) -> bool {
    matches!(
        kind,
        "proxy-defaults"
            | "service-defaults"
            | "service-resolver"
            | "service-router"
            | "service-splitter"
    )
}

fn service(of: &Value) -> Option<String> {
    of.get("Service").and_then(Value::as_str).filter(|name| !name.is_empty()).map(str::to_owned)
}

impl State {
    pub(in crate::testing) fn config_kind_is_known(&self, kind: &str) -> bool {
        KINDS.contains(&kind) || (!self.is_1_8() && LATER.contains(&kind))
    }

    pub(in crate::testing) fn config_get(&self, kind: &str, name: &str) -> (Option<Value>, Seen) {
        let found = self.config.entries.get(&(kind.to_owned(), name.to_owned()));
        let index = self.config.index;
        let seen = match found {
            Some(entry) => Seen::by_content(index, &entry.modified),
            None if self.is_1_8() => Seen::by_index(index),
            None => Seen::by_content(index, &"absent"),
        };
        (found.map(|entry| entry.json(self.is_1_8())), seen)
    }

    /// All entries of a kind, or of all kinds for the empty one, that `sees` takes.
    pub(in crate::testing) fn config_list(
        &self,
        kind: &str,
        sees: impl Fn(&str, &str) -> bool,
    ) -> (Vec<Value>, Seen) {
        let all = self.config.entries.iter();
        let of: Vec<_> = all.filter(|((of, _), _)| kind.is_empty() || of == kind).collect();
        let content: Vec<_> = of.iter().map(|(key, entry)| (*key, entry.modified)).collect();
        let seen = Seen::by_content(self.config.index, &content);
        let seen_ones = of.iter().filter(|((kind, name), _)| sees(kind, name));
        (seen_ones.map(|(_, entry)| entry.json(self.is_1_8())).collect(), seen)
    }

    pub(in crate::testing) fn config_put(
        &mut self,
        new: NewEntry,
        cas: Option<u64>,
    ) -> Result<bool, Refused> {
        let mut new = new;
        if new.kind == "proxy-defaults" && self.is_1_8() {
            // Servers of old take any name for the only one.
            "global".clone_into(&mut new.name);
            new.fields.insert("Name".to_owned(), json!("global"));
        }
        new.check(self.is_1_8())?;
        self.check_gateway(&new.kind, &new.name, &new.fields)?;
        let same_is_skipped = !self.is_1_8();
        let key = (new.kind, new.name);
        let old = self.config.entries.get(&key);
        if same_is_skipped && old.is_some_and(|old| old.fields == new.fields) {
            return Ok(true);
        }
        let stamp = old.map(|old| (old.created, old.modified));
        let index = self.commit();
        if cas.is_some_and(|cas| cas != stamp.map_or(0, |(_, modified)| modified)) {
            return Ok(false);
        }
        let created = stamp.map_or(index, |(created, _)| created);
        self.try_entry(&key, &new.fields)?;
        let same = self.config.entries.get(&key).is_some_and(|old| old.fields == new.fields);
        if !same {
            self.gateway_written(&key.0, &key.1, &new.fields, index);
        }
        self.config.entries.insert(key, Entry { fields: new.fields, created, modified: index });
        self.config.index = index;
        Ok(true)
    }

    /// Refuses an entry with which a service could not be reached.
    fn try_entry(&mut self, key: &(String, String), fields: &JsonObject) -> Result<(), Refused> {
        if !shapes_chains(&key.0) {
            return Ok(());
        }
        let tried = Entry { fields: fields.clone(), created: 0, modified: 0 };
        let old = self.config.entries.insert(key.clone(), tried);
        let checked = self.check_chains();
        match old {
            Some(old) => self.config.entries.insert(key.clone(), old),
            None => self.config.entries.remove(key),
        };
        checked
    }

    /// The index of the last change of any entry.
    pub(super) fn config_index(&self) -> u64 {
        self.config.index
    }

    /// Deletes an entry; what is not there counts as deleted, unless there is
    /// a condition. Servers before 1.12 do not look at conditions.
    pub(in crate::testing) fn config_delete(
        &mut self,
        kind: &str,
        name: &str,
        cas: Option<u64>,
    ) -> Result<bool, Refused> {
        let key = (kind.to_owned(), name.to_owned());
        let modified = self.config.entries.get(&key).map(|entry| entry.modified);
        let index = self.commit();
        if let Some(cas) = cas.filter(|_| !self.is_1_8())
            && modified != Some(cas)
        {
            return Ok(false);
        }
        if let Some(entry) = self.config.entries.remove(&key) {
            if shapes_chains(kind)
                && let Err(refused) = self.check_chains()
            {
                self.config.entries.insert(key, entry);
                return Err(refused);
            }
            self.config.index = index;
            self.gateway_deleted(kind, name, index);
        }
        Ok(true)
    }

    pub(super) fn lower_config(&mut self, lower: impl Fn(&mut u64)) {
        lower(&mut self.config.index);
        for entry in self.config.entries.values_mut() {
            lower(&mut entry.created);
            lower(&mut entry.modified);
        }
    }
}
