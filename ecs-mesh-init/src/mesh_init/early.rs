//! mesh-init of the early generation: registers with the agent in the task, and writes Envoy's
//! bootstrap.

use std::{path::PathBuf, time::Duration};

use consul_watch::{Client, ClientConfig};
use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use super::MeshInit;
use crate::{
    Error, Result,
    bootstrap::{BootstrapRequest, GrpcAddress, authority_pem},
    config::LoginConfig,
    files,
    login::{confirm_token, log_in, log_in_until, login_meta, token_file},
    metadata::Task,
    registration::{AgentRegistrar, Registrar, RetryPolicy, TaskPlan, retry},
};

const BOOTSTRAP_FILE: &str = "envoy-bootstrap.json";

impl MeshInit {
    /// Runs mesh-init.
    ///
    /// Source: consul-ecs 0.6 `subcommand/mesh-init/command.go`.
    pub(super) async fn run_early(&self, task: &Task, stop: &CancellationToken) -> Result<()> {
        if self.config.bootstrap_file.is_some() {
            return self.join_through_agent(task, stop).await;
        }
        // Concurrently, since the copy takes as long as all the rest.
        tokio::try_join!(self.copy_program(), self.join_through_agent(task, stop)).map(drop)
    }

    async fn join_through_agent(&self, task: &Task, stop: &CancellationToken) -> Result<()> {
        // The early generation states no locality.
        let plan = TaskPlan::new(&self.config, task, None)?;
        let token = match self.config.login() {
            Some(login) => Some(self.early_login(login, task, &plan, stop).await?),
            None => None,
        };
        let client = self.agent(token.as_ref())?;
        let registrar = AgentRegistrar::new(std::sync::Arc::new(client.clone()));
        for service in plan.services() {
            retry(self.retry, "registering", stop, || registrar.register(service)).await?;
            tracing::info!(service.id = %service.id, "registered with the agent");
        }
        let mut request = BootstrapRequest::new(plan.proxy.id.as_str());
        if self.config.gateway.is_some() {
            // Upstream passes the kind of gateway to `consul connect envoy`, which then takes that
            // word as the name of Envoy's cluster, whatever the gateway's name is.
            request.cluster = Some(plan.proxy.kind.as_str().to_owned());
        }
        // Set, so that the agent is not asked for its port.
        request.grpc_address = Some(self.grpc_address()?);
        request.grpc_ca_pem = self.grpc_ca_pem()?;
        request.token = token.or_else(|| self.var("CONSUL_HTTP_TOKEN").map(SecretString::from));
        request.namespace.clone_from(&plan.proxy.namespace);
        request.partition.clone_from(&plan.proxy.partition);
        let fetched =
            retry(self.retry, "reading the proxy", stop, || request.fetch(&client)).await?;
        for warning in &fetched.warnings {
            tracing::warn!("{warning}");
        }
        let bootstrap = fetched.options.render(&*self.vars)?;
        let text = bootstrap.to_text().into_bytes();
        let file = self.config.bootstrap_file.clone();
        files::write(file.unwrap_or_else(|| self.in_volume(BOOTSTRAP_FILE)), text, files::SHARED)
            .await
    }

    /// Returns a client of the agent, with the token of a login if there was one.
    fn agent(&self, token: Option<&SecretString>) -> Result<Client> {
        let failed = |error| Error::consul("making a client of the agent", error);
        match (&self.client, token) {
            (Some(client), None) => Ok(client.clone()),
            (Some(client), Some(token)) => client.with_token(Some(token.clone())).map_err(failed),
            (None, token) => {
                let mut config = self.agent_config()?;
                config.token = token.cloned();
                Client::new(config).map_err(failed)
            }
        }
    }

    /// Returns the settings of the agent's connection from the standard variables.
    ///
    /// A missing authority is reported in upstream's words, even when the agent is reached without
    /// TLS.
    pub(super) fn agent_config(&self) -> Result<ClientConfig> {
        let config = ClientConfig::from_vars(&*self.vars)
            .map_err(|error| Error::consul("making a client of the agent", error))?;
        authority_pem(config.tls.ca_file.as_deref(), config.tls.ca_path.as_deref())?;
        Ok(config)
    }

    /// Returns the address at which Envoy reaches the agent.
    ///
    /// Deviation: `CONSUL_GRPC_ADDR` is respected; upstream's mesh-init always assumes
    /// `localhost:8502`.
    fn grpc_address(&self) -> Result<GrpcAddress> {
        match self.var("CONSUL_GRPC_ADDR") {
            Some(address) => GrpcAddress::parse(&address),
            None => Ok(GrpcAddress::standard()),
        }
    }

