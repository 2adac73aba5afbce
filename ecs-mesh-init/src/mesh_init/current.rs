//! mesh-init of the current generation: registers in the catalog through the servers, and writes
//! the files of consul-dataplane.

use std::{path::PathBuf, sync::Arc, time::Duration};

use consul_watch::{Client, QueryOptions, WriteOptions};
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::{MeshInit, grpc, server_pool::ServerPool, servers::connect_to_pool};
use crate::{
    Error, Result,
    config::{LoginConfig, ServersConfig},
    dataplane::{DataplaneConfig, DataplaneCredentials},
    files,
    login::{log_in, log_in_until, login_meta},
    metadata::Task,
    redirect::{self, Redirection},
    registration::{CatalogRegistrar, MeshService, Registrar, RetryPolicy, TaskPlan, retry},
    resolv_conf::ResolvConf,
    service_defaults,
};

const DATAPLANE_FILE: &str = "consul-dataplane.json";
const GRPC_CA_FILE: &str = "consul-grpc-ca-cert.pem";
const LOGOUT_LIMIT: Duration = Duration::from_secs(5);

/// Client with the task's token.
pub(super) struct Session {
    pub(super) client: Client,
    /// Token of a login, or of `CONSUL_HTTP_TOKEN`.
    pub(super) token: Option<SecretString>,
    /// `true` if the token came from a login, and so has to be logged out.
    pub(super) logged_in: bool,
}

/// Connection of a task to the servers.
struct Connection {
    client: Client,
    /// Pool of the servers; `None` with a client of the caller's.
    #[cfg_attr(
        not(feature = "server-watch"),
        expect(dead_code, reason = "only what speaks gRPC needs it")
    )]
    pool: Option<Arc<ServerPool>>,
}

/// Source of consul-dataplane's token.
#[derive(Clone, Copy)]
pub(super) enum Credentials<'a> {
    /// Login by consul-dataplane itself, if the task logs in.
    Own,
    /// Token of the process that brings the task into the mesh, if it has one.
    Shared(Option<&'a SecretString>),
}

impl MeshInit {
    /// Runs mesh-init.
    ///
    /// Source: consul-ecs 0.10 `subcommand/mesh-init/command.go`.
    pub(super) async fn run_current(&self, task: &Task, stop: &CancellationToken) -> Result<()> {
        let servers = self.config.consul_servers.clone().unwrap_or_default();
        let plan = TaskPlan::new(&self.config, task, self.var("AWS_REGION").as_deref())?;
        let node = task.cluster_arn()?;
        self.wait_for_grpc(&servers, stop).await?;
        let session = self.open_session(&servers, task, &plan, &node, false, stop).await?;
        let client = &session.client;
        // consul-dataplane logs in by itself, so this session's token ends with this process.
        let result = self.join(&servers, task, &plan, &node, client, Credentials::Own, stop).await;
        session.close().await;
        result
    }

    /// Waits until the servers' gRPC port answers, unless gRPC is switched off.
    pub(super) async fn wait_for_grpc(
        &self,
        servers: &ServersConfig,
        stop: &CancellationToken,
    ) -> Result<()> {
        if !self.uses_grpc {
            return Ok(());
        }
        // Checked first: the HTTP connection that follows would be refused, and this wait may have
        // no end.
        crate::tls::check("consulServers.http.https", servers.http.https && self.client.is_none())?;
        let ca_pem = self.var("CONSUL_GRPC_CACERT_PEM");
        grpc::wait(servers, ca_pem.as_deref(), stop).await
    }

    /// Does everything that needs the token: registration, then the files, then the network.
    #[expect(clippy::too_many_arguments, reason = "what the two callers have in common")]
    pub(super) async fn join(
        &self,
        servers: &ServersConfig,
        task: &Task,
        plan: &TaskPlan,
        node: &str,
        client: &Client,
        credentials: Credentials<'_>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let registrar = CatalogRegistrar::new(client.clone(), node);
        // The service before its sidecar, as upstream.
        for service in plan.services() {
            retry(self.retry, "registering", stop, || registrar.register(service)).await?;
            tracing::info!(service.id = %service.id, "registered in the catalog");
        }
        if let Some(service) = &plan.service {
            let settings = self.config.service.as_ref();
            let resilience = settings.and_then(|it| it.network_resilience_config.as_ref());
            if let Some(resilience) = resilience.filter(|resilience| resilience.enabled) {
                service_defaults::set_up(client, service, resilience, stop).await?;
            }
        }
        // Files after registration: other containers start as soon as they see this one succeed,
        // and then both are there.
        self.copy_program().await?;
        let credentials = match credentials {
            Credentials::Own => self.credentials(task, node).await?,
            Credentials::Shared(token) => token.cloned().map(DataplaneCredentials::Static),
        };
        self.write_dataplane(servers, plan, node, credentials.as_ref()).await?;
        // DNS and redirection last: from then on this container's own lookups and connections may
        // go through a proxy that does not run yet.
        if self.config.uses_consul_dns() {
            self.rewrite_resolv_conf().await?;
        }
        if self.config.redirects_traffic() {
            self.redirect(client, &plan.proxy, node).await?;
        }
        Ok(())
    }

