//! The demo types: executives, record labels, artists, albums, festivals.
//!
//! They show every scope, two versions of one kind, validation, mutation and
//! authorization, and the cases of the specification use them.
//!
//! Source: `internal/resource/demo`, Consul 1.21.

use crate::{
    acl::{AclError, Authorizer},
    pb::{FILE_DESCRIPTOR_SET, Id, Tenancy, Type},
    registry::{AclHooks, HookError, Registration, Registry, RegistryError},
    resource_data,
    tenancy::Scope,
    typed::{Resource, ResourceData},
};

mod controller;

pub use controller::{STATUS_KEY, controller};

/// The first version.
pub mod v1 {
    pub use crate::pb::generated::hashicorp::consul::internal::demo::v1::{
        Album, Artist, Concept, Executive, Genre, RecordLabel,
    };
}

/// The second version.
pub mod v2 {
    pub use crate::pb::generated::hashicorp::consul::internal::demo::v2::{
        Album, Artist, Festival, Genre,
    };
}

macro_rules! demo_data {
    ($($data:ty => $version:literal, $kind:literal, $message:literal;)*) => {
        $(resource_data!($data, ["demo", $version, $kind], $message, FILE_DESCRIPTOR_SET);)*
    };
}

demo_data! {
    v1::Executive => "v1", "Executive", "hashicorp.consul.internal.demo.v1.Executive";
    v1::RecordLabel => "v1", "RecordLabel", "hashicorp.consul.internal.demo.v1.RecordLabel";
    v1::Artist => "v1", "Artist", "hashicorp.consul.internal.demo.v1.Artist";
    v1::Album => "v1", "Album", "hashicorp.consul.internal.demo.v1.Album";
    v1::Concept => "v1", "Concept", "hashicorp.consul.internal.demo.v1.Concept";
    v2::Artist => "v2", "Artist", "hashicorp.consul.internal.demo.v2.Artist";
    v2::Album => "v2", "Album", "hashicorp.consul.internal.demo.v2.Album";
    v2::Festival => "v2", "Festival", "hashicorp.consul.internal.demo.v2.Festival";
}

/// Registers every demo type with its hooks.
///
/// # Errors
///
/// If one of them is registered already.
pub fn register(registry: &mut Registry) -> Result<(), RegistryError> {
    registry.register(demo_type::<v1::Executive>(Scope::Cluster)?)?;
    registry.register(record_label()?)?;
    registry.register(
        demo_type::<v1::Artist>(Scope::Namespace)?
            .validate_decoded(|artist: &Resource<v1::Artist>| require_name(&artist.data.name)),
    )?;
    registry.register(demo_type::<v1::Album>(Scope::Namespace)?)?;
    registry.register(demo_type::<v1::Concept>(Scope::Namespace)?)?;
    registry.register(artist_v2()?)?;
    registry.register(demo_type::<v2::Album>(Scope::Namespace)?)?;
    registry.register(demo_type::<v2::Festival>(Scope::Namespace)?)
}

fn demo_type<T: ResourceData>(scope: Scope) -> Result<Registration, RegistryError> {
    Ok(Registration::of::<T>(scope)?.acls(key_rules(&T::resource_type())))
}

fn record_label() -> Result<Registration, RegistryError> {
    let acls =
        key_rules(&v1::RecordLabel::resource_type()).with_read_resource(|authorizer, resource| {
            resource.id.as_ref().map_or(Ok(()), |id| authorizer.key_read(&key(id)))
        });
    Ok(demo_type::<v1::RecordLabel>(Scope::Partition)?.acls(acls))
}

fn artist_v2() -> Result<Registration, RegistryError> {
    Ok(demo_type::<v2::Artist>(Scope::Namespace)?
        .validate_decoded(|artist: &Resource<v2::Artist>| require_name(&artist.data.name))
        .mutate_decoded(|artist: &mut v2::Artist, _| {
            // By its number: one that this version does not know is not unspecified.
            let unstated = artist.genre == i32::from(v2::Genre::Unspecified);
            if unstated {
                artist.set_genre(v2::Genre::Disco);
            }
            Ok(unstated)
        }))
}

fn require_name(name: &str) -> Result<(), HookError> {
    if name.is_empty() { Err("artist.name required".into()) } else { Ok(()) }
}

/// Permissions as those on keys, below `resource/<type>`.
fn key_rules(ty: &Type) -> AclHooks {
    let list = format!("resource/{ty}");
    AclHooks::default()
        .with_read(|authorizer, id, _| authorizer.key_read(&key(id)))
        .with_write(|authorizer: &dyn Authorizer, resource| -> Result<(), AclError> {
            resource.id.as_ref().map_or(Ok(()), |id| authorizer.key_write(&key(id)))
        })
        .with_list(move |authorizer| authorizer.key_list(&list))
}

fn key(id: &Id) -> String {
    let ty = id.r#type.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("resource/{ty}/{}", id.name)
}

/// The tenancy that the demo resources below live in.
pub fn default_tenancy() -> Tenancy {
    Scope::Namespace.default_tenancy()
}

/// An artist of the second version.
pub fn artist(name: &str) -> Resource<v2::Artist> {
    let data = v2::Artist {
        name: name.to_owned(),
        genre: v2::Genre::Metal.into(),
        ..v2::Artist::default()
    };
    Resource::new(default_tenancy(), name, data)
}

/// An album of the second version that an artist owns.
pub fn album(name: &str, artist: &Id) -> Resource<v2::Album> {
    let data = v2::Album { title: name.to_owned(), year_of_release: 2001, ..v2::Album::default() };
    Resource { owner: Some(artist.clone()), ..Resource::new(default_tenancy(), name, data) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_demo_type_registers_once() {
        let mut registry = Registry::new().unwrap();
        register(&mut registry).unwrap();
        assert_eq!(registry.types().count(), 9);
        assert!(register(&mut registry).is_err());
        assert_eq!(registry.by_short_name("artist").len(), 2);
    }
}
