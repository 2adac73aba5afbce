//! Names that the double gives, and the rules that names have to follow.

use crate::testing::refused::Refused;

/// Name of the double's only server, and of its agent.
pub(in crate::testing) const NODE: &str = "test-consul";
pub(in crate::testing) const SERF: &str = "serfHealth";
pub(in crate::testing) const DATACENTER: &str = "dc1";

pub(in crate::testing) fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.chars().enumerate().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
}

/// A name of a policy, role or auth method.
pub(in crate::testing) fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// A name of a service or node in an identity.
pub(in crate::testing) fn is_identity_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=256).contains(&name.len())
        && name.chars().all(|c| inner(c) || matches!(c, '-' | '_'))
        && name.starts_with(inner)
        && name.ends_with(inner)
}

/// The rule for names of policies in newer words.
pub(in crate::testing) const NAME_RULE_NOW: &str =
    "Only alphanumeric characters, a single '/', '-' and '_' are allowed";
pub(in crate::testing) const NAME_RULE: &str =
    "Only alphanumeric characters, '-' and '_' are allowed";
pub(in crate::testing) const MANAGEMENT: &str = "00000000-0000-0000-0000-000000000001";
pub(in crate::testing) const READ_ONLY: &str = "00000000-0000-0000-0000-000000000002";
pub(in crate::testing) const ANONYMOUS: &str = "00000000-0000-0000-0000-000000000002";

/// Refuses what is no id; `what` is the object that it should lead to.
pub(in crate::testing) fn check_id(what: &str, id: &str) -> Result<(), Refused> {
    if is_uuid(id) {
        return Ok(());
    }
    let problem = if id.len() == 36 { "Invalid UUID" } else { "UUID must be 36 characters" };
    Err(Refused::new(500, format!("failed acl {what} lookup: index error: {problem}")))
}
