//! Which updates deletion marks, finalizers and dying tenancies allow.
//!
//! Source: `agent/grpc-external/services/resource/write.go`, Consul 1.21.

use std::collections::BTreeMap;

use super::Result;
use crate::{
    code::RpcError,
    metadata::{DELETION_TIMESTAMP, FINALIZERS},
    pb::Resource,
};

/// Checks an update of `existing` to `input`; `marked` says that the tenancy is
/// on its way out.
pub(super) fn validate_update(existing: &Resource, input: &Resource, marked: bool) -> Result<()> {
    match (existing.metadata.get(DELETION_TIMESTAMP), input.metadata.get(DELETION_TIMESTAMP)) {
        (Some(_), None) => Err(refused("cannot remove deletionTimestamp")),
        (Some(old), Some(new)) if old != new => Err(refused("cannot modify deletionTimestamp")),
        (None, Some(_)) => require_same_but(DELETION_TIMESTAMP, existing, input),
        (Some(_), Some(_)) => validate_update_of_marked(existing, input, marked),
        (None, None) => refuse_in_marked_tenancy(existing, input, marked),
    }
}

fn validate_update_of_marked(existing: &Resource, input: &Resource, marked: bool) -> Result<()> {
    if existing.metadata == input.metadata && existing.data == input.data {
        return Err(refused("cannot no-op write resource marked for deletion"));
    }
    if !existing.has_finalizers() {
        return refuse_in_marked_tenancy(existing, input, marked);
    }
    require_same_but(FINALIZERS, existing, input)?;
    require_finalizer_removed(existing, input)
}

fn require_same_but(key: &str, existing: &Resource, input: &Resource) -> Result<()> {
    if !same_but(key, &existing.metadata, &input.metadata) {
        return Err(refused("cannot modify metadata"));
    }
    if existing.data == input.data { Ok(()) } else { Err(refused("cannot modify data")) }
}

fn same_but(key: &str, a: &BTreeMap<String, String>, b: &BTreeMap<String, String>) -> bool {
    let rest = |map: &BTreeMap<String, String>| {
        map.iter()
            .filter(|(k, _)| *k != key)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect::<Vec<_>>()
    };
    rest(a) == rest(b)
}

/// The finalizers of the input have to be some of the existing ones, but not
/// all.
fn require_finalizer_removed(existing: &Resource, input: &Resource) -> Result<()> {
    let (old, new) = (existing.finalizers(), input.finalizers());
    if new.is_subset(&old) && new != old {
        return Ok(());
    }
    Err(refused("expected at least one finalizer to be removed"))
}

/// In a tenancy on its way out, finalizers may go, and nothing else changes.
fn refuse_in_marked_tenancy(existing: &Resource, input: &Resource, marked: bool) -> Result<()> {
    let only_finalizers = existing.data == input.data
        && same_but(FINALIZERS, &existing.metadata, &input.metadata)
        && require_finalizer_removed(existing, input).is_ok();
    if !marked || only_finalizers {
        return Ok(());
    }
    let id = existing.id.clone().unwrap_or_default();
    Err(refused(&format!(
        "cannot write resource when tenancy marked for deletion: {}/{}",
        id.partition(),
        id.namespace()
    )))
}

fn refused(text: &str) -> RpcError {
    RpcError::invalid(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo;

    fn resource(timestamp: Option<&str>, finalizers: &str) -> Resource {
        let mut resource = demo::artist("korn").encode();
        finalizers.split_whitespace().for_each(|name| resource.add_finalizer(name));
        if let Some(time) = timestamp {
            resource.metadata.insert(DELETION_TIMESTAMP.to_owned(), time.to_owned());
        }
        resource
    }

    fn text(result: Result<()>) -> String {
        result.unwrap_err().message().to_owned()
    }

    /// Spec: RS57
    #[test]
    fn fewer_finalizers_are_fine() {
        let existing = resource(Some("t"), "f1 f2");
        for input in ["f1", "f2", ""] {
            require_finalizer_removed(&existing, &resource(Some("t"), input)).unwrap();
        }
        let mut empty_key = resource(Some("t"), "");
        empty_key.metadata.insert(FINALIZERS.to_owned(), String::new());
        require_finalizer_removed(&existing, &empty_key).unwrap();
        validate_update(&existing, &empty_key, false).unwrap();
        validate_update(&existing, &resource(Some("t"), "f1"), true).unwrap();
    }

    /// Spec: RS58
    #[test]
    fn the_same_or_other_finalizers_are_refused() {
        for (existing, input) in [("f1", "f1"), ("f1 f2", "f3"), ("", "f3")] {
            let error =
                require_finalizer_removed(&resource(None, existing), &resource(None, input));
            assert_eq!(
                error.unwrap_err().message(),
                "expected at least one finalizer to be removed"
            );
        }
        let error =
            validate_update(&resource(Some("t"), "f1 f2"), &resource(Some("t"), "f3"), false);
        assert_eq!(text(error), "expected at least one finalizer to be removed");
    }

    #[test]
    fn the_deletion_mark_stays_as_it_is() {
        let marked = resource(Some("t"), "f");
        assert_eq!(
            text(validate_update(&marked, &resource(None, ""), false)),
            "cannot remove deletionTimestamp"
        );
        assert_eq!(
            text(validate_update(&marked, &resource(Some("u"), ""), false)),
            "cannot modify deletionTimestamp"
        );
        assert_eq!(
            text(validate_update(&marked, &marked, false)),
            "cannot no-op write resource marked for deletion"
        );
    }

    #[test]
    fn marking_and_removing_finalizers_change_nothing_else() {
        let with_label = |mut r: Resource| {
            r.metadata.insert("label".to_owned(), "x".to_owned());
            r
        };
        let with_data = |mut r: Resource| {
            r.data = None;
            r
        };
        let (plain, marked) = (resource(None, "f"), resource(Some("t"), "f"));
        assert_eq!(
            text(validate_update(&plain, &with_label(marked.clone()), false)),
            "cannot modify metadata"
        );
        assert_eq!(
            text(validate_update(&plain, &with_data(marked.clone()), false)),
            "cannot modify data"
        );
        validate_update(&plain, &marked, true).unwrap();
        assert_eq!(
            text(validate_update(&marked, &with_label(resource(Some("t"), "")), false)),
            "cannot modify metadata"
        );
        assert_eq!(
            text(validate_update(&marked, &with_data(resource(Some("t"), "")), false)),
            "cannot modify data"
        );
        let bare = resource(Some("t"), "");
        validate_update(&bare, &with_data(bare.clone()), false).unwrap();
    }

    #[test]
    fn in_a_dying_tenancy_only_finalizers_go() {
        let existing = resource(None, "f1 f2");
        validate_update(&existing, &resource(None, "f1"), true).unwrap();
        let mut changed = existing.clone();
        changed.data = None;
        assert_eq!(
            text(validate_update(&existing, &changed, true)),
            "cannot write resource when tenancy marked for deletion: default/default"
        );
    }
}
