//! A table of what rules allow on a type.

use crate::{acl::AclError, acl::Authorizer, pb::Resource, registry::Registration};

/// What a row of [`check_acls`] expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The hook allows it.
    Allow,
    /// The hook denies it.
    Deny,
}

/// One row: rules, and what they have to allow.
#[derive(Debug)]
pub struct AclCase<'a> {
    /// What the row is about, for the message if it fails.
    pub name: &'a str,
    /// What the token may do.
    pub rules: &'a dyn Authorizer,
    /// Whether the resource may be read.
    pub read: Expected,
    /// Whether it may be written.
    pub write: Expected,
    /// Whether its type may be listed.
    pub list: Expected,
}

/// Asks the hooks of a type about a resource, under each of several rules.
///
/// The read hook is asked as the service does: by the identity, and with the
/// resource if it says that it needs it.
///
/// # Errors
///
/// Names the first row and hook that answers otherwise.
pub fn check_acls(
    registration: &Registration,
    resource: &Resource,
    cases: &[AclCase<'_>],
) -> Result<(), String> {
    let hooks = registration.acl_hooks();
    let id = resource.id.clone().unwrap_or_default();
    for case in cases {
        let read = match (hooks.read)(case.rules, &id, None) {
            Err(AclError::NeedResource) => (hooks.read)(case.rules, &id, Some(resource)),
            answer => answer,
        };
        let answers = [
            ("read", read, case.read),
            ("write", (hooks.write)(case.rules, resource), case.write),
            ("list", (hooks.list)(case.rules), case.list),
        ];
        for (hook, answer, expected) in answers {
            let found = match answer {
                Ok(()) => Expected::Allow,
                Err(AclError::Denied(_)) => Expected::Deny,
                Err(error) => return Err(format!("{}: {hook}: {error}", case.name)),
            };
            if found != expected {
                return Err(format!("{}: {hook}: {found:?}, expected {expected:?}", case.name));
            }
        }
    }
    Ok(())
}