    pub(super) async fn open_session(
        &self,
        servers: &ServersConfig,
        task: &Task,
        plan: &TaskPlan,
        node: &str,
        follows: bool,
        stop: &CancellationToken,
    ) -> Result<Session> {
        let tenancy = (plan.proxy.namespace.as_deref(), plan.proxy.partition.as_deref());
        let ca_pem = self.var("CONSUL_HTTPS_CACERT_PEM");
        let connection = if let Some(client) = &self.client {
            Connection { client: client.clone(), pool: None }
        } else {
            let connected = connect_to_pool(servers, ca_pem.as_deref(), tenancy, stop).await?;
            Connection { client: connected.0, pool: Some(connected.1) }
        };
        let (token, logged_in) = match (self.var("CONSUL_HTTP_TOKEN"), self.config.login()) {
            (Some(token), _) => (Some(SecretString::from(token)), false),
            // Also a static token beats the login, as upstream.
            (None, Some(login)) => {
                // Attempts and end come from the caller, the delay of 2 s is upstream's for logins.
                let policy = RetryPolicy { delay: Duration::from_secs(2), ..self.retry };
                let attempt = || self.log_in_once(&connection, servers, login, task, node, tenancy);
                let token = log_in_until(policy, stop, attempt).await?;
                // Followers learn of the token a moment later, and one that is asked too early
                // caches the refusal for 30 s.
                tokio::time::sleep(Duration::from_millis(100)).await;
                (Some(token), true)
            }
            (None, None) => (None, false),
        };
        if follows {
            self.follow(&connection, servers, token.as_ref()).await?;
        }
        let client = match &token {
            None => connection.client,
            Some(token) => connection
                .client
                .with_token(Some(token.clone()))
                .map_err(|error| Error::consul("using the token", error))?,
        };
        Ok(Session { client, token, logged_in })
    }

