//! A table of what rules allow on a type.

use crate::{acl::AclError, acl::Authorizer, pb::Resource, registry::Registration};

/// The answer that a row of [`check_acls`] expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The hook allows it.
    Allow,
    /// The hook denies it.
    Deny,
}

/// A row: rules, and what they have to allow.
#[derive(Debug)]
pub struct AclCase<'a> {
    /// Name of the row, for the message if it fails.
    pub name: &'a str,
    /// Permissions of the token.
    pub rules: &'a dyn Authorizer,
    /// Expected answer to a read of the resource.
    pub read: Expected,
    /// Expected answer to a write.
    pub write: Expected,
    /// Expected answer to a list of its type.
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
