//! The program itself, which tests call, too.

use std::sync::Arc;

use futures::{StreamExt as _, stream::BoxStream};
use resource_store::{
    Api, ApiError, ApiEvent, GrpcClient, GrpcClientConfig, HttpClient, HttpClientConfig,
    LocalClient, Registry, RegistryError, Resource, ResourceClient, ResourceService, StatusReport,
    backend::{
        Backend,
        durable::{DurableBackend, DurableOptions},
        etcd::{EtcdBackend, EtcdConfig},
        memory::MemoryBackend,
        postgres::{PostgresBackend, PostgresConfig},
        raft::{RaftBackend, RaftConfig, Start},
    },
    controller::{BoxError, Controller, Manager, Outcome, Runtime, reconcile_with},
    pb::{Condition, condition::State},
    registry::HookError,
    server::{Server, ServerConfig},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(group = "music", version = "v1", scope = "namespace")]
#[resource(validate = "has_name", status = "Catalogued")]
struct Band {
    name: String,
    founded: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(group = "music", version = "v1", scope = "namespace")]
struct Album {
    title: String,
}

fn has_name(band: &Resource<Band>) -> Result<(), HookError> {
    if band.data.name.is_empty() { Err("band.name required".into()) } else { Ok(()) }
}

/// States that a band has its albums, or has not.
#[derive(Debug)]
struct Catalogued(bool);

impl StatusReport for Catalogued {
    const KEY: &'static str = "catalogue";

    fn conditions(&self) -> Vec<Condition> {
        let state = if self.0 { State::True } else { State::False };
        vec![Condition {
            r#type: "Catalogued".to_owned(),
            state: state.into(),
            ..Condition::default()
        }]
    }

    fn from_conditions(conditions: &[Condition]) -> Option<Self> {
        let found = conditions.iter().find(|condition| condition.r#type == "Catalogued")?;
        Some(Self(found.state() == State::True))
    }
}

fn types() -> Result<Registry, RegistryError> {
    let mut registry = Registry::new()?;
    registry.register_type::<Band>()?;
    registry.register_type::<Album>()?;
    Ok(registry)
}

/// The meaning of an argument: a client, and the store to be closed after it.
struct Place {
    client: Arc<dyn ResourceClient>,
    store: Store,
}

/// A store of this process that has to be closed.
enum Store {
    None,
    File(DurableBackend),
    Node(RaftBackend),
}

impl Place {
    async fn open(argument: &str) -> Result<Self, BoxError> {
        let (kind, rest) = argument.split_once(':').unwrap_or((argument, ""));
        match kind {
            "memory" => Self::over(Arc::new(MemoryBackend::new()), Store::None),
            "file" => {
                let file = DurableBackend::open(rest, DurableOptions::default()).await?;
                Self::over(Arc::new(file.clone()), Store::File(file))
            }
            "raft" => {
                let config = RaftConfig::new(rest, "127.0.0.1:0");
                let node = RaftBackend::start(config, Start::Bootstrap).await?;
                Self::over(Arc::new(node.clone()), Store::Node(node))
            }
            "etcd" => {
                let etcd = EtcdBackend::connect(&EtcdConfig::new([rest])).await?;
                Self::over(Arc::new(etcd), Store::None)
            }
            "postgres" => {
                let config = PostgresConfig::from_url(argument)?;
                Self::over(Arc::new(PostgresBackend::connect(&config).await?), Store::None)
            }
            "grpc" => {
                let client = Arc::new(GrpcClient::new(&GrpcClientConfig::new(rest))?);
                Ok(Self { client, store: Store::None })
            }
            "http" => {
                let client = Arc::new(HttpClient::new(&HttpClientConfig::new(rest), types()?)?);
                Ok(Self { client, store: Store::None })
            }
            other => Err(format!(
                "unknown place {other:?}: memory, file:PATH, raft:FOLDER, etcd:URL, \
                 postgres://USER@HOST/DATABASE, grpc:URL, http:URL or serve:ADDRESS is expected"
            )
            .into()),
        }
    }

    fn over(backend: Arc<dyn Backend>, store: Store) -> Result<Self, BoxError> {
        let service = ResourceService::builder(types()?, backend).build();
        Ok(Self { client: Arc::new(LocalClient::new(service)), store })
    }

