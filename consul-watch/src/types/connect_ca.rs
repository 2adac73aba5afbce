//! Root and leaf certificates of the mesh, and the CA's configuration.

use std::time::SystemTime;

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::{SecretObject, is_false, nullable, secret, timestamp};

/// The authorities that the mesh trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CaRoots {
    /// Id of the root that new certificates come from.
    #[serde(default, rename = "ActiveRootID")]
    pub active_root_id: String,
    /// The mesh's name in certificates, `UUID.consul`.
    #[serde(default)]
    pub trust_domain: String,
    /// All roots, also those being rotated out.
    #[serde(default, deserialize_with = "nullable")]
    pub roots: Vec<CaRoot>,
}

impl CaRoots {
    /// The root that new certificates come from.
    pub fn active(&self) -> Option<&CaRoot> {
        self.roots.iter().find(|root| root.active)
    }
}

/// An authority that the mesh trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CaRoot {
    /// The certificate's id, a fingerprint.
    #[serde(rename = "ID")]
    pub id: String,
    /// A name for people.
    #[serde(default)]
    pub name: String,
    /// Serial number of the certificate.
    #[serde(default)]
    pub serial_number: u64,
    /// Id of the key that signs, `aa:bb:…`.
    #[serde(default, rename = "SigningKeyID")]
    pub signing_key_id: String,
    /// Trust domain that an external provider demands.
    #[serde(default)]
    pub external_trust_domain: String,
    /// Start of its validity.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub not_before: Option<SystemTime>,
    /// End of its validity.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub not_after: Option<SystemTime>,
    /// The certificate, PEM.
    #[serde(default, rename = "RootCert")]
    pub root_cert_pem: String,
    /// Further certificates to present with a leaf, PEM.
    #[serde(default, rename = "IntermediateCerts", deserialize_with = "nullable")]
    pub intermediate_certs_pem: Vec<String>,
    /// New certificates come from it.
    #[serde(default)]
    pub active: bool,
    /// `ec` or `rsa`.
    #[serde(default)]
    pub private_key_type: String,
    /// Length of the key in bits.
    #[serde(default)]
    pub private_key_bits: u64,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

/// A service's certificate with its key. `Debug` does not show the key.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct ConnectLeaf {
    /// Serial number, in hexadecimal.
    #[serde(default)]
    pub serial_number: String,
    /// The certificate, PEM.
    #[serde(rename = "CertPEM")]
    pub cert_pem: String,
    /// Private key of the certificate, PEM.
    #[serde(rename = "PrivateKeyPEM", deserialize_with = "secret::read")]
    pub private_key_pem: SecretString,
    /// The service that it is for.
    #[serde(default)]
    pub service: String,
    /// The service's SPIFFE URI.
    #[serde(default, rename = "ServiceURI")]
    pub service_uri: String,
    /// Start of its validity.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub valid_after: Option<SystemTime>,
    /// End of its validity.
    #[serde(default, deserialize_with = "timestamp::read")]
    pub valid_before: Option<SystemTime>,
    /// Index of its creation.
    #[serde(default)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default)]
    pub modify_index: u64,
}

impl PartialEq for ConnectLeaf {
    fn eq(&self, other: &Self) -> bool {
        // A certificate holds the public half of its key, its service and its validity.
        self.cert_pem == other.cert_pem
            && self.modify_index == other.modify_index
            && secret::same(Some(&self.private_key_pem), Some(&other.private_key_pem))
    }
}

/// Settings by which the mesh's certificates are made.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct CaConfiguration {
    /// `consul`, `vault` or `aws-pca`.
    pub provider: String,
    /// The provider's settings.
    #[serde(default, deserialize_with = "nullable")]
    pub config: SecretObject,
    /// State that the provider keeps between its starts.
    #[serde(
        default,
        deserialize_with = "nullable",
        skip_serializing_if = "SecretObject::is_empty"
    )]
    pub state: SecretObject,
    /// Change roots although the old one cannot sign the new one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force_without_cross_signing: bool,
    /// Index of its creation.
    #[serde(default, skip_serializing)]
    pub create_index: u64,
    /// Index of its last change.
    #[serde(default, skip_serializing)]
    pub modify_index: u64,
}

impl CaConfiguration {
    /// A provider with its settings.
    pub fn new(provider: impl Into<String>, config: impl Into<SecretObject>) -> Self {
        Self { provider: provider.into(), config: config.into(), ..Self::default() }
    }
}

/// A connection that a proxy asks the agent about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct AuthorizeRequest {
    /// The service that is connected to.
    pub target: String,
    /// SPIFFE URI of the client's certificate.
    #[serde(rename = "ClientCertURI")]
    pub client_cert_uri: String,
    /// Serial number of the client's certificate, `aa-bb-…`.
    pub client_cert_serial: String,
}

impl AuthorizeRequest {
    /// A connection to `target` by the holder of a certificate.
    pub fn new(
        target: impl Into<String>,
        client_cert_uri: impl Into<String>,
        client_cert_serial: impl Into<String>,
    ) -> Self {
        Self {
            target: target.into(),
            client_cert_uri: client_cert_uri.into(),
            client_cert_serial: client_cert_serial.into(),
        }
    }
}

/// The agent's verdict on a connection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
#[non_exhaustive]
pub struct Authorization {
    /// `true` if it may be made.
    pub authorized: bool,
    /// Reason of the decision, for people.
    #[serde(default)]
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leafs_key_does_not_show() {
        let read = |key: &str| -> ConnectLeaf {
            let text = format!(r#"{{"CertPEM":"c","PrivateKeyPEM":"{key}"}}"#);
            serde_json::from_str(&text).unwrap()
        };
        assert!(!format!("{:?}", read("planted")).contains("planted"));
        assert!(read("planted") == read("planted") && read("planted") != read("other"));
    }
}
