//! Addresses in the notations of upstream's flags and variables: `host:port`, gRPC addresses with a
//! scheme, and gateway addresses with a default port.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use consul_watch::types::{AgentSelf, JsonObject};
use serde_json::Value;

use crate::{Error, Result};

/// A host, by name or address, and a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// DNS name or IP address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl HostPort {
    /// Creates an address from its parts, unchecked.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A colon within a host is an IPv6 address, which is ambiguous without brackets.
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for HostPort {
    type Err = Error;

    /// Reads `host:port` or `[v6]:port`.
    fn from_str(text: &str) -> Result<Self> {
        let refuse = |problem: &str| Error::input(format!("address {text}: {problem}"));
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| refuse("missing port in address"))?;
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(['[', ']']) => return Err(refuse("missing ']' in address")),
            None if host.contains(':') => return Err(refuse("too many colons in address")),
            None => host,
        };
        if host.is_empty() {
            return Err(refuse("missing host in address"));
        }
        let port = port.parse().map_err(|_error| refuse("the port is not a number up to 65535"))?;
        Ok(Self::new(host, port))
    }
}

/// Address at which Envoy reaches Consul by gRPC, before names are resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrpcAddress {
    /// A host and port.
    Tcp {
        /// Host and port.
        address: HostPort,
        /// `true` if the scheme of the address was `https`.
        tls: bool,
    },
    /// Unix domain socket.
    Unix(PathBuf),
}

const GRPC_PORT: u16 = 8502;

impl GrpcAddress {
    /// Returns the address that upstream falls back to: `localhost:8502` without TLS.
    pub fn standard() -> Self {
        Self::local(GRPC_PORT, false)
    }

    fn local(port: u16, tls: bool) -> Self {
        Self::Tcp { address: HostPort::new("localhost", port), tls }
    }

    /// Reads `[http://|https://]host:port` or `unix:///path`.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] for an address without a port.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let (rest, tls) = match text.split_once("://") {
            Some(("https", rest)) => (rest, true),
            // Any other scheme, also `http`, only says that there is no TLS, as in upstream.
            Some((_scheme, rest)) => (rest, false),
            None => (text, false),
        };
        let address = rest
            .trim_end_matches('/')
            .parse()
            .map_err(|error| Error::input(format!("Invalid Consul HTTP address: {error}")))?;
        Ok(Self::Tcp { address, tls })
    }

    /// Returns the address that an agent reports in `/v1/agent/self`; `None` when it reports no
    /// gRPC port.
    ///
    /// # Errors
    ///
    /// [`Error::Input`] when the agent has gRPC switched off.
    ///
    /// Source: Consul 1.20 `command/connect/envoy/envoy.go` (`lookupXDSPort`).
    pub fn of_agent(agent: &AgentSelf) -> Result<Option<Self>> {
        let none = JsonObject::new();
        let ports = agent.xds.get("Ports").and_then(Value::as_object).unwrap_or(&none);
        let port = |name: &str| ports.get(name).and_then(port_number);
        // An agent may serve both ports; the one with TLS is preferred, as upstream does.
        if let Some(port) = port("TLS") {
            return Ok(Some(Self::local(port, true)));
        }
        if let Some(port) = port("Plaintext") {
            return Ok(Some(Self::local(port, false)));
        }
        // Older agents report a single port, and a negative one when gRPC is switched off.
        let old = agent.debug_config.get("GRPCPort");
        if old.and_then(Value::as_f64).is_some_and(|port| port < 0.0) {
            return Err(Error::input("agent has grpc disabled"));
        }
        Ok(old.and_then(port_number).map(|port| Self::local(port, false)))
    }
}

// 0 and negative numbers both stand for a closed port.
fn port_number(value: &Value) -> Option<u16> {
    value.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)
}

const GATEWAY_PORT: u16 = 8443;

