//! The backend that keeps the state of tasks: what of it stands in `main.tf`,
//! what is secret, and which attributes say where the state is.

#[cfg(feature = "settings")]
use std::path::{Path, PathBuf};
use std::{collections::BTreeMap, fmt};

#[cfg(feature = "settings")]
use cts_tasks::ConsulConfig;
use cts_tasks::Literal;
use secrecy::SecretString;

use crate::{Result, language::Text};

/// The backend in which Terraform keeps the state of all tasks, one workspace each.
///
/// Secrets of the configuration are kept apart from the other attributes: they
/// go to `init` by a file for `-backend-config` that only its owner can read,
/// and never into `main.tf`. They do not go by the environment, which the task's
/// providers read too: they would act under the backend's identity.
///
/// Source: Consul-Terraform-Sync 0.9, `backend` of `driver "terraform"`.
///
/// Deviation: upstream writes a configured `access_token`, key or password
/// into `main.tf`.
#[derive(Clone)]
pub struct Backend {
    label: String,
    attributes: BTreeMap<String, Literal>,
    secrets: BTreeMap<String, Literal>,
}

/// The backends that can keep the state of tasks.
pub(crate) const LABELS: [&str; 9] =
    ["azurerm", "consul", "cos", "gcs", "kubernetes", "local", "manta", "pg", "s3"];

/// Attributes that are secrets, as `backend.LABEL.ATTRIBUTE` below the driver's block.
pub(crate) const SECRET_FIELDS: [&str; 24] = [
    "backend.azurerm.access_key",
    "backend.azurerm.client_certificate",
    "backend.azurerm.client_certificate_password",
    "backend.azurerm.client_secret",
    "backend.azurerm.oidc_request_token",
    "backend.azurerm.oidc_token",
    "backend.azurerm.sas_token",
    "backend.consul.access_token",
    "backend.consul.http_auth",
    "backend.cos.secret_id",
    "backend.cos.secret_key",
    "backend.cos.security_token",
    "backend.gcs.access_token",
    "backend.gcs.credentials",
    "backend.gcs.encryption_key",
    "backend.kubernetes.client_key",
    "backend.kubernetes.password",
    "backend.kubernetes.token",
    "backend.manta.key_material",
    "backend.pg.conn_str",
    "backend.s3.assume_role_with_web_identity",
    "backend.s3.secret_key",
    "backend.s3.sse_customer_key",
    "backend.s3.token",
];

/// Attributes that say where the state is. Any other attribute says how it is
/// reached, so that a change of it moves nothing.
#[cfg(feature = "cli")]
const PLACE: [(&str, &[&str]); 9] = [
    (
        "azurerm",
        &[
            "storage_account_name",
            "container_name",
            "key",
            "environment",
            "endpoint",
            "metadata_host",
        ],
    ),
    ("consul", &["address", "datacenter", "path"]),
    ("cos", &["region", "bucket", "prefix", "key"]),
    ("gcs", &["bucket", "prefix"]),
    (
        "kubernetes",
        &[
            "secret_suffix",
            "namespace",
            "host",
            "config_path",
            "config_paths",
            "config_context",
            "config_context_cluster",
            "in_cluster_config",
        ],
    ),
    ("local", &["workspace_dir"]),
    ("manta", &["account", "url", "path", "object_name"]),
    ("pg", &["conn_str", "schema_name"]),
    ("s3", &["bucket", "key", "region", "endpoint", "endpoints", "workspace_key_prefix"]),
];

impl Backend {
    /// Takes a backend as it is configured.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] for a backend that cannot keep a workspace for each task.
    pub fn new(label: impl Into<String>, attributes: BTreeMap<String, Literal>) -> Result<Self> {
        let label = label.into();
        if !LABELS.contains(&label.as_str()) {
            return Err(crate::Error::invalid(unsupported(&label)));
        }
        let mut backend = Self { label, attributes: BTreeMap::new(), secrets: BTreeMap::new() };
        for (name, value) in attributes {
            backend.set(name, value);
        }
        Ok(backend)
    }

