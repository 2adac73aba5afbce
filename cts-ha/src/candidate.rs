//! The identity of a candidate, and the record of the leader that is the value of the lock's key.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// Identity of a process that stands for election, as others see it once it leads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Candidate {
    /// Name that is unique among the candidates and survives a restart.
    pub id: String,
    /// Id of this process. Tells it from another with the same `id`, which is a mistake.
    pub uuid: String,
    /// Host name or address at which others reach this process; `None` if they need not.
    pub address: Option<String>,
    /// Port at `address`.
    pub port: Option<u16>,
    /// Name that it is registered under in Consul.
    pub service_name: Option<String>,
    /// Version of the program.
    pub version: Option<String>,
}

impl Candidate {
    /// Creates a candidate of this name, with a random `uuid`.
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            uuid: uuid::Uuid::new_v4().to_string(),
            address: None,
            port: None,
            service_name: None,
            version: None,
        }
    }

    pub(crate) fn leader(&self, acquired_at: SystemTime) -> Leader {
        let acquired_at =
            acquired_at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Leader {
            v: 1,
            id: self.id.clone(),
            uuid: self.uuid.clone(),
            address: self.address.clone(),
            port: self.port,
            service_name: self.service_name.clone(),
            acquired_at,
            version: self.version.clone(),
        }
    }
}

/// Record of the leader: the value of the lock's key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Leader {
    #[serde(default)]
    v: u32,
    /// Id of the leader.
    pub id: String,
    /// Id of the leader's process; tells it from another with the same `id`.
    #[serde(default)]
    pub uuid: String,
    /// Host name or address at which it is reached; `None` if it did not state one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Port at `address`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Name that it is registered under in Consul.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// Time of its candidacy, in seconds since 1970 by its own clock.
    #[serde(default)]
    pub acquired_at: u64,
    /// Version of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Leader {
    /// Returns address and port as `host:port`, unless the address has a port already; `None`
    /// without an address.
    pub fn host_and_port(&self) -> Option<String> {
        let address = self.address.as_deref().filter(|address| !address.is_empty())?;
        let bracketed = address.starts_with('[');
        // The colons of an IPv6 address are no port: only what follows a `]`, or a single colon,
        // can be one.
        let after = address.rsplit_once(']').map_or(address, |(_, after)| after);
        let has_port = match after.rsplit_once(':') {
            Some((host, port)) => (bracketed || !host.contains(':')) && port.parse::<u16>().is_ok(),
            None => false,
        };
        match self.port {
            Some(port) if !has_port && !bracketed && address.contains(':') => {
                Some(format!("[{address}]:{port}"))
            }
            Some(port) if !has_port => Some(format!("{address}:{port}")),
            _ => Some(address.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_the_port_that_it_lacks() {
        for (address, expected) in [
            ("cts-01.example.com", "cts-01.example.com:8558"),
            ("cts-01.example.com:80", "cts-01.example.com:80"),
            ("10.0.0.1", "10.0.0.1:8558"),
            ("::1", "[::1]:8558"),
            ("[::1]", "[::1]:8558"),
            ("[::1]:80", "[::1]:80"),
        ] {
            let mut candidate = Candidate::new("a");
            candidate.address = Some(address.to_owned());
            candidate.port = Some(8558);
            let leader = candidate.leader(SystemTime::UNIX_EPOCH);
            assert_eq!(leader.host_and_port().as_deref(), Some(expected));
        }
    }
}
