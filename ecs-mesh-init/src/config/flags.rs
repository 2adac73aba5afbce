//! Configuration by command line, as consul-ecs 0.1 and 0.2 had it before there was a JSON
//! document.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Map, Value};

use super::{CheckConfig, Config, Generation, ServiceConfig, UpstreamConfig};
use crate::{Error, Result};

const DIR: &str = "envoy-bootstrap-dir";
const FILE: &str = "envoy-bootstrap-file";
const PORT: &str = "port";
const SERVICE_NAME: &str = "service-name";
const TAGS: &str = "tags";
const META: &str = "meta";
const UPSTREAMS: &str = "upstreams";
const CHECKS: &str = "checks";
const CONTAINERS: &str = "health-sync-containers";

impl Config {
    /// Reads the flags of `mesh-init`: of 0.1 with `-envoy-bootstrap-file`, of 0.2 with
    /// `-envoy-bootstrap-dir`.
    ///
    /// Flags begin with one dash or two; the value follows, or stands behind `=`.
    ///
    /// ```
    /// use ecs_mesh_init::Config;
    ///
    /// let arguments = ["-envoy-bootstrap-dir", "/consul", "-port=8080", "-upstreams", "api:1234"];
    /// let config = Config::from_mesh_init_flags(&arguments.map(str::to_owned))?;
    /// assert_eq!(config.proxy.upstreams[0].local_bind_port, 1234);
    /// # Ok::<(), ecs_mesh_init::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Input`] in upstream's words for a flag that is missing, unknown or unreadable.
    ///
    /// Source: consul-ecs 0.1.2 and 0.2.0 `subcommand/mesh-init/command.go`.
    pub fn from_mesh_init_flags(arguments: &[String]) -> Result<Self> {
        let known = [DIR, FILE, PORT, SERVICE_NAME, TAGS, META, UPSTREAMS, CHECKS, CONTAINERS];
        let flags = Flags::parse(arguments, &known)?;
        // Both releases ran beside an agent, which is the early generation in all else.
        let mut config = Self { generation: Generation::Early, ..Self::of_first_releases() };
        match (flags.get(DIR), flags.get(FILE)) {
            (Some(folder), _) => config.bootstrap_dir = PathBuf::from(folder),
            (None, Some(file)) => config.bootstrap_file = Some(PathBuf::from(file)),
            (None, None) => return Err(Error::input(format!("-{DIR} must be set"))),
        }
        let service = ServiceConfig {
            name: flags.get(SERVICE_NAME).unwrap_or_default().to_owned(),
            port: flags.port()?,
            tags: flags.list(TAGS),
            meta: flags.meta()?,
            checks: flags.checks()?,
            ..ServiceConfig::default()
        };
        config.health_sync_containers = flags.list(CONTAINERS);
        if !service.checks.is_empty() && !config.health_sync_containers.is_empty() {
            return Err(Error::input(format!("both -{CHECKS} and -{CONTAINERS} can't be passed")));
        }
        config.service = Some(service);
        config.proxy.upstreams = flags.upstreams()?;
        Ok(config)
    }

    /// Reads the flags of `health-sync`.
    ///
    /// `-service-name`, which 0.2 did not have here, serves a task whose mesh-init was given a
    /// name.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] in upstream's words for a flag that is missing, unknown or unreadable.
    ///
    /// Source: consul-ecs 0.2.0 `subcommand/health-sync/command.go`.
    pub fn from_health_sync_flags(arguments: &[String]) -> Result<Self> {
        let flags = Flags::parse(arguments, &[CONTAINERS, SERVICE_NAME])?;
        let mut config = Self { generation: Generation::Early, ..Self::of_first_releases() };
        config.health_sync_containers = flags.list(CONTAINERS);
        if config.health_sync_containers.is_empty() {
            return Err(Error::input(format!("-{CONTAINERS} doesn't have a value. exiting")));
        }
        let name = flags.get(SERVICE_NAME).unwrap_or_default().to_owned();
        config.service = Some(ServiceConfig { name, ..ServiceConfig::default() });
        Ok(config)
    }

    fn of_first_releases() -> Self {
        Self { keeps_family_case: true, ..Self::default() }
    }
}

