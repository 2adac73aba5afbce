//! TLS of the listener that Prometheus scrapes, with certificates that Envoy reads from files.

use crate::{
    Error, Result,
    json::{Json, object},
};

const CERT: &str = "prometheus_cert";
const VALIDATION: &str = "prometheus_validation_context";

/// TLS settings of the listener that Prometheus scrapes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrometheusTls {
    /// Authorities of the clients.
    pub ca: PrometheusCa,
    /// PEM certificate file.
    pub cert_file: String,
    /// PEM key file.
    pub key_file: String,
    /// `true` to demand a certificate of the client. Default `false`, as upstream: Envoy then
    /// accepts clients without one, although authorities are set.
    pub require_client_certificate: bool,
}

/// Location of the authorities of Prometheus clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrometheusCa {
    /// A PEM file.
    File(String),
    /// A folder that Envoy watches.
    Path(String),
}

impl PrometheusTls {
    /// Creates the settings from the values of upstream's flags; `None` when none of them is set.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when some are set, but not all of authority, certificate and key.
    pub fn from_flags(ca_file: &str, ca_path: &str, cert: &str, key: &str) -> Result<Option<Self>> {
        if [ca_file, ca_path, cert, key].iter().all(|value| value.is_empty()) {
            return Ok(None);
        }
        if (ca_file.is_empty() && ca_path.is_empty()) || cert.is_empty() || key.is_empty() {
            return Err(Error::input(
                "Must provide a CA (-prometheus-ca-file or -prometheus-ca-path) as well as \
                 -prometheus-cert-file and -prometheus-key-file to enable TLS for prometheus metrics",
            ));
        }
        Ok(Some(Self {
            ca: if ca_file.is_empty() {
                PrometheusCa::Path(ca_path.to_owned())
            } else {
                PrometheusCa::File(ca_file.to_owned())
            },
            cert_file: cert.to_owned(),
            key_file: key.to_owned(),
            require_client_certificate: false,
        }))
    }
}

pub(super) fn transport_socket(tls: &PrometheusTls) -> Json {
    let required = tls.require_client_certificate.then_some(true);
    object! {
        "name" => "tls",
        "typedConfig" => object! {
            "@type" => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "commonTlsContext" => object! {
                // By name: the secrets themselves stand in the same document, built by `secrets`.
                "tlsCertificateSdsSecretConfigs" => vec![object! { "name" => CERT }],
                "validationContextSdsSecretConfig" => object! { "name" => VALIDATION },
            },
        }
        .with("requireClientCertificate", required),
    }
}

pub(super) fn secrets(tls: &PrometheusTls) -> Vec<Json> {
    let file = |name: &str| object! { "filename" => name };
    let validation = match &tls.ca {
        PrometheusCa::File(path) => object! { "trustedCa" => file(path) },
        PrometheusCa::Path(path) => {
            object! { "watchedDirectory" => object! { "path" => path.as_str() } }
        }
    };
    vec![
        object! {
            "name" => CERT,
            "tlsCertificate" => object! {
                "certificateChain" => file(&tls.cert_file),
                "privateKey" => file(&tls.key_file),
            },
        },
        object! { "name" => VALIDATION, "validationContext" => validation },
    ]
}
