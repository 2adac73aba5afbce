//! The block `high_availability` of a configuration, checked with positions and advice.

use std::{net::Ipv6Addr, time::Duration};

use consul_watch::GoDuration;
use cts_tasks::{
    Config, ConfigValue, Diagnostic, Place,
    config::{Entry, ValueKind},
};
use http::uri::Authority;

use crate::Timing;

/// Name of the block.
pub(super) const BLOCK: &str = "high_availability";

/// Settings of the block `high_availability`, checked.
///
/// Source: Consul documentation `nia/configuration#high-availability`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HighAvailability {
    /// `cluster.name`: name that all instances of the cluster share.
    pub cluster: String,
    /// `cluster.storage.parent_path`; default `consul-terraform-sync`.
    pub parent_path: String,
    /// `cluster.storage.namespace`: Enterprise namespace of keys and session.
    pub namespace: Option<String>,
    /// `cluster.storage.session_ttl`; default 15 s.
    pub session_ttl: Duration,
    /// `cluster.storage.lock_delay`, which upstream does not have; default 15 s.
    pub lock_delay: Duration,
    /// `cluster.storage.monitor_retries`, which upstream does not have: number of consecutive reads
    /// of the lock that may fail while leading; default 5.
    pub monitor_retries: u32,
    /// `cluster.storage.monitor_retry_time`, which upstream does not have: pause between such
    /// reads; default 2 s.
    pub monitor_retry_time: Duration,
    /// `cluster.compat_check_interval`, which upstream does not have; default 5 min.
    pub compat_check_interval: Duration,
    /// `cluster.failover_run`, which upstream does not have; default all.
    pub failover_run: FailoverRun,
    /// `cluster.compat_blocks_leadership`, which upstream does not have: `true` keeps an instance
    /// that could not run a stored task from standing for election; default `false`, as upstream.
    pub compat_blocks_leadership: bool,
    /// `instance.address`: host name or address at which other instances and users reach this one.
    pub address: Option<String>,
    /// `instance.redirect`, which upstream does not have: `"redirect"` answers requests to a
    /// follower with 307 and the leader's address, if it has one; `"error"`, the default, with 400,
    /// as upstream does.
    pub redirect: bool,
}

/// Tasks that a new leader runs once before it watches for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FailoverRun {
    /// `all`: every task, as upstream does.
    #[default]
    All,
    /// `changed`: tasks whose inputs differ from those last applied, and tasks whose last run
    /// failed. A run that the crash itself cut short, and whose inputs have changed back meanwhile,
    /// is not detected.
    Changed,
}

impl HighAvailability {
    /// Creates the settings of a cluster with nothing but a name.
    pub fn new(cluster: impl Into<String>) -> Self {
        Self {
            cluster: cluster.into(),
            parent_path: "consul-terraform-sync".to_owned(),
            namespace: None,
            session_ttl: Duration::from_secs(15),
            lock_delay: Duration::from_secs(15),
            monitor_retries: 5,
            monitor_retry_time: Duration::from_secs(2),
            compat_check_interval: Duration::from_mins(5),
            failover_run: FailoverRun::All,
            compat_blocks_leadership: false,
            address: None,
            redirect: false,
        }
    }

    /// Reads a configuration's block; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Every mistake in the block, and in settings that must fit it: the backend `local` of the
    /// driver "terraform" keeps its state where no other instance finds it.
    pub fn of(config: &Config) -> Result<Option<Self>, Vec<Diagnostic>> {
        let Some(block) = config.blocks.get(BLOCK) else { return Ok(None) };
        let mut errors = Vec::new();
        let settings = read(&block.body, &mut errors);
        if let Some(backend) = local_backend(config) {
            errors.push(
                Diagnostic::error(
                    "the backend \"local\" of driver \"terraform\" is not supported with high \
                     availability: another instance could not find the state",
                )
                .at(backend.place.clone())
                .help("use a remote backend; the default, \"consul\", will do"),
            );
        }
        if errors.is_empty() { Ok(Some(settings)) } else { Err(errors) }
    }

    /// Returns the mistakes of a block's body.
    pub(super) fn check(body: &ConfigValue) -> Vec<Diagnostic> {
        let mut errors = Vec::new();
        read(body, &mut errors);
        errors
    }

    /// Returns the directory of the cluster's keys, without a slash at either end.
    pub fn directory(&self) -> String {
        if self.parent_path.is_empty() {
            return self.cluster.clone();
        }
        format!("{}/{}", self.parent_path, self.cluster)
    }

    /// Returns the tag that the cluster's members register with.
    pub fn tag(&self) -> String {
        format!("cts-cluster:{}", self.cluster)
    }
}

fn local_backend(config: &Config) -> Option<&ConfigValue> {
    let body = config.driver.body.as_ref().filter(|_| config.driver.label == "terraform")?;
    child(child(body, "backend")?, "local")
}