    /// Makes the default backend: Consul KV, reached as the configuration says.
    ///
    /// Source: Consul-Terraform-Sync 0.9, default backend.
    ///
    /// Deviation: relative paths of certificates are made absolute from
    /// `base_dir`, because Terraform runs in another directory.
    #[cfg(feature = "settings")]
    pub fn consul(consul: &ConsulConfig, base_dir: &Path) -> Self {
        let mut attributes = BTreeMap::from([
            ("address".to_owned(), consul.address.as_str().into()),
            ("path".to_owned(), Literal::String(consul.state_path())),
            ("gzip".to_owned(), Literal::Bool(true)),
        ]);
        if let Some(tls) = &consul.tls {
            attributes.insert("scheme".to_owned(), "https".into());
            let files =
                [("ca_file", &tls.ca_cert), ("cert_file", &tls.cert), ("key_file", &tls.key)];
            for (name, file) in files {
                if let Some(file) = file.as_ref().filter(|file| !file.as_os_str().is_empty()) {
                    let file = base_dir.join(file).to_string_lossy().into_owned();
                    attributes.insert(name.to_owned(), Literal::String(file));
                }
            }
        }
        Self { label: "consul".to_owned(), attributes, secrets: BTreeMap::new() }
    }

    /// Sets attributes over those that are there.
    #[must_use]
    pub fn with(mut self, attributes: BTreeMap<String, Literal>) -> Self {
        for (name, value) in attributes {
            self.set(name, value);
        }
        self
    }

    /// The backend's name, such as `s3`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The attributes that stand in `main.tf`.
    pub fn attributes(&self) -> &BTreeMap<String, Literal> {
        &self.attributes
    }

    /// The secret attributes as the content of a file for `-backend-config`;
    /// `None` where the backend has none.
    pub fn secret_attributes(&self) -> Option<SecretString> {
        if self.secrets.is_empty() {
            return None;
        }
        let mut text = Text::new();
        for (name, value) in &self.secrets {
            text.attribute(name, value);
        }
        Some(crate::language::format(text.as_str()).into())
    }

    /// Every text among the secret attributes, to be masked in what the tool prints.
    #[cfg(feature = "cli")]
    pub(crate) fn secret_texts(&self) -> Vec<SecretString> {
        fn collect(value: &Literal, texts: &mut Vec<SecretString>) {
            match value {
                Literal::String(text) if !text.is_empty() => texts.push(text.as_str().into()),
                Literal::Number(number) => texts.push(number.as_str().into()),
                Literal::List(items) => items.iter().for_each(|item| collect(item, texts)),
                Literal::Map(members) => members.values().for_each(|item| collect(item, texts)),
                Literal::Null | Literal::Bool(_) | Literal::String(_) => {}
            }
        }
        let mut texts = Vec::new();
        self.secrets.values().for_each(|value| collect(value, &mut texts));
        texts
    }

    /// The attributes that say where the state is, of those that are set.
    #[cfg(feature = "cli")]
    pub(crate) fn place(&self) -> BTreeMap<&'static str, Literal> {
        let names = PLACE.iter().find(|(label, _)| *label == self.label);
        let names = names.map(|(_, names)| *names).unwrap_or_default();
        let mut place = BTreeMap::new();
        for name in names {
            let value = self.attributes.get(*name).or_else(|| self.secrets.get(*name));
            if let Some(value) = value.filter(|value| !says_nothing(value)) {
                place.insert(*name, place_value(name, value));
            }
        }
        place
    }

    /// All attributes that are set, in a form that can be compared with what the
    /// tool remembers.
    #[cfg(feature = "cli")]
    pub(crate) fn settings(&self) -> BTreeMap<&str, Literal> {
        let set = self.all_attributes().into_iter().filter(|(_, value)| !says_nothing(value));
        set.map(|(name, value)| (name, place_value("", value))).collect()
    }

    /// All attributes, secret ones too, as the tool's own JSON syntax has them.
    #[cfg(feature = "cli")]
    pub(crate) fn all_attributes(&self) -> BTreeMap<&str, &Literal> {
        let all = self.attributes.iter().chain(&self.secrets);
        all.map(|(name, value)| (name.as_str(), value)).collect()
    }

    fn set(&mut self, name: String, value: Literal) {
        let field = format!("backend.{}.{name}", self.label);
        let (into, other) = if SECRET_FIELDS.contains(&field.as_str()) {
            (&mut self.secrets, &mut self.attributes)
        } else {
            (&mut self.attributes, &mut self.secrets)
        };
        other.remove(&name);
        into.insert(name, value);
    }
}