    /// Reads the authorities of the agent's gRPC port, which only TLS uses.
    fn grpc_ca_pem(&self) -> Result<String> {
        let path = |name| self.var(name).map(PathBuf::from);
        match (path("CONSUL_GRPC_CACERT"), path("CONSUL_GRPC_CAPATH")) {
            // As the `consul` command: the authorities of HTTP stand in.
            (None, None) => {
                authority_pem(path("CONSUL_CACERT").as_deref(), path("CONSUL_CAPATH").as_deref())
            }
            (file, folder) => authority_pem(file.as_deref(), folder.as_deref()),
        }
    }

    /// Logs in to a server, and leaves the token in the file from which the other containers read
    /// it.
    async fn early_login(
        &self,
        login: &LoginConfig,
        task: &Task,
        plan: &TaskPlan,
        stop: &CancellationToken,
    ) -> Result<SecretString> {
        let policy = RetryPolicy { delay: Duration::from_secs(2), ..self.retry };
        let partition = plan.proxy.partition.as_deref();
        let (client, token) = log_in_until(policy, stop, || async {
            // Client and bearer token are created for each attempt: the authority's file may appear
            // later, and a bearer token expires.
            let client = self.login_client()?;
            let bearer = self.bearer_token(login, task).await?;
            // Deviation: upstream uses the cluster as the metadata has it, which on EC2 is a name;
            // its controller looks for the ARN, and so never removes those tokens.
            let cluster = task.cluster_arn().unwrap_or_else(|_| task.cluster.clone());
            let meta = login_meta(login, task.id(), &cluster);
            let token = log_in(&client, login, bearer, meta, partition).await?;
            Ok((client, token))
        })
        .await?;
        let path = token_file(&self.config.bootstrap_dir);
        files::write(path, token.expose_secret().as_bytes().to_vec(), files::TOKEN).await?;
        let client = client
            .with_token(Some(token.clone()))
            .map_err(|error| Error::consul("reading the token", error))?;
        confirm_token(&client, stop).await?;
        Ok(token)
    }

    /// Returns a client of the server that the configuration names, without a token.
    ///
    /// Settings that it leaves open come from the standard variables, TLS above all: a bearer token
    /// is sent over it.
    fn login_client(&self) -> Result<Client> {
        let asked = &self.config;
        // Before any connection: a build without TLS must not send the bearer token in the clear.
        crate::tls::check("consulHTTPAddr", asked.consul_http_addr.starts_with("https://"))?;
        crate::tls::check("consulCACertFile", !asked.consul_ca_cert_file.is_empty())?;
        let failed = |error| Error::consul("making a client of the server", error);
        let mut config = ClientConfig::from_vars(&*self.vars).map_err(failed)?;
        // An empty token, since `CONSUL_HTTP_TOKEN` would be sent along otherwise.
        config.token = Some(SecretString::from(""));
        if !asked.consul_http_addr.is_empty() {
            config.address.clone_from(&asked.consul_http_addr);
        }
        if !asked.consul_ca_cert_file.is_empty() {
            config.tls.ca_file = Some(asked.consul_ca_cert_file.clone().into());
        }
        Client::new(config).map_err(|error| match error {
            consul_watch::Error::MissingFeature { .. } => failed(error),
            // A file that is not there yet is a reason to try again, not to give up.
            error => Error::Login {
                step: "making a client of the server".to_owned(),
                retryable: true,
                source: error.into(),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Config, bootstrap::HostPort, metadata::FileTaskMetadata};

    /// Case MI43: the scheme of `CONSUL_HTTP_ADDR` says nothing about gRPC; `CONSUL_GRPC_ADDR`
    /// decides.
    #[test]
    fn an_agent_with_https_says_nothing_about_grpc() {
        let address = |vars: &'static [(&'static str, &'static str)]| {
            let config = Config::parse(r#"{"bootstrapDir":"/c","service":{"port":1}}"#).unwrap();
            let lookup = move |name: &str| {
                vars.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            let metadata = Arc::new(FileTaskMetadata::new("/nowhere"));
            let run = MeshInit::new(config, metadata, Arc::new(lookup), PathBuf::new());
            run.grpc_address().unwrap()
        };
        let https = address(&[("CONSUL_HTTP_ADDR", "https://127.0.0.1:8501")]);
        assert_eq!(
            https,
            GrpcAddress::Tcp { address: HostPort::new("localhost", 8502), tls: false }
        );
        let both = address(&[
            ("CONSUL_HTTP_ADDR", "https://127.0.0.1:8501"),
            ("CONSUL_GRPC_ADDR", "127.0.0.1:8503"),
        ]);
        assert_eq!(
            both,
            GrpcAddress::Tcp { address: HostPort::new("127.0.0.1", 8503), tls: false }
        );
        let grpc = address(&[
            ("CONSUL_HTTP_ADDR", "http://127.0.0.1:8500"),
            ("CONSUL_GRPC_ADDR", "https://127.0.0.1:8503"),
        ]);
        assert_eq!(grpc, GrpcAddress::Tcp { address: HostPort::new("127.0.0.1", 8503), tls: true });
    }
}
