//! Reading, writing and deleting one resource; owners.

use std::sync::Arc;

use super::{Capabilities, MODES, id_of, is, read_until, seed, write};
use crate::{
    backend::{Backend, Consistency, Error},
    pb::{Id, Resource},
};

fn web() -> Resource {
    seed::resource(seed::a_v1(), seed::default_tenancy(), "web")
}

/// A read gives what was written.
///
/// Spec: RSC1
pub async fn read_gives_what_was_written(backend: Arc<dyn Backend>, _: Capabilities) {
    let stored = write(&backend, web()).await;
    assert_eq!(Resource { version: String::new(), ..Resource::clone(&stored) }, web());
    for mode in MODES {
        let id = id_of(&web());
        let read = read_until(mode, || backend.read(mode, &id), Result::is_ok).await.unwrap();
        assert_eq!(read, stored, "{mode}");
    }
}

/// A read without a uid gives whatever incarnation there is.
///
/// Spec: RSC2
pub async fn read_without_uid_gives_any_incarnation(backend: Arc<dyn Backend>, _: Capabilities) {
    let stored = write(&backend, web()).await;
    for mode in MODES {
        let id = id_of(&web()).without_uid();
        let read = read_until(mode, || backend.read(mode, &id), Result::is_ok).await.unwrap();
        assert_eq!(read, stored, "{mode}");
    }
}

/// A read of another name finds nothing.
///
/// Spec: RSC3
pub async fn read_of_another_name_finds_nothing(backend: Arc<dyn Backend>, _: Capabilities) {
    write(&backend, web()).await;
    for mode in MODES {
        let id = Id { name: "different".to_owned(), ..id_of(&web()) };
        assert!(is(&backend.read(mode, &id).await, &Error::NotFound), "{mode}");
    }
}

/// A read of another incarnation finds nothing.
///
/// Spec: RSC4
pub async fn read_of_another_uid_finds_nothing(backend: Arc<dyn Backend>, _: Capabilities) {
    write(&backend, web()).await;
    for mode in MODES {
        let id = id_of(&web()).with_uid("b");
        assert!(is(&backend.read(mode, &id).await, &Error::NotFound), "{mode}");
    }
}

