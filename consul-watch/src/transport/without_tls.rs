//! Refuses what only the feature `tls` can do, so that nobody who asks for TLS gets less.

use crate::{Error, Result, config::ClientConfig, endpoint::Endpoint};

/// Refuses the settings of TLS, also those that have no effect over plain HTTP: who sets them
/// means to be protected.
///
/// `verify` is not among them; it only asks for less.
///
/// # Errors
///
/// [`Error::MissingFeature`] with the first of them.
pub(super) fn refuse(config: &ClientConfig, endpoint: &Endpoint) -> Result<()> {
    let tls = &config.tls;
    let asked = [
        ("CONSUL_HTTP_SSL", tls.enabled),
        ("CONSUL_HTTP_ADDR", endpoint.scheme == "https"),
        ("ca_pem", tls.ca_pem.is_some()),
        ("CONSUL_CACERT", tls.ca_file.is_some()),
        ("CONSUL_CAPATH", tls.ca_path.is_some()),
        ("CONSUL_CLIENT_CERT", tls.client_cert.is_some()),
        ("CONSUL_CLIENT_KEY", tls.client_key.is_some()),
        ("CONSUL_TLS_SERVER_NAME", tls.server_name.is_some()),
    ];
    match asked.into_iter().find(|(_setting, asked)| *asked) {
        Some((setting, _asked)) => Err(Error::MissingFeature { setting, feature: "tls" }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_tls_is_refused_by_its_name() {
        let variables = [
            ("CONSUL_HTTP_SSL", "true"),
            ("CONSUL_HTTP_ADDR", "https://consul.example.com:8501"),
            ("CONSUL_CACERT", "/ca.pem"),
            ("CONSUL_CAPATH", "/ca"),
            ("CONSUL_CLIENT_CERT", "/client.pem"),
            ("CONSUL_CLIENT_KEY", "/client.key"),
            ("CONSUL_TLS_SERVER_NAME", "server.dc1.consul"),
        ];
        for (name, value) in variables {
            let lookup = |asked: &str| (asked == name).then(|| value.to_owned());
            let config = ClientConfig::from_vars(lookup).unwrap();
            let error = refuse(&config, &Endpoint::parse(&config).unwrap()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("{name}: this program was built without the feature `tls`, which it needs")
            );
            assert!(!error.is_retryable());
            // What is built without it really asks.
            let client = crate::Client::new(config).map(drop);
            if cfg!(not(feature = "tls")) {
                assert_eq!(client.unwrap_err().to_string(), error.to_string());
            }
        }
        let mut config = ClientConfig::default();
        config.tls.ca_pem = Some("PEM".to_owned());
        assert!(refuse(&config, &Endpoint::parse(&config).unwrap()).is_err());
    }

    #[test]
    fn plain_addresses_and_less_verification_are_not_refused() {
        for address in ["127.0.0.1:8500", "http://consul.example.com", "unix:///run/consul.sock"] {
            let mut config =
                ClientConfig { address: address.to_owned(), ..ClientConfig::default() };
            config.tls.verify = false;
            refuse(&config, &Endpoint::parse(&config).unwrap()).unwrap();
        }
    }
}