/// Flags with their values; the last of several wins, as in Go's `flag` package.
struct Flags(BTreeMap<&'static str, String>);

impl Flags {
    fn parse(arguments: &[String], known: &[&'static str]) -> Result<Self> {
        let mut flags = BTreeMap::new();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let flag = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
            let Some(flag) = flag.filter(|flag| !flag.is_empty()) else {
                return Err(Error::input(format!("unexpected argument: {argument}")));
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let Some(known) = known.iter().find(|known| **known == name) else {
                return Err(Error::input(format!("flag provided but not defined: -{name}")));
            };
            // A value may begin with a dash: Go takes the next word whatever it is.
            let value = value.or_else(|| rest.next().cloned());
            let value =
                value.ok_or_else(|| Error::input(format!("flag needs an argument: -{name}")))?;
            flags.insert(*known, value);
        }
        Ok(Self(flags))
    }

    /// Returns the value of a flag, if it is not empty.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn list(&self, name: &str) -> Vec<String> {
        let words = self.get(name).map(|text| text.split(',').map(str::to_owned).collect());
        words.unwrap_or_default()
    }

    fn port(&self) -> Result<u16> {
        // 0 is upstream's default, and stands for a service that listens on nothing.
        let Some(text) = self.get(PORT) else { return Ok(0) };
        text.parse().map_err(|error| {
            Error::input(format!("invalid value {text:?} for flag -{PORT}: {error}"))
        })
    }

    fn meta(&self) -> Result<BTreeMap<String, String>> {
        let Some(text) = self.get(META) else { return Ok(BTreeMap::new()) };
        serde_json::from_str(text)
            .map_err(|error| Error::input(format!("unmarshalling meta: -{META}: {error}")))
    }

    fn upstreams(&self) -> Result<Vec<UpstreamConfig>> {
        self.list(UPSTREAMS).iter().map(|definition| upstream(definition)).collect()
    }

    fn checks(&self) -> Result<Vec<CheckConfig>> {
        let failed = |problem: String| Error::input(format!("unmarshalling checks: {problem}"));
        let Some(text) = self.get(CHECKS) else { return Ok(Vec::new()) };
        let checks: Option<Vec<Map<String, Value>>> =
            serde_json::from_str(text).map_err(|error| failed(error.to_string()))?;
        checks
            .unwrap_or_default()
            .into_iter()
            .map(|check| self::check(check).map_err(failed))
            .collect()
    }
}

/// Parses `name:port`.
fn upstream(definition: &str) -> Result<UpstreamConfig> {
    let invalid =
        |why: &str| Error::input(format!("upstream definition {definition:?} invalid{why}"));
    // Exactly two parts, as upstream: there is no notation for a datacenter or an IPv6 address.
    let Some((name, port)) = definition.split_once(':').filter(|(_, port)| !port.contains(':'))
    else {
        return Err(invalid(""));
    };
    let local_bind_port = port.parse().map_err(|error| invalid(&format!(": {error}")))?;
    let destination_name = name.to_owned();
    Ok(UpstreamConfig { destination_name, local_bind_port, ..UpstreamConfig::default() })
}

/// Members of an agent's check in lower case, as Consul's API names them, and their names in our
/// configuration.
const MEMBERS: &[(&str, &str)] = &[
    ("checkid", "checkId"),
    ("name", "name"),
    ("scriptargs", "args"),
    ("args", "args"),
    ("interval", "interval"),
    ("timeout", "timeout"),
    ("ttl", "ttl"),
    ("http", "http"),
    ("header", "header"),
    ("method", "method"),
    ("body", "body"),
    ("tcp", "tcp"),
    ("status", "status"),
    ("notes", "notes"),
    ("tlsservername", "tlsServerName"),
    ("tlsskipverify", "tlsSkipVerify"),
    ("grpc", "grpc"),
    ("grpcusetls", "grpcUseTls"),
    ("aliasnode", "aliasNode"),
    ("aliasservice", "aliasService"),
    ("successbeforepassing", "successBeforePassing"),
    ("failuresbeforecritical", "failuresBeforeCritical"),
    (DEREGISTER, DEREGISTER),
];
const DEREGISTER: &str = "deregistercriticalserviceafter";
/// Members that Consul knows and an ECS task cannot use.
const UNSUPPORTED: &[&str] = &["dockercontainerid", "shell"];

/// Reads a check in the form of Consul's API.
///
/// Like the original, which decodes it in Go, this ignores the case of names and skips unknown
/// ones.
fn check(members: Map<String, Value>) -> Result<CheckConfig, String> {
    let mut ours = Map::new();
    let mut deregister = String::new();
    for (name, value) in members {
        let lower = name.to_ascii_lowercase();
        // A skipped check would leave the service without the supervision that its author wrote
        // down.
        if UNSUPPORTED.contains(&lower.as_str()) {
            return Err(format!("{name} cannot be used in a task"));
        }
        let Some((_, known)) = MEMBERS.iter().find(|(known, _)| *known == lower) else { continue };
        if *known == DEREGISTER {
            value.as_str().unwrap_or_default().clone_into(&mut deregister);
        } else if !value.is_null() {
            ours.insert((*known).to_owned(), value);
        }
    }
    let mut check: CheckConfig =
        serde_json::from_value(Value::Object(ours)).map_err(|error| error.to_string())?;
    check.deregister_critical_service_after = deregister;
    Ok(check)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mesh_init(arguments: &[&str]) -> Result<Config> {
        let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
        Config::from_mesh_init_flags(&arguments)
    }

    fn error(arguments: &[&str]) -> String {
        mesh_init(arguments).unwrap_err().to_string()
    }

    #[test]
    fn every_flag_of_the_second_release_is_read() {
        let config = mesh_init(&[
            "-envoy-bootstrap-dir", "/consul", "--port=8080", "-service-name", "Web", "-tags", "a,b",
            "-meta", r#"{"env":"test"}"#, "-upstreams", "api:1234,db:5432", "-checks",
            r#"[{"CheckID":"c","HTTP":"http://x","Interval":"10s","ScriptArgs":null,"TLSSkipVerify":true,
                "DeregisterCriticalServiceAfter":"5m","Unknown":1},{"ttl":"1s"}]"#,
        ])
        .unwrap();
        assert_eq!(config.generation, Generation::Early);
        assert_eq!((config.bootstrap_dir, config.bootstrap_file), (PathBuf::from("/consul"), None));
        let service = config.service.unwrap();
        assert_eq!((service.name.as_str(), service.port), ("Web", 8080));
        assert_eq!(
            (service.tags, service.meta["env"].as_str()),
            (vec!["a".into(), "b".into()], "test")
        );
        let checks = &service.checks;
        assert_eq!((checks[0].check_id.as_str(), checks[0].http.as_str()), ("c", "http://x"));
        assert!(checks[0].tls_skip_verify && checks[0].deregister_critical_service_after == "5m");
        assert_eq!(checks[1].ttl, "1s");
        let upstreams: Vec<_> = config
            .proxy
            .upstreams
            .iter()
            .map(|it| (it.destination_name.as_str(), it.local_bind_port))
            .collect();
        assert_eq!(upstreams, [("api", 1234), ("db", 5432)]);
        assert_eq!(config.proxy.public_listener_port, 20000);
    }

    #[test]
    fn defaults_are_those_of_the_original() {
        let config = mesh_init(&["-envoy-bootstrap-file", "/consul/b.json"]).unwrap();
        assert_eq!(config.bootstrap_file, Some(PathBuf::from("/consul/b.json")));
        let service = config.service.unwrap();
        assert_eq!((service.name.as_str(), service.port), ("", 0));
        assert!(service.tags.is_empty() && service.meta.is_empty() && service.checks.is_empty());
        assert!(config.health_sync_containers.is_empty() && config.proxy.upstreams.is_empty());
        assert!(config.keeps_family_case);
    }

    #[test]
    fn what_is_wrong_is_said_in_the_words_of_the_original() {
        let dir = "-envoy-bootstrap-dir=/c";
        assert_eq!(error(&["-port", "1"]), "-envoy-bootstrap-dir must be set");
        assert_eq!(error(&[dir, "-x"]), "flag provided but not defined: -x");
        assert_eq!(error(&[dir, "-port"]), "flag needs an argument: -port");
        assert_eq!(error(&[dir, "word"]), "unexpected argument: word");
        assert!(error(&[dir, "-port", "x"]).starts_with(r#"invalid value "x" for flag -port: "#));
        assert_eq!(error(&[dir, "-upstreams", "a"]), r#"upstream definition "a" invalid"#);
        assert_eq!(error(&[dir, "-upstreams", "a:1:2"]), r#"upstream definition "a:1:2" invalid"#);
        assert!(
            error(&[dir, "-upstreams", "a:b"])
                .starts_with(r#"upstream definition "a:b" invalid: "#)
        );
        assert!(error(&[dir, "-checks", "{"]).starts_with("unmarshalling checks: "));
        assert!(error(&[dir, "-checks", r#"[{"Shell":"sh"}]"#]).contains("Shell cannot be used"));
        assert!(error(&[dir, "-meta", "[]"]).starts_with("unmarshalling meta: "));
        let both = [dir, "-checks", r#"[{"TTL":"1s"}]"#, "-health-sync-containers", "a"];
        assert_eq!(error(&both), "both -checks and -health-sync-containers can't be passed");
        let none = Config::from_health_sync_flags(&["-health-sync-containers=".into()]);
        let expected = "-health-sync-containers doesn't have a value. exiting";
        assert_eq!(none.unwrap_err().to_string(), expected);
        let config =
            Config::from_health_sync_flags(&["-health-sync-containers=a,b".into()]).unwrap();
        assert_eq!(config.health_sync_containers, ["a", "b"]);
    }

    proptest! {
        #[test]
        fn no_flags_do_harm(values in proptest::collection::vec("(?s).{0,40}", 0..8)) {
            let names = [UPSTREAMS, CHECKS, META, TAGS, PORT, CONTAINERS, "x", DIR];
            let arguments: Vec<String> =
                values.iter().zip(names).map(|(value, name)| format!("-{name}={value}")).collect();
            drop(Config::from_mesh_init_flags(&arguments));
            drop(Config::from_health_sync_flags(&values));
        }
    }
}