/// A read with another group version says what is stored.
///
/// Spec: RSC5
pub async fn read_of_another_group_version_is_a_mismatch(
    backend: Arc<dyn Backend>,
    _: Capabilities,
) {
    let written = write(&backend, web()).await;
    for mode in MODES {
        let id = Id { r#type: Some(seed::a_v2()), ..id_of(&web()) };
        let found = |result: &Result<_, Error>| !is(result, &Error::NotFound);
        match read_until(mode, || backend.read(mode, &id), found).await {
            Err(Error::GroupVersionMismatch { requested, stored }) => {
                assert_eq!(*requested, seed::a_v2());
                assert_eq!(stored, written);
            }
            other => panic!("{mode}: {other:?}"),
        }
    }
}

/// A write takes place only if its version is what is stored.
///
/// Spec: RSC6, RSC7, RSC8, RSC9, RSC10
pub async fn writes_are_conditional_on_the_version(backend: Arc<dyn Backend>, _: Capabilities) {
    let with_version = |version: &str| Resource { version: version.to_owned(), ..web() };
    let create_some = backend.write_cas(with_version("some-version")).await;
    assert!(is(&create_some, &Error::CasFailure), "a create with a version");

    let first = write(&backend, web()).await;
    assert!(!first.version.is_empty());

    let second = write(&backend, with_version(&first.version)).await;
    assert!(!second.version.is_empty());
    assert_ne!(second.version, first.version);

    let again = backend.write_cas(web()).await;
    assert!(is(&again, &Error::CasFailure), "a write without a version");
    let outdated = backend.write_cas(with_version(&first.version)).await;
    assert!(is(&outdated, &Error::CasFailure), "a write with the old version");
}

/// A write does not change the uid.
///
/// Spec: RSC11, RSC12, RSC13
pub async fn writes_keep_the_uid(backend: Arc<dyn Backend>, _: Capabilities) {
    let version = write(&backend, web()).await.version.clone();
    let with_uid = |uid: &str| Resource {
        version: version.clone(),
        ..Resource::new(id_of(&web()).with_uid(uid))
    };
    assert!(backend.write_cas(with_uid("")).await.is_err(), "without a uid");
    assert!(is(&backend.write_cas(with_uid("b")).await, &Error::WrongUid), "with another uid");
    write(&backend, with_uid("a")).await;
}

/// The name of a deleted resource is free for another uid.
///
/// Spec: RSC14
pub async fn a_deleted_name_takes_another_uid(backend: Arc<dyn Backend>, _: Capabilities) {
    let stored = write(&backend, web()).await;
    backend.delete_cas(&id_of(&stored), &stored.version).await.unwrap();
    write(&backend, Resource::new(id_of(&web()).with_uid("b"))).await;
}

/// A delete takes place only if its version is what is stored.
///
/// Spec: RSC15, RSC16
pub async fn deletes_are_conditional_on_the_version(backend: Arc<dyn Backend>, _: Capabilities) {
    let stored = write(&backend, web()).await;
    let id = id_of(&stored);
    for version in ["", "some-version"] {
        assert!(is(&backend.delete_cas(&id, version).await, &Error::CasFailure), "{version:?}");
    }
    backend.delete_cas(&id, &stored.version).await.unwrap();
    for mode in MODES {
        let gone = read_until(mode, || backend.read(mode, &id), |r| is(r, &Error::NotFound)).await;
        assert!(is(&gone, &Error::NotFound), "{mode}");
    }
    backend.delete_cas(&id, &stored.version).await.unwrap();
}

/// A delete of another incarnation does nothing, and is no error.
///
/// Spec: RSC17
pub async fn a_delete_of_another_uid_does_nothing(backend: Arc<dyn Backend>, _: Capabilities) {
    let stored = write(&backend, web()).await;
    for uid in ["b", ""] {
        backend.delete_cas(&id_of(&stored).with_uid(uid), &stored.version).await.unwrap();
    }
    for mode in MODES {
        let id = id_of(&stored);
        let read = read_until(mode, || backend.read(mode, &id), Result::is_ok).await.unwrap();
        assert_eq!(read, stored, "{mode}");
    }
}

/// Owned resources stay listed after their owner was deleted, until they are
/// deleted themselves.
///
/// Spec: RSC18, RSC19, RSC20, RSC21
pub async fn owned_resources_are_listed_by_their_owner(backend: Arc<dyn Backend>, _: Capabilities) {
    let owner =
        write(&backend, seed::resource(seed::a_v1(), seed::default_tenancy(), "owner")).await;
    let owned = |ty, name| Resource {
        owner: Some(id_of(&owner)),
        ..seed::resource(ty, seed::default_tenancy(), name)
    };
    let r1 = write(&backend, owned(seed::b(), "r1")).await;
    let r2 = write(&backend, owned(seed::a_v2(), "r2")).await;
    let both = vec![Arc::clone(&r2), Arc::clone(&r1)];
    assert_eq!(owned_until(&backend, &id_of(&owner), 2).await, both);

    let other = backend.list_by_owner(&id_of(&owner).with_uid("different")).await.unwrap();
    assert!(other.is_empty(), "another incarnation owns nothing");

    backend.delete_cas(&id_of(&owner), &owner.version).await.unwrap();
    assert_eq!(owned_until(&backend, &id_of(&owner), 2).await, both);

    backend.delete_cas(&id_of(&r2), &r2.version).await.unwrap();
    assert_eq!(owned_until(&backend, &id_of(&owner), 1).await, [r1]);
}

async fn owned_until(backend: &Arc<dyn Backend>, owner: &Id, count: usize) -> Vec<Arc<Resource>> {
    let enough = |result: &Result<Vec<_>, Error>| matches!(result, Ok(list) if list.len() == count);
    read_until(Consistency::Eventual, || backend.list_by_owner(owner), enough).await.unwrap()
}