fn child<'a>(value: &'a ConfigValue, key: &str) -> Option<&'a ConfigValue> {
    match &value.kind {
        ValueKind::Object(entries) => {
            entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
        }
        // A single block, which JSON writes as a list.
        ValueKind::List(items) => items.iter().find_map(|item| child(item, key)),
        _ => None,
    }
}

fn read(body: &ConfigValue, errors: &mut Vec<Diagnostic>) -> HighAvailability {
    let mut reader = Reader { errors };
    let mut settings = HighAvailability::new("");
    let blocks = reader.members(BLOCK, body, &["cluster", "instance"]);
    let Some(cluster) = find(&blocks, "cluster") else {
        reader.error(
            "high_availability: cluster is missing",
            body.place.clone(),
            "write cluster { name = \"…\" }",
        );
        return settings;
    };
    let known =
        ["name", "storage", "compat_check_interval", "compat_blocks_leadership", "failover_run"];
    let cluster_path = "high_availability.cluster";
    let members = reader.members(cluster_path, cluster, &known);
    reader.cluster_name(cluster, find(&members, "name"), &mut settings.cluster);
    if let Some(value) = find(&members, "compat_check_interval") {
        reader.duration("compat_check_interval", value, &mut settings.compat_check_interval);
        if settings.compat_check_interval.is_zero() {
            reader.error(
                "compat_check_interval: must be more than 0s",
                value.place.clone(),
                "leave it out for 5m",
            );
        }
    }
    if let Some(value) = find(&members, "compat_blocks_leadership") {
        reader.flag("compat_blocks_leadership", value, &mut settings.compat_blocks_leadership);
    }
    if let Some(value) = find(&members, "failover_run") {
        match reader.text("failover_run", value).as_deref() {
            Some("all") => settings.failover_run = FailoverRun::All,
            Some("changed") => settings.failover_run = FailoverRun::Changed,
            Some(other) => reader.error(
                &format!("failover_run: {other:?} is unknown"),
                value.place.clone(),
                "write \"all\" or \"changed\"",
            ),
            None => {}
        }
    }
    if let Some(storage) = find(&members, "storage") {
        reader.storage(storage, &mut settings);
    }
    if let Some(instance) = find(&blocks, "instance") {
        let known = ["address", "redirect"];
        let members = reader.members("high_availability.instance", instance, &known);
        let address = find(&members, "address").and_then(|value| reader.text("address", value));
        settings.address = address.filter(|address| !address.is_empty());
        if let Some(value) = find(&members, "redirect") {
            reader.redirect(value, &mut settings);
        }
    }
    settings
}

fn find<'a>(entries: &[&'a Entry], key: &str) -> Option<&'a ConfigValue> {
    entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
}

/// Returns `true` for a host name, an IPv4 or an IPv6 address, each with or without a port.
fn is_host(address: &str) -> bool {
    let authority =
        |text: &str| text.parse::<Authority>().is_ok_and(|it| !it.as_str().contains('@'));
    address.parse::<Ipv6Addr>().is_ok() || authority(address)
}

struct Reader<'a> {
    errors: &'a mut Vec<Diagnostic>,
}