    /// Logs in over gRPC where that is used and the server supports it, else over HTTP.
    ///
    /// Deviation: creates a bearer token for each attempt, since one is valid for 15 minutes only.
    #[cfg_attr(
        not(feature = "server-watch"),
        expect(unused_variables, reason = "only the feature uses the servers")
    )]
    async fn log_in_once(
        &self,
        connection: &Connection,
        servers: &ServersConfig,
        login: &LoginConfig,
        task: &Task,
        node: &str,
        tenancy: (Option<&str>, Option<&str>),
    ) -> Result<SecretString> {
        let bearer = self.bearer_token(login, task).await?;
        let meta = login_meta(login, task.id(), node);
        #[cfg(feature = "server-watch")]
        if let Some(pool) = connection.pool.as_ref().filter(|_| self.uses_grpc) {
            let connector = self.connector(servers).await?;
            let token = connector.log_in(pool, login, &bearer, meta.clone(), tenancy).await?;
            if let Some(token) = token {
                return Ok(token);
            }
        }
        log_in(&connection.client, login, bearer, meta, tenancy.1).await
    }

    #[cfg(feature = "server-watch")]
    async fn connector(&self, servers: &ServersConfig) -> Result<super::server_watch::Connector> {
        let ca_pem = self.var("CONSUL_GRPC_CACERT_PEM");
        super::server_watch::Connector::new(servers, ca_pem.as_deref()).await
    }

    /// Follows the servers over gRPC for the client's lifetime, unless gRPC is switched off.
    #[cfg_attr(
        not(feature = "server-watch"),
        expect(clippy::unused_async, unused_variables, reason = "only the feature uses them")
    )]
    async fn follow(
        &self,
        connection: &Connection,
        servers: &ServersConfig,
        token: Option<&SecretString>,
    ) -> Result<()> {
        #[cfg(feature = "server-watch")]
        if let Some(pool) = connection.pool.as_ref().filter(|_| self.uses_grpc) {
            self.connector(servers).await?.follow(pool, token.cloned());
        }
        Ok(())
    }

    /// Writes the PEM text of a variable into the volume; `None` if the variable is not set.
    async fn written_ca(&self, variable: &str, name: &str) -> Result<Option<PathBuf>> {
        let Some(pem) = self.var(variable) else { return Ok(None) };
        let path = self.in_volume(name);
        files::write(path.clone(), pem.into_bytes(), files::SHARED).await?;
        Ok(Some(path))
    }

    async fn write_dataplane(
        &self,
        servers: &ServersConfig,
        plan: &TaskPlan,
        node: &str,
        credentials: Option<&DataplaneCredentials>,
    ) -> Result<()> {
        let tls = servers.grpc_tls();
        let ca_file = if tls.enabled {
            match self.written_ca("CONSUL_GRPC_CACERT_PEM", GRPC_CA_FILE).await? {
                Some(path) => path.to_string_lossy().into_owned(),
                None => tls.ca_cert_file,
            }
        } else {
            String::new()
        };
        let document = DataplaneConfig {
            config: &self.config,
            servers,
            proxy: &plan.proxy,
            node,
            ca_file: &ca_file,
            credentials,
        };
        let text = document.to_text().into_bytes();
        files::write(self.in_volume(DATAPLANE_FILE), text, files::SHARED).await
    }

    /// Returns the credentials of consul-dataplane.
    ///
    /// Deviation: with a token in the environment upstream writes a login without content.
    async fn credentials(&self, task: &Task, node: &str) -> Result<Option<DataplaneCredentials>> {
        let Some(login) = self.config.login() else { return Ok(None) };
        if let Some(token) = self.var("CONSUL_HTTP_TOKEN") {
            return Ok(Some(DataplaneCredentials::Static(token.into())));
        }
        Ok(Some(DataplaneCredentials::Login {
            method: login.method.clone(),
            datacenter: login.datacenter.clone(),
            // A second bearer token: the one of this process's own login may be old by now.
            bearer_token: self.bearer_token(login, task).await?,
            meta: login_meta(login, task.id(), node),
        }))
    }

    async fn rewrite_resolv_conf(&self) -> Result<()> {
        let path = &self.resolv_conf;
        let text = tokio::fs::read_to_string(path)
            .await
            .map_err(|error| Error::file("reading", path, error))?;
        let conf = text.parse::<ResolvConf>().unwrap_or_default().with_first("127.0.0.1");
        // Mounted into the container as a single file, so it cannot be replaced by a rename.
        tokio::fs::write(path, conf.to_string())
            .await
            .map_err(|error| Error::file("writing", path, error))
    }

    /// Redirects the task's traffic according to the sidecar as the catalog has it.
    async fn redirect(&self, client: &Client, proxy: &MeshService, node: &str) -> Result<()> {
        let mut options = QueryOptions::default();
        options.filter = Some(format!("ID == \"{}\"", proxy.id));
        // With central configuration merged in, since `proxy-defaults` may hold ports to exclude.
        options.merge_central_config = true;
        let answer = client
            .catalog_node_services(node, &options)
            .await
            .map_err(|error| Error::consul(format!("reading {}", proxy.id), error))?;
        let services = answer.value.map(|(_node, services)| services).unwrap_or_default();
        let sidecar = match services.as_slice() {
            [sidecar] => sidecar,
            [] => {
                return Err(Error::input(format!("proxy service with ID {} not found", proxy.id)));
            }
            _ => {
                return Err(Error::input(format!(
                    "expected to find only one proxy service with ID {}, but more were found",
                    proxy.id
                )));
            }
        };
        let redirection = Redirection::new(&self.config, sidecar)?;
        redirect::apply(&self.iptables, &redirect::rules(&redirection)).await
    }
}

impl Session {
    /// Logs the token of a login out.
    pub(super) async fn close(self) {
        if self.logged_in {
            log_out(&self.client).await;
        }
    }
}

/// Logs out within a time limit, since it must not hold the task up.
async fn log_out(client: &Client) {
    let result =
        tokio::time::timeout(LOGOUT_LIMIT, client.acl_logout(&WriteOptions::default())).await;
    match result {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the token was not given back"
            );
        }
        Err(_elapsed) => tracing::warn!("the token was not given back within 5 s"),
    }
}
