//! The demo controller: gives every artist some albums.
//!
//! Source: `internal/resource/demo/controller.go`, Consul 1.21.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::v2::{Album, Artist, Genre};
use crate::{
    clock::ulid_millis,
    code::Code,
    controller::{BoxError, Controller, Outcome, Reconciler, Request, Runtime, mapper},
    equality::equal_status,
    pb::{
        self, Condition, DeleteRequest, ListRequest, Status, WriteStatusRequest, condition::State,
    },
    typed::{Resource, ResourceData as _},
};

/// The status key of the controller.
pub const STATUS_KEY: &str = "consul.io/artist-controller";

const ADJECTIVES: [&str; 8] =
    ["bold", "broken", "early", "electric", "golden", "hidden", "quiet", "slow"];
const NOUNS: [&str; 8] =
    ["bridges", "engines", "letters", "mirrors", "oceans", "seasons", "signals", "winters"];

/// The controller of artists: wants three albums for each, ten for the blues.
pub fn controller() -> Controller {
    Controller::new("artists", Artist::resource_type())
        .with_watch(
            Album::resource_type(),
            mapper::owner_of_type(Artist::resource_type()),
            Vec::new(),
        )
        .with_reconciler(Artists)
}

#[derive(Debug)]
struct Artists;

#[async_trait]
impl Reconciler for Artists {
    async fn reconcile(&self, runtime: &Runtime, request: &Request) -> Result<Outcome, BoxError> {
        let stored = match runtime.client.read(request.id.clone()).await {
            Ok(stored) => stored,
            Err(error) if error.code() == Code::NotFound => return Ok(Outcome::Done),
            Err(error) => return Err(error.into()),
        };
        let artist = Resource::<Artist>::decode(&stored)?;
        let wanted = wanted_albums(&artist)?;
        sync_albums(runtime, &artist, &wanted).await?;
        write_status(runtime, &artist, &wanted).await?;
        Ok(Outcome::Done)
    }
}

/// The albums of an artist, the same at each call for one incarnation.
fn wanted_albums(artist: &Resource<Artist>) -> Result<Vec<Resource<Album>>, BoxError> {
    let seed = ulid_millis(&artist.id.uid).ok_or("the artist's uid is no ULID")?;
    let mut random = fastrand::Rng::with_seed(seed);
    let count = if artist.data.genre() == Genre::Blues { 10 } else { 3 };
    let album = |i: i32| {
        let adjective = random.choice(ADJECTIVES).unwrap_or_default();
        let noun = random.choice(NOUNS).unwrap_or_default();
        let data = Album {
            title: format!("{adjective} {noun}"),
            year_of_release: random.i32(1960..2024),
            critically_aclaimed: random.bool(),
            tracks: (1..=random.i32(3..12)).map(|track| format!("track {track}")).collect(),
        };
        let name = format!("{}-{adjective}-{noun}-{i}", artist.id.name);
        let tenancy = artist.id.tenancy.clone().unwrap_or_default();
        Resource { owner: Some(artist.id.clone()), ..Resource::new(tenancy, &name, data) }
    };
    Ok((0..count).map(album).collect())
}

/// Writes what is missing or different, deletes what is too much.
async fn sync_albums(
    runtime: &Runtime,
    artist: &Resource<Artist>,
    wanted: &[Resource<Album>],
) -> Result<(), BoxError> {
    let list = ListRequest {
        r#type: Some(Album::resource_type()),
        tenancy: artist.id.tenancy.clone(),
        name_prefix: format!("{}-", artist.id.name),
    };
    let mut present = BTreeMap::new();
    for stored in runtime.client.list(list).await? {
        let album = Resource::<Album>::decode(&stored)?;
        present.insert(album.id.name.clone(), album);
    }
    for album in wanted {
        if present.remove(&album.id.name).is_none_or(|stored| stored.data != album.data) {
            runtime.client.write(album.encode()).await?;
        }
    }
    for extra in present.into_values() {
        runtime.client.delete(DeleteRequest { id: Some(extra.id), version: String::new() }).await?;
    }
    Ok(())
}

/// Writes the status if it says something new.
async fn write_status(
    runtime: &Runtime,
    artist: &Resource<Artist>,
    albums: &[Resource<Album>],
) -> Result<(), BoxError> {
    let accepted = Condition {
        r#type: "Accepted".to_owned(),
        state: State::True.into(),
        reason: "Accepted".to_owned(),
        message: format!("Artist '{}' accepted", artist.data.name),
        resource: None,
    };
    let created = albums.iter().map(|album| album_created(album, artist));
    let status = Status {
        observed_generation: artist.generation.clone(),
        conditions: std::iter::once(accepted).chain(created).collect(),
        updated_at: None,
    };
    if equal_status(artist.status.get(STATUS_KEY), Some(&status)) {
        return Ok(());
    }
    let request = WriteStatusRequest {
        id: Some(artist.id.clone()),
        version: artist.version.clone(),
        key: STATUS_KEY.to_owned(),
        status: Some(status),
    };
    runtime.client.write_status(request).await?;
    Ok(())
}

fn album_created(album: &Resource<Album>, artist: &Resource<Artist>) -> Condition {
    let resource: pb::Reference = album.id.to_reference();
    Condition {
        r#type: "AlbumCreated".to_owned(),
        state: State::True.into(),
        reason: "Created".to_owned(),
        message: format!("Album '{}' created for artist '{}'", album.data.title, artist.data.name),
        resource: Some(resource),
    }
}
