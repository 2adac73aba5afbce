//! Authorities and certificates of the double's mesh as they are made and kept.

use std::{
    collections::BTreeMap,
    fmt,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, SerialNumber,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    GoDuration,
    testing::state::format::{fingerprint, rfc3339},
    types::JsonObject,
};

pub(in crate::testing) const YEAR: Duration = Duration::from_hours(24 * 365);
pub(in crate::testing) const LEAF_TTL: Duration = Duration::from_hours(72);

/// The mesh's certificates. The authority is made when it is first asked for.
#[derive(Default)]
pub(in crate::testing) struct ConnectCa {
    pub(in crate::testing) trust_domain: String,
    pub(in crate::testing) authorities: Vec<Authority>,
    pub(in crate::testing) leaves: BTreeMap<String, Leaf>,
    pub(in crate::testing) config: Option<JsonObject>,
    pub(in crate::testing) config_index: u64,
    pub(in crate::testing) roots_index: u64,
    pub(in crate::testing) serial: u64,
}

impl fmt::Debug for ConnectCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectCa")
            .field("trust_domain", &self.trust_domain)
            .finish_non_exhaustive()
    }
}

pub(in crate::testing) struct Authority {
    pub(in crate::testing) id: String,
    pub(in crate::testing) key_id: String,
    pub(in crate::testing) serial: u64,
    pub(in crate::testing) pem: String,
    /// Itself, signed by the one before it.
    pub(in crate::testing) crossed: Option<String>,
    pub(in crate::testing) issuer: Issuer<'static, KeyPair>,
    pub(in crate::testing) valid: (SystemTime, SystemTime),
    pub(in crate::testing) created: u64,
    pub(in crate::testing) modified: u64,
}

pub(in crate::testing) struct Leaf {
    pub(in crate::testing) authority: String,
    pub(in crate::testing) value: Value,
    pub(in crate::testing) index: u64,
    pub(in crate::testing) renew: Instant,
}

pub(in crate::testing) fn colons(bytes: impl IntoIterator<Item = u8>) -> String {
    let pairs: Vec<String> = bytes.into_iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(":")
}

impl ConnectCa {
    pub(in crate::testing) fn set_trust_domain(&mut self, domain: String) {
        self.trust_domain = domain;
    }

    pub(in crate::testing) fn domain(&self) -> String {
        format!("{}.consul", self.trust_domain)
    }

    pub(in crate::testing) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Makes another authority and lets it be the active one.
    pub(in crate::testing) fn add_authority(
        &mut self,
        wall: SystemTime,
        index: u64,
    ) -> Result<(), rcgen::Error> {
        let serial = self.next_serial();
        let short = self.trust_domain.get(..8).unwrap_or_default();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("pri-{serial}.consul.ca.{short}.consul"));
        params.subject_alt_names =
            vec![SanType::URI(format!("spiffe://{}", self.domain()).try_into()?)];
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
        ];
        let valid = (wall, wall + 10 * YEAR);
        (params.not_before, params.not_after) = (valid.0.into(), valid.1.into());
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate()?;
        let own = params.self_signed(&key)?;
        let crossed = match self.authorities.last() {
            Some(old) => {
                let mut params = params.clone();
                params.serial_number = Some(SerialNumber::from(serial + 1));
                Some(params.signed_by(&key, &old.issuer)?.pem())
            }
            None => None,
        };
        if crossed.is_some() {
            self.serial += 1;
        }
        let bytes = (0_u8..3).flat_map(|salt| fingerprint(&(salt, &**own.der())).to_be_bytes());
        if let Some(old) = self.authorities.last_mut() {
            old.modified = index;
        }
        self.authorities.push(Authority {
            id: colons(bytes.take(20)),
            key_id: colons(params.key_identifier(&key)),
            serial,
            pem: own.pem(),
            crossed,
            issuer: Issuer::new(params, key),
            valid,
            created: index,
            modified: index,
        });
        self.roots_index = index;
        Ok(())
    }

    pub(in crate::testing) fn leaf_ttl(&self) -> Duration {
        let text = self.config.as_ref().and_then(|config| config.get("LeafCertTTL"));
        text.and_then(ttl).unwrap_or(LEAF_TTL)
    }

    pub(in crate::testing) fn make_leaf(
        &mut self,
        service: &str,
        wall: SystemTime,
        now: Instant,
        index: u64,
    ) -> Result<(), rcgen::Error> {
        let (serial, ttl, domain) = (self.next_serial(), self.leaf_ttl(), self.domain());
        let uri = format!("spiffe://{domain}/ns/default/dc/dc1/svc/{service}");
        let short = self.trust_domain.get(..8).unwrap_or_default();
        let Some(authority) = self.authorities.last() else { return Ok(()) };
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{service}.svc.default.{short}.consul"));
        params.subject_alt_names = vec![SanType::URI(uri.as_str().try_into()?)];
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        (params.not_before, params.not_after) = (wall.into(), (wall + ttl).into());
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate()?;
        let pem = params.signed_by(&key, &authority.issuer)?.pem();
        let bytes = serial.to_be_bytes();
        let significant = bytes.iter().copied().skip_while(|byte| *byte == 0);
        let created = self.leaves.get(service).map_or(index, |old| old.index);
        let value = json!({
            "SerialNumber": colons(significant), "CertPEM": pem,
            "PrivateKeyPEM": key.serialize_pem(), "Service": service, "ServiceURI": uri,
            "ValidAfter": rfc3339(wall), "ValidBefore": rfc3339(wall + ttl),
            "CreateIndex": created, "ModifyIndex": index,
        });
        // Agents ask for the next one between 60 and 90 % of its time.
        let leaf = Leaf { authority: authority.id.clone(), value, index, renew: now + ttl * 3 / 4 };
        self.leaves.insert(service.to_owned(), leaf);
        Ok(())
    }

    pub(in crate::testing) fn next_due(&self) -> Option<Instant> {
        self.leaves.values().map(|leaf| leaf.renew).min()
    }
}

pub(in crate::testing) fn ttl(value: &Value) -> Option<Duration> {
    Some(value.as_str()?.parse::<GoDuration>().ok()?.get())
}
