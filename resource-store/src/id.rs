//! Identities and references: making, comparing, printing.

use std::fmt;

use crate::{
    pb::{Id, Reference, Resource, Tenancy, Type},
    tenancy::DEFAULT_UNIT,
};

impl Id {
    /// The identity of `name` without a uid.
    pub fn new(ty: Type, tenancy: Tenancy, name: &str) -> Self {
        Self { uid: String::new(), name: name.to_owned(), r#type: Some(ty), tenancy: Some(tenancy) }
    }

    /// The same identity of another incarnation.
    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.uid);
        self
    }

    /// The same identity of whatever incarnation.
    #[must_use]
    pub fn without_uid(self) -> Self {
        self.with_uid("")
    }

    /// A reference to this name, whatever the incarnation.
    pub fn to_reference(&self) -> Reference {
        Reference {
            r#type: self.r#type.clone(),
            tenancy: self.tenancy.clone(),
            name: self.name.clone(),
            section: String::new(),
        }
    }

    /// The partition, empty where there is none.
    pub fn partition(&self) -> &str {
        self.tenancy.as_ref().map_or("", |t| &t.partition)
    }

    /// The namespace, empty where there is none.
    pub fn namespace(&self) -> &str {
        self.tenancy.as_ref().map_or("", |t| &t.namespace)
    }

    /// Returns `true` if both have the same type, version included.
    pub fn is_of_type(&self, ty: &Type) -> bool {
        self.r#type.as_ref() == Some(ty)
    }
}

impl Reference {
    /// A reference to `name` as a whole.
    pub fn new(ty: Type, tenancy: Tenancy, name: &str) -> Self {
        Self {
            r#type: Some(ty),
            tenancy: Some(tenancy),
            name: name.to_owned(),
            section: String::new(),
        }
    }

    /// The identity that this refers to, without a uid.
    pub fn to_id(&self) -> Id {
        Id {
            uid: String::new(),
            name: self.name.clone(),
            r#type: self.r#type.clone(),
            tenancy: self.tenancy.clone(),
        }
    }

    /// A text that tells references apart, without the section.
    ///
    /// `<GVK>/<partition>.<namespace>/<name>`; empty units print as `default`.
    pub fn key(&self) -> String {
        reference_key(self.r#type.as_ref(), self.tenancy.as_ref(), &self.name)
    }

    /// Returns the key by which references are ordered: group, version, kind,
    /// partition, namespace, name, section.
    pub fn sort_key(&self) -> [&str; 7] {
        let ty = self.r#type.as_ref();
        let tenancy = self.tenancy.as_ref();
        [
            ty.map_or("", |t| &t.group),
            ty.map_or("", |t| &t.group_version),
            ty.map_or("", |t| &t.kind),
            tenancy.map_or("", |t| &t.partition),
            tenancy.map_or("", |t| &t.namespace),
            &self.name,
            &self.section,
        ]
    }
}

impl Resource {
    /// A resource without content.
    pub fn new(id: Id) -> Self {
        Self { id: Some(id), ..Self::default() }
    }

    /// The uid, empty where there is none.
    pub fn uid(&self) -> &str {
        self.id.as_ref().map_or("", |id| &id.uid)
    }

    /// The name, empty where there is none.
    pub fn name(&self) -> &str {
        self.id.as_ref().map_or("", |id| &id.name)
    }

    /// The type, if there is one.
    pub fn resource_type(&self) -> Option<&Type> {
        self.id.as_ref().and_then(|id| id.r#type.as_ref())
    }
}

impl fmt::Display for Id {
    /// For people who debug: the reference text, with the uid.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&reference_key(self.r#type.as_ref(), self.tenancy.as_ref(), &self.name))?;
        if self.uid.is_empty() { Ok(()) } else { write!(f, "?uid={}", self.uid) }
    }
}

impl fmt::Display for Reference {
    /// For people who debug: the key, with the section.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())?;
        if self.section.is_empty() { Ok(()) } else { write!(f, "?section={}", self.section) }
    }
}

/// Returns `true` if a reference names the same thing as an identity: type, tenancy
/// and name. False if either is missing.
///
/// Source: `internal/resource/equality.go`, Consul 1.21.
pub fn reference_or_id_match(reference: Option<&Reference>, id: Option<&Id>) -> bool {
    match (reference, id) {
        (Some(r), Some(i)) => r.r#type == i.r#type && r.tenancy == i.tenancy && r.name == i.name,
        _ => false,
    }
}

fn reference_key(ty: Option<&Type>, tenancy: Option<&Tenancy>, name: &str) -> String {
    let unit = |value: Option<&str>| match value {
        None | Some("") => DEFAULT_UNIT.to_owned(),
        Some(v) => v.to_owned(),
    };
    format!(
        "{}/{}.{}/{name}",
        ty.map(ToString::to_string).unwrap_or_default(),
        unit(tenancy.map(|t| t.partition.as_str())),
        unit(tenancy.map(|t| t.namespace.as_str())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> Id {
        Id::new(Type::new("demo", "v2", "Artist"), Tenancy::new("p", ""), "korn")
    }

    #[test]
    fn texts_name_type_tenancy_and_name() {
        assert_eq!(id().to_string(), "demo.v2.Artist/p.default/korn");
        assert_eq!(id().with_uid("u").to_string(), "demo.v2.Artist/p.default/korn?uid=u");
        let mut reference = id().to_reference();
        "main".clone_into(&mut reference.section);
        assert_eq!(reference.to_string(), "demo.v2.Artist/p.default/korn?section=main");
        assert_eq!(reference.key(), "demo.v2.Artist/p.default/korn");
    }

    #[test]
    fn a_reference_matches_every_incarnation_and_section() {
        let reference = id().to_reference();
        assert!(reference_or_id_match(Some(&reference), Some(&id().with_uid("x"))));
        let other = Id { name: "other".to_owned(), ..id() };
        assert!(!reference_or_id_match(Some(&reference), Some(&other)));
        assert!(!reference_or_id_match(None, Some(&id())));
        assert!(!reference_or_id_match(Some(&reference), None));
        assert!(!reference_or_id_match(None, None));
    }
}
