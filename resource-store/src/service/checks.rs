//! The checks of the shape of requests, before anything is looked up.

use super::Result;
use crate::{
    code::RpcError,
    name,
    pb::{Id, Tenancy, Type},
    registry::tombstone_type,
    tenancy::{Scope, WILDCARD},
};

/// Unwraps a message that a request has to have.
pub(super) fn required<T>(value: Option<T>, field: impl std::fmt::Display) -> Result<T> {
    value.ok_or_else(|| RpcError::invalid(format!("{field} is required")))
}

/// Checks an identity and gives its type. A missing tenancy becomes an empty
/// one.
///
/// Deviation: the names of tombstones may be as long as the service makes them.
/// Upstream refuses those of more than 63 bytes, also to its reaper, so that
/// what a resource of a long name owned is never deleted.
pub(super) fn check_id(id: &mut Id, field: &str) -> Result<Type> {
    let ty = required(id.r#type.clone(), format_args!("{field}.type"))?;
    let checked = check_name(&id.name, format_args!("{field}.name"));
    if checked.is_err() && !(name::is_valid_tombstone_name(&id.name) && ty == tombstone_type()) {
        checked?;
    }
    check_units(id.tenancy.get_or_insert_default(), &format!("{field}."), "")?;
    Ok(ty)
}

fn check_name(value: &str, field: std::fmt::Arguments<'_>) -> Result<()> {
    if name::is_valid_name(value) {
        return Ok(());
    }
    Err(RpcError::invalid(format!("{field} invalid: {}", name::invalid_name_text(value))))
}

/// Checks units that are not empty and not `also`.
fn check_units(tenancy: &Tenancy, prefix: &str, also: &str) -> Result<()> {
    for (unit, value) in [("partition", &tenancy.partition), ("namespace", &tenancy.namespace)] {
        if !value.is_empty() && value != also {
            check_name(value, format_args!("{prefix}tenancy.{unit}"))?;
        }
    }
    Ok(())
}

/// Checks tenancy and prefix of a list or watch.
pub(super) fn check_query(tenancy: &Tenancy, name_prefix: &str) -> Result<()> {
    check_units(tenancy, "", WILDCARD)?;
    if name::is_valid_prefix(name_prefix) {
        return Ok(());
    }
    Err(RpcError::invalid(format!(
        "name_prefix invalid: must be lowercase alphanumeric, got: {name_prefix}"
    )))
}

/// The kind of request, which decides if wildcards are allowed and how its type is
/// called in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Units {
    /// Of one resource.
    Exact,
    /// Of a list.
    List,
    /// Of a watch.
    Watch,
}

/// Refuses units that the scope of a type does not have.
///
/// Deviation: Consul forgets this for cluster scoped types in some of the
/// calls, so that resources can be made which nobody can read.
pub(super) fn check_scope(ty: &Type, scope: Scope, tenancy: &Tenancy, units: Units) -> Result<()> {
    let foreign = |unit: &str| !unit.is_empty() && (units == Units::Exact || unit != WILDCARD);
    let Tenancy { partition, namespace } = tenancy;
    let text = match scope {
        Scope::Cluster if foreign(partition) => {
            format!("cluster scoped resource {ty} cannot have a partition: {partition}")
        }
        Scope::Cluster if foreign(namespace) => {
            format!("cluster scoped resource {ty} cannot have a namespace: {namespace}")
        }
        Scope::Partition if foreign(namespace) => {
            let thing = if units == Units::List { "type" } else { "resource" };
            format!("partition scoped {thing} {ty} cannot have a namespace. got: {namespace}")
        }
        Scope::Undefined | Scope::Cluster | Scope::Partition | Scope::Namespace => return Ok(()),
    };
    Err(RpcError::invalid(text))
}

/// The same for an identity that [`check_id`] passed.
pub(super) fn check_id_scope(ty: &Type, scope: Scope, id: &Id) -> Result<()> {
    id.tenancy.as_ref().map_or(Ok(()), |tenancy| check_scope(ty, scope, tenancy, Units::Exact))
}
