//! A printer for the Terraform language, with the layout of `terraform fmt`.
//!
//! It prints only what generated files need: comments, attributes, blocks,
//! literals, references and types. Every string survives: whatever the
//! language could misread is escaped.
//!
//! Source: Consul-Terraform-Sync 0.9, formatting of generated files.
//!
//! Deviation: an object key with letters outside ASCII is quoted, because no
//! table of identifiers stands between us and a file that cannot be read.

mod layout;
mod literal;
mod quote;
mod text;
mod types;

pub use layout::format;
pub(crate) use literal::key;
pub use literal::literal;
pub(crate) use quote::is_identifier;
pub(crate) use quote::push_quoted;
pub use quote::quote;
pub(crate) use text::Text;
pub(crate) use types::type_of;