/// Parses the address of a gateway, as upstream's flags `-address` and `-wan-address` take it.
///
/// The port may be left out and is 8443 then; a DNS name needs a port.
///
/// # Errors
///
/// [`Error::Input`] for what is no IP address, or a port that is no number.
pub fn gateway_address(text: &str) -> Result<HostPort> {
    // `8.8.8.8:` has an empty port, which upstream takes for none.
    let trimmed = text.strip_suffix(':').unwrap_or(text);
    if let Ok(address) = trimmed.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(HostPort::new(address.to_string(), GATEWAY_PORT));
    }
    let Some((_host, port)) = trimmed.rsplit_once(':') else {
        return Err(Error::input(format!("{text:?} is not an IP address")));
    };
    if port.parse::<u16>().is_err() {
        return Err(Error::input(format!("Error parsing port {port:?}")));
    }
    trimmed.parse()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn agent(json: &str) -> AgentSelf {
        serde_json::from_str(json).unwrap()
    }

    const CONFIG: &str = r#""Config":{"Datacenter":"dc1","NodeName":"n"}"#;

    /// Case MI40: a negative `GRPCPort` means that the agent serves no gRPC.
    #[test]
    fn an_agent_without_grpc_is_an_error() {
        let agent = agent(&format!(r#"{{{CONFIG},"DebugConfig":{{"GRPCPort":-1}}}}"#));
        assert_eq!(
            GrpcAddress::of_agent(&agent).unwrap_err().to_string(),
            "agent has grpc disabled"
        );
    }

    /// Case MI41: of two xDS ports the one with TLS is used.
    #[test]
    fn the_port_with_tls_is_preferred() {
        let agent =
            agent(&format!(r#"{{{CONFIG},"xDS":{{"Ports":{{"TLS":9998,"Plaintext":9997}}}}}}"#));
        assert_eq!(GrpcAddress::of_agent(&agent).unwrap(), Some(GrpcAddress::local(9998, true)));
    }

    /// Case MI42: an agent that reports only `DebugConfig.GRPCPort` is reached there, without TLS.
    #[test]
    fn older_agents_have_one_port_without_tls() {
        let found = |json: &str| GrpcAddress::of_agent(&agent(json)).unwrap();
        let old = format!(
            r#"{{{CONFIG},"DebugConfig":{{"GRPCPort":8502}},"xDS":{{"SupportedProxies":{{}}}}}}"#
        );
        assert_eq!(found(&old), Some(GrpcAddress::local(8502, false)));
        let plain = format!(r#"{{{CONFIG},"xDS":{{"Ports":{{"TLS":-1,"Plaintext":8502}}}}}}"#);
        assert_eq!(found(&plain), Some(GrpcAddress::local(8502, false)));
        assert_eq!(found(&format!("{{{CONFIG}}}")), None);
    }

    /// Case MI43: the scheme of `CONSUL_HTTP_ADDR` says nothing about gRPC; `CONSUL_GRPC_ADDR`
    /// decides.
    #[test]
    fn only_the_grpc_address_decides_on_tls() {
        let parse = |text: &str| GrpcAddress::parse(text).unwrap();
        let tcp = |tls| GrpcAddress::Tcp { address: HostPort::new("consul", 8503), tls };
        assert_eq!(parse("https://consul:8503"), tcp(true));
        assert_eq!(parse("http://consul:8503/"), tcp(false));
        assert_eq!(parse("consul:8503"), tcp(false));
        assert_eq!(GrpcAddress::standard(), GrpcAddress::local(8502, false));
        assert_eq!(
            parse("unix:///var/run/consul.sock"),
            GrpcAddress::Unix("/var/run/consul.sock".into())
        );
        assert!(GrpcAddress::parse("consul").is_err());
    }

    /// Case MI52: a gateway's address without a port has 8443; a name needs a port.
    #[test]
    fn addresses_of_gateways() {
        let port = |text: &str| gateway_address(text).map(|address| address.port);
        assert_eq!(port("8.8.8.8").unwrap(), 8443);
        assert_eq!(port("8.8.8.8:").unwrap(), 8443);
        assert_eq!(port("localhost:3333").unwrap(), 3333);
        assert_eq!(port("[::1]:3333").unwrap(), 3333);
        assert_eq!(port("::1").unwrap(), 8443);
        let error = |text: &str| gateway_address(text).unwrap_err().to_string();
        assert!(error("not-an-ip-address").contains("not an IP address"));
        assert_eq!(error("localhost:notaport"), r#"Error parsing port "notaport""#);
    }

    #[test]
    fn addresses_print_as_they_are_read() {
        for text in ["127.0.0.1:1", "[::1]:65535", "name:80"] {
            assert_eq!(text.parse::<HostPort>().unwrap().to_string(), text);
        }
        for text in ["", "a", "a:", ":1", "a:b", "a:70000", "::1", "[::1", "[::1]"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parsers_panic(text in "\\PC{0,20}") {
            let _results = (gateway_address(&text), GrpcAddress::parse(&text), text.parse::<HostPort>());
        }
    }
}
