//! Certificate authority of the double's mesh.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    Refused, Seen, State,
    format::rfc3339,
    tables::{Leaf, ttl},
};
use crate::types::{JsonObject, nullable};

const SHORTEST_LEAF: Duration = Duration::from_hours(1);
/// The index at which a server has made its authority before it can be asked.
const BOOT: u64 = 9;

/// The body that changes how certificates are made.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(in crate::testing) struct NewCaConfiguration {
    #[serde(deserialize_with = "nullable")]
    provider: String,
    #[serde(deserialize_with = "nullable")]
    config: JsonObject,
}

fn failed(error: &rcgen::Error) -> Refused {
    Refused::new(500, format!("error generating a certificate: {error}"))
}

impl State {
    /// Makes the first authority, unless there is one.
    fn ready_ca(&mut self, now: Instant) -> Result<(), Refused> {
        if self.ca.authorities.is_empty() {
            self.ca.serial = BOOT - 1;
            let wall = self.wall(now);
            self.ca.add_authority(wall, BOOT).map_err(|error| failed(&error))?;
        }
        Ok(())
    }

    /// The domain that the mesh's names end with.
    pub(super) fn trust_domain(&self) -> String {
        self.ca.domain()
    }

    pub(in crate::testing) fn ca_roots(&mut self, now: Instant) -> Result<(Value, Seen), Refused> {
        self.ready_ca(now)?;
        let ca = &self.ca;
        let active = ca.authorities.last().map(|active| active.id.as_str()).unwrap_or_default();
        let roots = ca.authorities.iter().map(|root| {
            let crossed = root.crossed.as_ref().map(|pem| vec![pem]);
            json!({
                "ID": root.id, "Name": if self.is_1_8() { "Consul CA Root Cert" } else { "Consul CA Primary Cert" }, "SerialNumber": root.serial,
                "SigningKeyID": root.key_id, "ExternalTrustDomain": ca.trust_domain,
                "NotBefore": rfc3339(root.valid.0), "NotAfter": rfc3339(root.valid.1),
                "RootCert": root.pem, "IntermediateCerts": crossed, "Active": root.id == active,
                "PrivateKeyType": "ec", "PrivateKeyBits": 256, "CreateIndex": root.created,
                "ModifyIndex": root.modified,
            })
        });
        let roots: Vec<Value> = roots.collect();
        let value = json!({ "ActiveRootID": active, "TrustDomain": ca.domain(), "Roots": roots });
        Ok((value, Seen::by_index(ca.roots_index.max(ca.config_index))))
    }

    pub(in crate::testing) fn ca_roots_pem(&mut self, now: Instant) -> Result<String, Refused> {
        self.ready_ca(now)?;
        Ok(self.ca.authorities.iter().map(|root| root.pem.as_str()).collect())
    }

    /// A service's certificate: a new one if there is none of the active authority.
    pub(in crate::testing) fn ca_leaf(
        &mut self,
        service: &str,
        now: Instant,
    ) -> Result<(Value, Seen), Refused> {
        self.ready_ca(now)?;
        let active = self.ca.authorities.last().map(|active| active.id.clone());
        let is_outdated = |leaf: &Leaf| Some(&leaf.authority) != active.as_ref();
        if self.ca.leaves.get(service).is_none_or(is_outdated) {
            let (index, wall) = (self.commit(), self.wall(now));
            self.ca.make_leaf(service, wall, now, index).map_err(|error| failed(&error))?;
        }
        let leaf = self.ca.leaves.get(service);
        let index = leaf.map_or(1, |leaf| leaf.index);
        Ok((leaf.map(|leaf| leaf.value.clone()).unwrap_or_default(), Seen::by_index(index)))
    }

    /// Renews certificates whose time has come.
    pub(super) fn renew_leaves(&mut self, now: Instant) {
        let due = self.ca.leaves.iter().filter(|(_, leaf)| leaf.renew <= now);
        let due: Vec<String> = due.map(|(service, _)| service.clone()).collect();
        for service in due {
            let (index, wall) = (self.commit(), self.wall(now));
            if self.ca.make_leaf(&service, wall, now, index).is_err() {
                self.ca.leaves.remove(&service);
            }
        }
    }

    pub(in crate::testing) fn ca_configuration(&self) -> Value {
        let default = if self.is_1_8() {
            json!({
                "IntermediateCertTTL": "8760h", "LeafCertTTL": "72h", "RotationPeriod": "2160h",
            })
        } else {
            json!({
                "IntermediateCertTTL": "8760h", "LeafCertTTL": "72h", "RootCertTTL": "87600h",
            })
        };
        let config = self.ca.config.as_ref().map_or(default, |config| json!(config));
        json!({
            "Provider": "consul", "Config": config, "State": null,
            "ForceWithoutCrossSigning": false, "CreateIndex": 5,
            "ModifyIndex": self.ca.config_index.max(5),
        })
    }

    /// Changes how certificates are made. Another private key makes another
    /// authority, which has a key of its own and not that one.
    pub(in crate::testing) fn ca_configure(
        &mut self,
        new: NewCaConfiguration,
        now: Instant,
    ) -> Result<(), Refused> {
        if new.provider != "consul" {
            let text =
                format!("could not initialize provider: unknown CA provider {:?}", new.provider);
            return Err(Refused::new(500, text));
        }
        if let Some(text) = new.config.get("LeafCertTTL")
            && ttl(text).is_none_or(|ttl| ttl < SHORTEST_LEAF)
        {
            let text =
                "error configuring provider: leaf cert TTL must be greater or equal than 1h0m0s";
            return Err(Refused::new(500, text));
        }
        let key = |config: &JsonObject| {
            let key = config.get("PrivateKey").and_then(Value::as_str).unwrap_or_default();
            Some(key.to_owned()).filter(|key| !key.is_empty())
        };
        let next = key(&new.config);
        if next.is_some() && next != self.ca.config.as_ref().and_then(key) {
            self.rotate_ca(now)?;
        }
        self.ca.config_index = self.commit();
        self.ca.config = Some(new.config);
        Ok(())
    }

    /// Lets another authority be the active one; the old ones stay trusted.
    pub(in crate::testing) fn rotate_ca(&mut self, now: Instant) -> Result<(), Refused> {
        self.ready_ca(now)?;
        let (index, wall) = (self.commit(), self.wall(now));
        self.ca.add_authority(wall, index).map_err(|error| failed(&error))
    }

    pub(super) fn lower_ca(&mut self, lower: impl Fn(&mut u64)) {
        lower(&mut self.ca.config_index);
        lower(&mut self.ca.roots_index);
        for root in &mut self.ca.authorities {
            lower(&mut root.created);
            lower(&mut root.modified);
        }
        for leaf in self.ca.leaves.values_mut() {
            lower(&mut leaf.index);
        }
    }
}
