//! The configuration file of consul-dataplane, which runs Envoy in the current generation.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};

use crate::{
    Config,
    config::ServersConfig,
    json::{Json, object},
    registration::MeshService,
};

/// Source of consul-dataplane's ACL token.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum DataplaneCredentials {
    /// Token as it is.
    Static(SecretString),
    /// Login by consul-dataplane itself.
    Login {
        /// Name of the auth method.
        method: String,
        /// Datacenter to log in to; empty takes the server's.
        datacenter: String,
        /// Bearer token, valid for about 15 minutes.
        bearer_token: SecretString,
        /// Metadata of the token.
        meta: BTreeMap<String, String>,
    },
}

/// Inputs of `consul-dataplane.json`.
#[derive(Debug)]
pub struct DataplaneConfig<'a> {
    /// Configuration of the task.
    pub config: &'a Config,
    /// Addresses and TLS settings of the servers.
    pub servers: &'a ServersConfig,
    /// Sidecar or gateway that Envoy acts as.
    pub proxy: &'a MeshService,
    /// Name of the node that it is registered on.
    pub node: &'a str,
    /// PEM file of the servers' authority for gRPC; empty for the system's.
    pub ca_file: &'a str,
    /// Source of the token; `None` for servers without ACLs.
    pub credentials: Option<&'a DataplaneCredentials>,
}

impl DataplaneConfig<'_> {
    /// Renders the document, indented by two spaces. It may hold a token.
    ///
    /// Source: consul-ecs 0.10 `internal/dataplane/dataplane_config.go`.
    pub fn to_text(&self) -> String {
        let mut text = self.json().to_pretty();
        text.push('\n');
        text
    }

    fn json(&self) -> Json {
        let namespace = self.proxy.namespace.as_deref().unwrap_or_default();
        let partition = self.proxy.partition.as_deref().unwrap_or_default();
        let consul = object! {
            "addresses" => self.servers.hosts.as_str(),
            "grpcPort" => self.servers.grpc.port,
            "serverWatchDisabled" => self.servers.skip_server_watch,
            "tls" => self.tls(),
        }
        .with("credentials", self.credentials.map(|it| credentials(it, namespace, partition)));
        let dns = self.config.uses_consul_dns().then(|| {
            object! { "bindAddress" => "127.0.0.1", "bindPort" => DNS_PORT }
        });
        object! {
            "consul" => consul,
            "proxy" => object! {
                "nodeName" => self.node,
                "id" => self.proxy.id.as_str(),
                "namespace" => namespace,
                "partition" => partition,
            },
            "xdsServer" => object! { "bindAddress" => "127.0.0.1" },
            "envoy" => object! {
                "readyBindAddress" => "127.0.0.1",
                "readyBindPort" => self.config.health_check_port(),
            },
            "logging" => object! { "logLevel" => self.config.log_level.as_str() },
        }
        .with("dnsServer", dns)
    }

    fn tls(&self) -> Json {
        let tls = self.servers.grpc_tls();
        if !tls.enabled {
            return object! { "disabled" => true };
        }
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        object! { "disabled" => false }
            .with("caCertsPath", some(self.ca_file))
            .with("tlsServerName", some(&tls.server_name))
    }
}

/// Port on which consul-dataplane answers DNS.
pub(crate) const DNS_PORT: u16 = 8600;