impl Reader<'_> {
    fn error(&mut self, message: &str, place: Option<Place>, help: &str) {
        self.errors.push(Diagnostic::error(message).at(place).help(help));
    }

    /// Returns the members of a block, each once, and reports unknown ones.
    fn members<'v>(
        &mut self,
        path: &str,
        value: &'v ConfigValue,
        known: &[&str],
    ) -> Vec<&'v Entry> {
        let entries = match &value.kind {
            ValueKind::Object(entries) => Some(entries),
            ValueKind::List(items) => match items.as_slice() {
                [ConfigValue { kind: ValueKind::Object(entries), .. }] => Some(entries),
                _ => None,
            },
            _ => None,
        };
        let Some(entries) = entries else {
            let name = path.rsplit('.').next().unwrap_or(path);
            if matches!(value.kind, ValueKind::List(_)) {
                let message = format!("only one '{name}' block can be configured");
                self.error(&message, value.place.clone(), "merge the blocks into one");
            } else {
                let message = format!("{path}: expected a block");
                self.error(&message, value.place.clone(), "write { … }");
            }
            return Vec::new();
        };
        let mut seen: Vec<&Entry> = Vec::new();
        for entry in entries {
            let place = || entry.key_place.clone().or_else(|| entry.value.place.clone());
            if !known.contains(&entry.key.as_str()) {
                let message = format!("{path}: invalid keys: {}", entry.key);
                self.error(&message, place(), &format!("known are {}", known.join(", ")));
            } else if seen.iter().any(|earlier| earlier.key == entry.key) {
                let message = format!("only one '{}' block can be configured", entry.key);
                self.error(&message, place(), "merge the blocks into one");
            } else {
                seen.push(entry);
            }
        }
        seen
    }

    fn cluster_name(
        &mut self,
        block: &ConfigValue,
        value: Option<&ConfigValue>,
        name: &mut String,
    ) {
        let Some(value) = value else {
            self.error(
                "high_availability.cluster: name is missing",
                block.place.clone(),
                "all instances of one cluster have the same name",
            );
            return;
        };
        let Some(text) = self.text("name", value) else { return };
        let odd = text.is_empty()
            || text.trim() != text
            || text.contains('/')
            || text.chars().any(char::is_control);
        if odd {
            self.error(
                &format!("high_availability.cluster: {text:?} cannot be a name"),
                value.place.clone(),
                "it is part of a key: not empty, without /, control characters or blanks at its ends",
            );
        }
        *name = text;
    }

    fn storage(&mut self, storage: &ConfigValue, settings: &mut HighAvailability) {
        let kinds = self.members("high_availability.cluster.storage", storage, &["consul"]);
        let Some(consul) = find(&kinds, "consul") else { return };
        let known = [
            "parent_path",
            "namespace",
            "session_ttl",
            "lock_delay",
            "monitor_retries",
            "monitor_retry_time",
        ];
        let members = self.members("high_availability.cluster.storage.consul", consul, &known);
        if let Some(path) =
            find(&members, "parent_path").and_then(|value| self.text("parent_path", value))
        {
            path.trim_matches('/').clone_into(&mut settings.parent_path);
        }
        let namespace = find(&members, "namespace").and_then(|value| self.text("namespace", value));
        settings.namespace = namespace.filter(|namespace| !namespace.is_empty());
        if let Some(value) = find(&members, "monitor_retries") {
            self.count("monitor_retries", value, &mut settings.monitor_retries);
        }
        for (key, place) in [
            ("session_ttl", &mut settings.session_ttl),
            ("lock_delay", &mut settings.lock_delay),
            ("monitor_retry_time", &mut settings.monitor_retry_time),
        ] {
            if let Some(value) = find(&members, key) {
                self.duration(key, value, place);
            }
        }
        // Checked together, since the lease depends on both.
        if let Err(error) = Timing::new(settings.session_ttl, settings.lock_delay) {
            let key =
                if error.to_string().starts_with("lock") { "lock_delay" } else { "session_ttl" };
            let place = find(&members, key).and_then(|value| value.place.clone());
            self.error(&error.to_string(), place, "leave it out for 15s");
        }
    }

    fn redirect(&mut self, value: &ConfigValue, settings: &mut HighAvailability) {
        match self.text("redirect", value).as_deref() {
            Some("error") => settings.redirect = false,
            // A leader without an address could be named, but not redirected to.
            Some("redirect") if settings.address.is_none() => self.error(
                "redirect: needs instance.address, to which the others redirect when this \
                 instance leads",
                value.place.clone(),
                "set address to the name or address by which users reach this instance",
            ),
            Some("redirect") if !settings.address.as_deref().is_some_and(is_host) => self.error(
                "redirect: expected a name or an address in instance.address, with or without a \
                 port, and no scheme or path",
                value.place.clone(),
                "such as cts-01.example.com: the port of the API is added where there is none",
            ),
            Some("redirect") => settings.redirect = true,
            Some(other) => self.error(
                &format!("redirect: {other:?} is unknown"),
                value.place.clone(),
                "write \"error\" or \"redirect\"",
            ),
            None => {}
        }
    }

    fn flag(&mut self, name: &str, value: &ConfigValue, place: &mut bool) {
        match &value.kind {
            ValueKind::Bool(flag) => *place = *flag,
            _ => self.error(
                &format!("{name}: expected true or false"),
                value.place.clone(),
                "write it without quotes",
            ),
        }
    }

    fn text(&mut self, name: &str, value: &ConfigValue) -> Option<String> {
        if let ValueKind::String(text) = &value.kind {
            return Some(text.clone());
        }
        self.error(&format!("{name}: expected a text"), value.place.clone(), "write it in quotes");
        None
    }

    fn count(&mut self, name: &str, value: &ConfigValue, place: &mut u32) {
        let number = match &value.kind {
            ValueKind::Number(number) => number.to_string().parse().ok(),
            _ => None,
        };
        match number {
            Some(number) => *place = number,
            None => self.error(
                &format!("{name}: expected a whole number, 0 or more"),
                value.place.clone(),
                "such as 5, without quotes",
            ),
        }
    }

    fn duration(&mut self, name: &str, value: &ConfigValue, place: &mut Duration) {
        let Some(text) = self.text(name, value) else { return };
        match text.parse::<GoDuration>() {
            Ok(duration) => *place = duration.get(),
            Err(error) => {
                self.error(&format!("{name}: {error}"), value.place.clone(), "such as \"30s\"");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: ValueKind) -> ConfigValue {
        ConfigValue { kind, place: None }
    }

    fn object<const N: usize>(entries: [(&str, ConfigValue); N]) -> ConfigValue {
        let entry = |(key, value): (&str, ConfigValue)| Entry {
            key: key.to_owned(),
            key_place: None,
            labels: Vec::new(),
            block: false,
            value,
        };
        value(ValueKind::Object(entries.into_iter().map(entry).collect()))
    }

    fn text(text: &str) -> ConfigValue {
        value(ValueKind::String(text.to_owned()))
    }

    fn number(number: i64) -> ConfigValue {
        value(ValueKind::Number(number.into()))
    }

    /// Reads a block with this in `storage "consul"`, and returns its mistakes, too.
    fn stored<const N: usize>(
        entries: [(&str, ConfigValue); N],
    ) -> (HighAvailability, Vec<Diagnostic>) {
        let storage = object([("consul", object(entries))]);
        let cluster = object([("name", text("a")), ("storage", storage)]);
        let mut errors = Vec::new();
        let settings = read(&object([("cluster", cluster)]), &mut errors);
        (settings, errors)
    }

    #[test]
    fn retries_of_the_lock_watch_are_configurable() {
        let (settings, errors) = stored([]);
        assert_eq!(errors, []);
        assert_eq!(
            (settings.monitor_retries, settings.monitor_retry_time),
            (5, Duration::from_secs(2))
        );
        let (settings, errors) =
            stored([("monitor_retries", number(0)), ("monitor_retry_time", text("500ms"))]);
        assert_eq!(errors, []);
        assert_eq!(
            (settings.monitor_retries, settings.monitor_retry_time),
            (0, Duration::from_millis(500))
        );
    }

    /// Reads these blocks `instance` and, beside a name, `cluster`.
    fn blocks<const N: usize, const M: usize>(
        instance: [(&str, ConfigValue); N],
        cluster: [(&str, ConfigValue); M],
    ) -> (HighAvailability, Vec<Diagnostic>) {
        let mut cluster = object(cluster);
        if let ValueKind::Object(entries) = &mut cluster.kind
            && let ValueKind::Object(name) = object([("name", text("a"))]).kind
        {
            entries.extend(name);
        }
        let mut errors = Vec::new();
        let body = object([("cluster", cluster), ("instance", object(instance))]);
        (read(&body, &mut errors), errors)
    }

    #[test]
    fn followers_redirect_only_where_that_is_asked_for() {
        let address = || ("address", text("cts-01.example.com"));
        assert!(!blocks([address()], []).0.redirect, "upstream answers 400");
        for (word, redirect) in [("error", false), ("redirect", true)] {
            let (settings, errors) = blocks([("redirect", text(word)), address()], []);
            assert_eq!((settings.redirect, errors), (redirect, vec![]));
        }
        let (_, errors) = blocks([("redirect", text("redirect"))], []);
        assert!(errors[0].to_string().contains("needs instance.address"), "{}", errors[0]);
        for address in ["cts-01:8558", "10.0.0.1", "::1", "[::1]:8558"] {
            let instance = [("redirect", text("redirect")), ("address", text(address))];
            assert_eq!(blocks(instance, []).1, [], "{address}");
        }
        for address in ["https://cts-01.example.com", "cts-01/api", "two words"] {
            let instance = [("redirect", text("redirect")), ("address", text(address))];
            let (_, errors) = blocks(instance, []);
            assert!(errors[0].to_string().contains("expected a name or an address"), "{address}");
        }
        for odd in [text("307"), value(ValueKind::Bool(true))] {
            assert_eq!(blocks([("redirect", odd), address()], []).1.len(), 1);
        }
    }

    #[test]
    fn compatibility_keeps_nobody_from_leading_unless_it_is_asked_to() {
        assert!(!blocks([], []).0.compat_blocks_leadership, "upstream lets it lead");
        let flag = |kind| [("compat_blocks_leadership", value(kind))];
        let (settings, errors) = blocks([], flag(ValueKind::Bool(true)));
        assert_eq!((settings.compat_blocks_leadership, errors), (true, vec![]));
        let yes = ValueKind::String("yes".to_owned());
        assert_eq!(blocks([], flag(yes)).1.len(), 1);
    }

    #[test]
    fn retries_that_are_no_count_are_refused() {
        for odd in [number(-1), number(5_000_000_000), text("5")] {
            assert_eq!(stored([("monitor_retries", odd)]).1.len(), 1);
        }
        assert_eq!(stored([("monitor_retry_time", number(2))]).1.len(), 1);
    }
}