/// Returns `true` for a value that the tool takes as if it were not set.
#[cfg(feature = "cli")]
fn says_nothing(value: &Literal) -> bool {
    match value {
        Literal::Null => true,
        Literal::String(text) => text.is_empty(),
        Literal::List(items) => items.iter().all(says_nothing),
        Literal::Map(members) => members.values().all(says_nothing),
        Literal::Bool(_) | Literal::Number(_) => false,
    }
}

/// The part of a value that says where: of a connection string neither user nor
/// password, of a map nothing that is not set. Scalars become texts, because the
/// tool remembers `"true"` as `true`.
#[cfg(feature = "cli")]
fn place_value(name: &str, value: &Literal) -> Literal {
    match value {
        Literal::String(text) if name == "conn_str" => Literal::String(without_user(text)),
        Literal::Bool(value) => Literal::String(value.to_string()),
        Literal::Number(number) => number.as_str().into(),
        Literal::List(items) => {
            Literal::List(items.iter().map(|item| place_value("", item)).collect())
        }
        Literal::Map(members) => {
            let set = members.iter().filter(|(_, value)| !says_nothing(value));
            Literal::Map(set.map(|(key, item)| (key.clone(), place_value("", item))).collect())
        }
        Literal::Null | Literal::String(_) => value.clone(),
    }
}

/// A connection string of `PostgreSQL` without user and password, in either of
/// its forms, `postgres://user:password@host/database` and `user=… password=…`.
#[cfg(feature = "cli")]
fn without_user(text: &str) -> String {
    if let Some((scheme, rest)) = text.split_once("://") {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        return format!("{scheme}://{host}/{path}");
    }
    let words = text.split_whitespace();
    let kept = words.filter(|word| !word.starts_with("user=") && !word.starts_with("password="));
    kept.collect::<Vec<_>>().join(" ")
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("label", &self.label)
            .field("attributes", &self.attributes.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// The specified words for a backend that is not one of [`LABELS`].
pub(crate) fn unsupported(label: &str) -> String {
    format!("unsupported Terraform backend by Sync {label:?}")
}

/// The environment that lets Terraform's Consul backend reach Consul.
///
/// Source: Consul-Terraform-Sync 0.9, environment of the Terraform process.
///
/// Deviation: basic authentication and `verify = false` reach Terraform too,
/// and relative paths are made absolute from `base_dir`.
#[cfg(feature = "settings")]
pub(crate) fn consul_environment(
    consul: &ConsulConfig,
    base_dir: &Path,
) -> BTreeMap<String, SecretString> {
    use secrecy::ExposeSecret as _;

    let mut environment = BTreeMap::new();
    let mut set = |name: &str, value: String| {
        if !value.is_empty() {
            environment.insert(name.to_owned(), SecretString::from(value));
        }
    };
    set("CONSUL_HTTP_ADDR", consul.address.clone());
    set("CONSUL_NAMESPACE", consul.kv_namespace.clone());
    if let Some(token) = &consul.token {
        set("CONSUL_HTTP_TOKEN", token.expose_secret().to_owned());
    }
    if let Some((user, password)) = &consul.auth {
        set("CONSUL_HTTP_AUTH", format!("{user}:{}", password.expose_secret()));
    }
    if let Some(tls) = &consul.tls {
        let path = |path: &Option<PathBuf>| match path {
            Some(path) if !path.as_os_str().is_empty() => {
                base_dir.join(path).to_string_lossy().into_owned()
            }
            Some(_) | None => String::new(),
        };
        set("CONSUL_CACERT", path(&tls.ca_cert));
        set("CONSUL_CAPATH", path(&tls.ca_path));
        set("CONSUL_CLIENT_CERT", path(&tls.cert));
        set("CONSUL_CLIENT_KEY", path(&tls.key));
        set("CONSUL_TLS_SERVER_NAME", tls.server_name.clone().unwrap_or_default());
        if !tls.verify {
            set("CONSUL_HTTP_SSL_VERIFY", "false".to_owned());
        }
    }
    environment
}
