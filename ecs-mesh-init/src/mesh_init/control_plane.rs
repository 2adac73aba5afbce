//! The container `consul-ecs-control-plane` of 0.7, which does the work of mesh-init and
//! health-sync in one process with one login.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use secrecy::ExposeSecret as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    MeshInit,
    current::{Credentials, Session},
};
use crate::{
    Error, Result,
    config::Generation,
    files,
    health_sync::{HealthSync, Logout},
    login::token_file,
    metadata::Task,
    registration::{CatalogRegistrar, Registrar as _, TaskPlan},
};

/// Path of the health endpoint: 500 until the other containers may start, then 200.
pub const HEALTH_PATH: &str = "/consul-ecs/health";

/// Longest time to deregister a task's services again after it failed to join.
const UNDO_LIMIT: Duration = Duration::from_secs(5);
/// Longest time for one request to the health endpoint.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Largest head of a request, in bytes.
const REQUEST_BYTES: usize = 4096;
/// Largest number of simultaneous requests to the health endpoint. ECS makes one.
const REQUESTS: usize = 16;

/// A run of a task's control plane.
///
/// It logs in once, registers the task, and writes into the volume all that consul-dataplane needs,
/// with the token of its own login. Then its health endpoint answers 200, and it copies the health
/// of the containers until it is stopped and the proxy has ended. At last it deregisters the task
/// and logs out.
///
/// Source: consul-ecs 0.7 `subcommand/control-plane/command.go`.
#[derive(Debug)]
#[non_exhaustive]
pub struct ControlPlane {
    /// Run of mesh-init that brings the task into the mesh.
    pub mesh_init: MeshInit,
    /// Address of the health endpoint. Default 127.0.0.1:10000.
    pub health_address: SocketAddr,
    /// Time between two reads of the containers' health. Default 1 s.
    pub period: Duration,
}

impl ControlPlane {
    /// Creates a run with upstream's defaults.
    pub fn new(mesh_init: MeshInit) -> Self {
        Self {
            mesh_init,
            health_address: SocketAddr::from(([127, 0, 0, 1], 10000)),
            period: Duration::from_secs(1),
        }
    }

    /// Runs until `stop` is cancelled and the proxy has ended after that.
    ///
    /// Deviation: a task that cannot join, or is stopped before it has, is deregistered at once;
    /// upstream leaves behind what it has registered.
    ///
    /// # Errors
    ///
    /// The errors of [`MeshInit::run`] and [`HealthSync::run`]; [`Error::Input`] for a
    /// configuration of the early generation, and when the health endpoint's address is in use.
    pub async fn run(self, stop: CancellationToken) -> Result<()> {
        if self.mesh_init.config.generation != Generation::Current {
            return Err(Error::input(
                "control-plane needs \"consulServers\" in its configuration; with an agent beside the \
                 task the commands are mesh-init and health-sync",
            ));
        }
        let address = self.health_address;
        // Before anything is registered: a taken port is an error of the task definition.
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Error::input(format!("the health endpoint cannot listen on {address}: {error}"))
        })?;
        let (ready, is_ready) = watch::channel(false);
        let endpoint = serve_health(listener, is_ready);
        // The endpoint lives exactly as long as the rest; it needs no task of its own.
        tokio::select! {
            never = endpoint => match never {},
            result = self.join_and_sync(&ready, &stop) => result,
        }
    }

    async fn join_and_sync(
        &self,
        ready: &watch::Sender<bool>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let mesh = &self.mesh_init;
        let task = mesh.task(stop).await?;
        let plan = TaskPlan::new(&mesh.config, &task, mesh.var("AWS_REGION").as_deref())?;
        let node = task.cluster_arn()?;
        let servers = mesh.config.consul_servers.clone().unwrap_or_default();
        // Before the login, which may go over that port.
        mesh.wait_for_grpc(&servers, stop).await?;
        let session = mesh.open_session(&servers, &task, &plan, &node, true, stop).await?;
        if let Err(error) = self.join(&session, &task, &plan, &node, stop).await {
            // Services first, since that needs the token.
            undo(&session, &plan, &node).await;
            session.close().await;
            return Err(error);
        }
        tracing::info!("successfully initialized the task to operate as part of the mesh");
        // Only now may the other containers start: their files are complete.
        ready.send_replace(true);
        let logout = session.logged_in.then(|| Logout::of_client(session.client.clone()));
        let mut sync = HealthSync::new(
            Generation::Current,
            mesh.config.health_sync_containers.clone(),
            plan,
            Arc::clone(&mesh.metadata),
            Arc::new(CatalogRegistrar::new(session.client, node)),
        );
        sync.logout = logout;
        sync.period = self.period;
        sync.run(stop.clone()).await
    }

    async fn join(
        &self,
        session: &Session,
        task: &Task,
        plan: &TaskPlan,
        node: &str,
        stop: &CancellationToken,
    ) -> Result<()> {
        let mesh = &self.mesh_init;
        // A static token of the environment is no login's, so nobody would log it out.
        if session.logged_in
            && let Some(token) = &session.token
        {
            let path = token_file(&mesh.config.bootstrap_dir);
            files::write(path, token.expose_secret().as_bytes().to_vec(), files::TOKEN).await?;
        }
        let servers = mesh.config.consul_servers.clone().unwrap_or_default();
        let credentials = Credentials::Shared(session.token.as_ref());
        mesh.join(&servers, task, plan, node, &session.client, credentials, stop).await
    }
}

