//! The client that the block `consul` describes.

use consul_watch::{
    ClientConfig,
    client::{BasicAuth, TlsConfig},
};

use super::ConsulConfig;

impl ConsulConfig {
    /// The settings of a client for this Consul.
    pub fn client_config(&self) -> ClientConfig {
        let mut client = ClientConfig::default();
        client.address.clone_from(&self.address);
        client.token.clone_from(&self.token);
        client.token_file.clone_from(&self.token_file);
        client.basic_auth = self.auth.as_ref().map(|(user, password)| BasicAuth {
            user: user.clone(),
            password: Some(password.clone()),
        });
        self.transport.apply_to(&mut client);
        if let Some(tls) = &self.tls {
            client.tls = TlsConfig::default();
            client.tls.enabled = true;
            client.tls.verify = tls.verify;
            client.tls.ca_file.clone_from(&tls.ca_cert);
            client.tls.ca_path.clone_from(&tls.ca_path);
            client.tls.client_cert.clone_from(&tls.cert);
            // A certificate without a key holds both in one file.
            client.tls.client_key = tls.key.clone().or_else(|| tls.cert.clone());
            client.tls.server_name.clone_from(&tls.server_name);
        }
        client
    }
}
