use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
};

use cts_tasks::{ConsulConfig, Literal};
use secrecy::SecretString;

use crate::Result;

/// Where Terraform keeps the state of all tasks, one workspace each.
///
/// Secrets of the configuration are kept apart from the other attributes: they
/// go to Terraform by the environment, and so never into `main.tf`.
///
/// Source: Consul-Terraform-Sync 0.9, `backend` of `driver "terraform"`.
///
/// Deviation: upstream writes a configured `access_token`, key or password
/// into `main.tf`.
#[derive(Clone)]
pub struct Backend {
    label: String,
    attributes: BTreeMap<String, Literal>,
    environment: BTreeMap<&'static str, SecretString>,
}

/// The backends that can keep the state of tasks.
pub(crate) const LABELS: [&str; 9] =
    ["azurerm", "consul", "cos", "gcs", "kubernetes", "local", "manta", "pg", "s3"];

/// Attributes that are secrets: backend, attribute, and the variable that Terraform reads instead.
const SECRETS: [(&str, &str, &str); 21] = [
    ("azurerm", "access_key", "ARM_ACCESS_KEY"),
    ("azurerm", "client_certificate_password", "ARM_CLIENT_CERTIFICATE_PASSWORD"),
    ("azurerm", "client_secret", "ARM_CLIENT_SECRET"),
    ("azurerm", "oidc_token", "ARM_OIDC_TOKEN"),
    ("azurerm", "sas_token", "ARM_SAS_TOKEN"),
    ("consul", "access_token", "CONSUL_HTTP_TOKEN"),
    ("consul", "http_auth", "CONSUL_HTTP_AUTH"),
    ("cos", "secret_id", "TENCENTCLOUD_SECRET_ID"),
    ("cos", "secret_key", "TENCENTCLOUD_SECRET_KEY"),
    ("cos", "security_token", "TENCENTCLOUD_SECURITY_TOKEN"),
    ("gcs", "access_token", "GOOGLE_OAUTH_ACCESS_TOKEN"),
    ("gcs", "credentials", "GOOGLE_CREDENTIALS"),
    ("gcs", "encryption_key", "GOOGLE_ENCRYPTION_KEY"),
    ("kubernetes", "client_key", "KUBE_CLIENT_KEY_DATA"),
    ("kubernetes", "password", "KUBE_PASSWORD"),
    ("kubernetes", "token", "KUBE_TOKEN"),
    ("manta", "key_material", "TRITON_KEY_MATERIAL"),
    ("pg", "conn_str", "PG_CONN_STR"),
    ("s3", "secret_key", "AWS_SECRET_ACCESS_KEY"),
    ("s3", "sse_customer_key", "AWS_SSE_CUSTOMER_KEY"),
    ("s3", "token", "AWS_SESSION_TOKEN"),
];

/// [`SECRETS`] as dotted paths below the driver's block.
#[cfg(feature = "cli")]
pub(crate) const SECRET_FIELDS: [&str; 21] = [
    "backend.azurerm.access_key",
    "backend.azurerm.client_certificate_password",
    "backend.azurerm.client_secret",
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
    "backend.s3.secret_key",
    "backend.s3.sse_customer_key",
    "backend.s3.token",
];

impl Backend {
    /// A backend as configured.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Invalid`] for a backend that cannot keep a workspace for each task.
    pub fn new(label: impl Into<String>, attributes: BTreeMap<String, Literal>) -> Result<Self> {
        let label = label.into();
        if !LABELS.contains(&label.as_str()) {
            return Err(crate::Error::invalid(unsupported(&label)));
        }
        let mut backend = Self { label, attributes: BTreeMap::new(), environment: BTreeMap::new() };
        for (name, value) in attributes {
            backend.set(name, value);
        }
        Ok(backend)
    }

    /// Consul KV, reached as the configuration says.
    ///
    /// Source: Consul-Terraform-Sync 0.9, default backend.
    ///
    /// Deviation: relative paths of certificates are made absolute from
    /// `base_dir`, because Terraform runs in another directory.
    pub fn consul(consul: &ConsulConfig, base_dir: &Path) -> Self {
        let base = consul.kv_path.trim_end_matches('/');
        let path = match base {
            "" => "terraform".to_owned(),
            _ if base.ends_with("/terraform") => base.to_owned(),
            _ => format!("{base}/terraform"),
        };
        let mut attributes = BTreeMap::from([
            ("address".to_owned(), consul.address.as_str().into()),
            ("path".to_owned(), Literal::String(path)),
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
        Self { label: "consul".to_owned(), attributes, environment: BTreeMap::new() }
    }

    /// Sets attributes over those that are there.
    #[must_use]
    pub fn with(mut self, attributes: BTreeMap<String, Literal>) -> Self {
        for (name, value) in attributes {
            self.set(name, value);
        }
        self
    }

    /// Which backend it is.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What stands in `main.tf`.
    pub fn attributes(&self) -> &BTreeMap<String, Literal> {
        &self.attributes
    }

    /// What Terraform gets by its environment instead.
    pub fn environment(&self) -> &BTreeMap<&'static str, SecretString> {
        &self.environment
    }

    fn set(&mut self, name: String, value: Literal) {
        let secret = SECRETS
            .iter()
            .find(|(label, attribute, _)| *label == self.label && *attribute == name)
            .map(|(_, _, variable)| *variable);
        match (secret, value) {
            (Some(variable), Literal::String(secret)) => {
                self.environment.insert(variable, secret.into());
            }
            (_, value) => {
                self.attributes.insert(name, value);
            }
        }
    }
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