/// Deregisters what was registered, within a few seconds at most.
async fn undo(session: &Session, plan: &TaskPlan, node: &str) {
    let registrar = CatalogRegistrar::new(session.client.clone(), node);
    let work = async {
        for service in plan.services() {
            if let Err(error) = registrar.deregister(service).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    service.id = %service.id,
                    "the service was not deregistered"
                );
            }
        }
    };
    if timeout(UNDO_LIMIT, work).await.is_err() {
        tracing::warn!("the services were not deregistered within 5 s");
    }
}

/// Answers requests for the health of this container until it is dropped.
async fn serve_health(listener: TcpListener, is_ready: watch::Receiver<bool>) -> Infallible {
    let mut requests = JoinSet::new();
    loop {
        // Bounded, so that idle connections cannot exhaust the file descriptors; each ends within
        // `REQUEST_LIMIT`.
        while requests.len() >= REQUESTS {
            drop(requests.join_next().await);
        }
        match listener.accept().await {
            Ok((stream, _peer)) => {
                let is_ready = *is_ready.borrow();
                requests.spawn(timeout(REQUEST_LIMIT, answer(stream, is_ready)));
            }
            // Too many open files, for example, which does not pass at once.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the health endpoint takes no connection"
                );
                sleep(Duration::from_millis(100)).await;
            }
        }
        // Finished requests are reaped here, or the set would grow for ever.
        while requests.try_join_next().is_some() {}
    }
}

/// Answers one request. Parsed by hand: a method and a path are all that it depends on.
async fn answer(mut stream: TcpStream, is_ready: bool) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        if head.len() >= REQUEST_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let head = String::from_utf8_lossy(&head);
    let target = head.split(' ').nth(1).unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default();
    let status = match (path == HEALTH_PATH, is_ready) {
        (false, _) => "404 Not Found",
        (true, false) => "500 Internal Server Error",
        (true, true) => "200 OK",
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: SocketAddr, path: &str) -> u16 {
        reqwest::get(format!("http://{address}{path}")).await.unwrap().status().as_u16()
    }

    #[tokio::test]
    async fn the_health_endpoint_says_when_others_may_start() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ready, is_ready) = watch::channel(false);
        let serving = tokio::spawn(serve_health(listener, is_ready));
        assert_eq!(get(address, HEALTH_PATH).await, 500);
        ready.send_replace(true);
        assert_eq!(get(address, HEALTH_PATH).await, 200);
        assert_eq!(get(address, "/other").await, 404);
        // Connections that say nothing keep nobody out for long, and what is no request is dropped.
        let mut silent = Vec::new();
        for _ in 0..REQUESTS - 1 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(get(address, HEALTH_PATH).await, 200);
        let mut noisy = TcpStream::connect(address).await.unwrap();
        drop(silent);
        noisy.write_all(&[b'x'; 2 * REQUEST_BYTES]).await.unwrap();
        let mut rest = Vec::new();
        // Closed with what it sent unread, which may reset the connection.
        assert!(noisy.read_to_end(&mut rest).await.is_err() || rest.is_empty());
        serving.abort();
    }
}
