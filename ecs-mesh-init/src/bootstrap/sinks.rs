//! Statistics sinks (statsd, dogstatsd and the user's own), with the variables that upstream
//! expands in their addresses.

use super::{
    HostPort, ProxySettings,
    envoy_json::{pipe, socket_address},
};
use crate::{
    Error, Result,
    json::{Json, object},
};

/// Builds the sinks of the settings in upstream's order: statsd, dogstatsd, the user's own.
pub(super) fn configured(
    settings: &ProxySettings,
    vars: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Json>> {
    let kinds = [
        ("statsd", "StatsdSink", &settings.statsd_url),
        ("dog_statsd", "DogStatsdSink", &settings.dogstatsd_url),
    ];
    let mut sinks = Vec::new();
    for (kind, message, url) in kinds {
        let Some(url) = url else { continue };
        let name = format!("envoy.stat_sinks.{kind}");
        let address = address(&name, url, vars)?;
        sinks.push(object! {
            "name" => name,
            "typedConfig" => object! {
                "@type" => format!("type.googleapis.com/envoy.config.metrics.v3.{message}"),
                "address" => address,
            },
        });
    }
    sinks.extend(settings.extra_sinks.iter().cloned());
    Ok(sinks)
}

fn address(sink: &str, url: &str, vars: &dyn Fn(&str) -> Option<String>) -> Result<Json> {
    let url = expand(url, vars);
    let unusable = || Error::input(format!("failed to parse {sink} sink address {url:?}"));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
    match scheme {
        "udp" => {
            let authority = rest.split('/').next().unwrap_or_default();
            // A variable that was not expanded would become a host name that fails only when Envoy
            // resolves it.
            if authority.contains(['$', '{', '}', ' ']) {
                return Err(unusable());
            }
            let address: HostPort = authority.parse().map_err(|_error| unusable())?;
            Ok(socket_address(&address.host, address.port))
        }
        "unix" if !rest.is_empty() => Ok(pipe(rest)),
        "unix" => Err(unusable()),
        other => {
            Err(Error::input(format!("unsupported address protocol {other:?} for {sink} sink")))
        }
    }
}

/// Expands variables in an address.
///
/// A value that begins with `$` is wholly the name of a variable; elsewhere only `HOST_IP` is
/// expanded, as upstream does.
fn expand(url: &str, vars: &dyn Fn(&str) -> Option<String>) -> String {
    match url.strip_prefix('$') {
        Some(name) if !name.is_empty() => {
            vars(name.trim_start_matches('{').trim_end_matches('}')).unwrap_or_default()
        }
        _ => {
            let host_ip = vars("HOST_IP").unwrap_or_default();
            // `$HOST_IP` must not match the beginning of `$HOST_IPS`, so a plain `replace` will not
            // do.
            url.replace("${HOST_IP}", &host_ip).replace_name("$HOST_IP", &host_ip)
        }
    }
}

/// Replacement of `$NAME` where the name ends there.
trait ReplaceName {
    fn replace_name(&self, name: &str, value: &str) -> String;
}

impl ReplaceName for str {
    fn replace_name(&self, name: &str, value: &str) -> String {
        let mut result = String::new();
        for (at, piece) in self.split(name).enumerate() {
            if at > 0 {
                let goes_on = piece.starts_with(|next: char| next.is_alphanumeric() || next == '_');
                result.push_str(if goes_on { name } else { value });
            }
            result.push_str(piece);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vars(name: &str) -> Option<String> {
        match name {
            "HOST_IP" => Some("10.0.0.9".into()),
            "STATSD" => Some("udp://127.0.0.1:8125".into()),
            "HOST_ADDRESS" => Some("10.0.0.1".into()),
            _ => None,
        }
    }

    fn statsd(url: &str) -> Result<String> {
        address("envoy.stat_sinks.statsd", url, &vars)
            .map(|json| serde_json::to_string(&json).unwrap())
    }

    /// Case MI48: of variables within an address only `$HOST_IP` is expanded.
    #[test]
    fn only_the_hosts_ip_is_expanded_within_an_address() {
        let error = statsd("udp://$HOST_ADDRESS:9125").unwrap_err().to_string();
        assert_eq!(
            error,
            r#"failed to parse envoy.stat_sinks.statsd sink address "udp://$HOST_ADDRESS:9125""#
        );
        let expected = r#"{"socket_address":{"address":"10.0.0.9","port_value":9125}}"#;
        assert_eq!(statsd("udp://$HOST_IP:9125").unwrap(), expected);
        assert_eq!(statsd("udp://${HOST_IP}:9125").unwrap(), expected);
        assert!(statsd("udp://$HOST_IPS:9125").is_err());
        assert!(statsd("udp://${HOST_ADDRESS}:9125").is_err());
    }

    #[test]
    fn a_variable_may_hold_the_whole_address() {
        let expected = r#"{"socket_address":{"address":"127.0.0.1","port_value":8125}}"#;
        assert_eq!(statsd("$STATSD").unwrap(), expected);
        assert!(
            statsd("$UNSET").unwrap_err().to_string().starts_with("unsupported address protocol")
        );
    }

    #[test]
    fn sockets_are_pipes_and_other_schemes_are_refused() {
        assert_eq!(
            statsd("unix:///var/run/s.sock").unwrap(),
            r#"{"pipe":{"path":"/var/run/s.sock"}}"#
        );
        assert_eq!(
            statsd("tcp://127.0.0.1:1").unwrap_err().to_string(),
            r#"unsupported address protocol "tcp" for envoy.stat_sinks.statsd sink"#
        );
        for bad in ["udp://", "udp://host", "udp://host:port", "unix://", "nothing"] {
            assert!(statsd(bad).is_err(), "{bad}");
        }
    }
}