    async fn close(self) -> Result<(), BoxError> {
        match self.store {
            Store::None => {}
            Store::File(file) => file.close().await?,
            Store::Node(node) => node.shutdown().await,
        }
        Ok(())
    }
}

/// Every band has a first album.
async fn reconcile(runtime: Runtime, band: Resource<Band>) -> Result<Outcome, BoxError> {
    let bands = Api::<Band>::new(runtime.client);
    let albums = bands.of::<Album>();
    if albums.list_owned(&band).await?.is_empty() {
        let first = Album { title: format!("{} I", band.data.name) };
        let name = format!("{}-1", band.name());
        albums.create(&albums.resource(&name, first).owned_by(&band)).await?;
    }
    bands.report(&band, &Catalogued(true)).await?;
    Ok(Outcome::Done)
}

/// Runs the program at the place that the argument says, and gives what it saw.
pub(crate) async fn run(argument: &str) -> Result<Vec<String>, BoxError> {
    let place = Place::open(argument).await?;
    let mut manager = Manager::new(Arc::clone(&place.client));
    manager.register(
        Controller::of::<Band>("catalogue")
            .with_owned::<Album>()
            .with_reconciler(reconcile_with(reconcile)),
    )?;
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    let bands = Api::<Band>::new(Arc::clone(&place.client));
    let mut changes = bands.watch().boxed();
    let seen = make(&bands, &mut changes).await;
    // Before what it made is deleted, which it would make again.
    stop.cancel();
    running.await??;
    let mut seen = seen?;
    seen.extend(delete(&bands, &mut changes).await?);
    place.close().await?;
    Ok(seen)
}

/// Makes a band, and waits until the controller has done its part.
async fn make(bands: &Api<Band>, changes: &mut Changes) -> Result<Vec<String>, BoxError> {
    let refused = bands.apply("nameless", Band::default()).await;
    let refused = refused.err().and_then(|error| error.code());
    bands.apply("korn", Band { name: "Korn".to_owned(), founded: 1992 }).await?;
    bands.modify("korn", |band| band.data.founded = 1993).await?;
    let catalogued = |band: &Resource<Band>| {
        band.data.founded == 1993 && band.is_observed() && band.reported().is_some_and(|is| is.0)
    };
    let band = until(changes, |event| match event {
        ApiEvent::Applied(band) if catalogued(&band) => Some(band),
        _ => None,
    })
    .await?;
    Ok(vec![
        format!("a band without a name: {refused:?}"),
        format!("{} of {} is catalogued", band.data.name, band.data.founded),
    ])
}

async fn delete(bands: &Api<Band>, changes: &mut Changes) -> Result<Vec<String>, BoxError> {
    let albums = bands.of::<Album>();
    let band = bands.get("korn").await?.ok_or("the band is gone")?;
    let mut seen = Vec::new();
    for album in albums.list_owned(&band).await? {
        seen.push(format!("{} is {:?}", album.name(), album.data.title));
        albums.delete_version(&album).await?;
    }
    bands.delete("korn").await?;
    until(changes, |event| matches!(event, ApiEvent::Deleted(_)).then_some(())).await?;
    seen.push(format!("then there are {} bands", bands.list().await?.len()));
    Ok(seen)
}

type Changes = BoxStream<'static, Result<ApiEvent<Band>, ApiError>>;

/// Waits for an event.
async fn until<T>(
    changes: &mut Changes,
    wanted: impl Fn(ApiEvent<Band>) -> Option<T>,
) -> Result<T, BoxError> {
    while let Some(event) = changes.next().await {
        if let Some(found) = wanted(event?) {
            return Ok(found);
        }
    }
    Err("the watch ended".into())
}

/// Binds a server of the types of this program, over gRPC and HTTP.
pub(crate) async fn server(address: &str) -> Result<Server, BoxError> {
    let service = ResourceService::builder(types()?, Arc::new(MemoryBackend::new())).build();
    let mut config = ServerConfig::default();
    address.clone_into(&mut config.address);
    Ok(Server::bind(service, config).await?)
}