fn credentials(credentials: &DataplaneCredentials, namespace: &str, partition: &str) -> Json {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match credentials {
        DataplaneCredentials::Static(token) => object! {
            "type" => "static",
            "static" => object! { "token" => token.expose_secret() },
        },
        DataplaneCredentials::Login { method, datacenter, bearer_token, meta } => {
            let meta =
                meta.iter().map(|(name, value)| (name.clone().into(), value.as_str().into()));
            let login = object! { "authMethod" => method.as_str() }
                .with("namespace", some(namespace))
                // Also when it is empty, as upstream writes it.
                .with("partition", some(partition))
                .with("datacenter", Some(datacenter.as_str()))
                .with("bearerToken", Some(bearer_token.expose_secret()))
                .with("meta", Some(Json::Object(meta.collect())));
            object! { "type" => "login", "login" => login }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rendered(config: &str, ca_file: &str, credentials: Option<&DataplaneCredentials>) -> Value {
        let config = Config::parse(config).unwrap();
        let proxy = MeshService { id: "web-abcdef-sidecar-proxy".into(), ..MeshService::default() };
        let servers = config.consul_servers.as_ref().unwrap();
        let node = "arn:aws:ecs:us-east-1:1:cluster/test";
        let text =
            DataplaneConfig { config: &config, servers, proxy: &proxy, node, ca_file, credentials }
                .to_text();
        serde_json::from_str(&text).unwrap()
    }

    fn config(servers: &str, rest: &str) -> String {
        format!(
            r#"{{"bootstrapDir":"/consul","consulServers":{{"hosts":"consul.dc1"{servers}}}{rest}}}"#
        )
    }

    fn login() -> DataplaneCredentials {
        DataplaneCredentials::Login {
            method: "iam-ecs-service-token".into(),
            datacenter: "dc1".into(),
            bearer_token: "planted-bearer".into(),
            meta: [("consul.hashicorp.com/task-id".to_owned(), "abcdef".to_owned())].into(),
        }
    }

    /// Case MI22: `consul-dataplane.json` plain, with TLS, with a login, with both, and with DNS.
    #[test]
    fn plain_tls_login_both_and_dns() {
        let plain = rendered(&config(r#","defaults":{"tls":false}"#, ""), "", None);
        assert_eq!(
            plain,
            json!({
                "consul": {"addresses": "consul.dc1", "grpcPort": 8503, "serverWatchDisabled": false, "tls": {"disabled": true}},
                "proxy": {"nodeName": "arn:aws:ecs:us-east-1:1:cluster/test", "id": "web-abcdef-sidecar-proxy",
                    "namespace": "", "partition": ""},
                "xdsServer": {"bindAddress": "127.0.0.1"},
                "envoy": {"readyBindAddress": "127.0.0.1", "readyBindPort": 22000},
                "logging": {"logLevel": "INFO"},
            })
        );
        let tls = rendered(&config("", ""), "/consul/consul-grpc-ca-cert.pem", None);
        assert_eq!(
            tls["consul"]["tls"],
            json!({"disabled": false, "caCertsPath": "/consul/consul-grpc-ca-cert.pem", "tlsServerName": "consul.dc1"})
        );
        let expected = json!({"type": "login", "login": {"authMethod": "iam-ecs-service-token", "datacenter": "dc1",
            "bearerToken": "planted-bearer", "meta": {"consul.hashicorp.com/task-id": "abcdef"}}});
        let with_login = rendered(&config(r#","defaults":{"tls":false}"#, ""), "", Some(&login()));
        assert_eq!(with_login["consul"]["credentials"], expected);
        let both = rendered(&config("", ""), "/ca", Some(&login()));
        assert_eq!(both["consul"]["credentials"], expected);
        assert_eq!(both["consul"]["tls"]["caCertsPath"], "/ca");
        let dns = rendered(
            &config("", r#","transparentProxy":{"consulDNS":{"enabled":true}}"#),
            "",
            None,
        );
        assert_eq!(dns["dnsServer"], json!({"bindAddress": "127.0.0.1", "bindPort": 8600}));
        assert!(!format!("{:?}", login()).contains("planted-bearer"));
    }

    /// Case MI11: `CONSUL_HTTP_TOKEN` gives static credentials, even with the login enabled.
    #[test]
    fn a_token_from_the_environment_is_static() {
        let token = DataplaneCredentials::Static("planted".into());
        let json = rendered(&config("", ""), "", Some(&token));
        assert_eq!(
            json["consul"]["credentials"],
            json!({"type": "static", "static": {"token": "planted"}})
        );
    }
}
