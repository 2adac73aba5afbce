//! Resources as people write them: files in HCL or JSON.
//!
//! A file whose first character other than white space is `{` is JSON, any
//! other is HCL; the chosen parser's error is the one that counts.
//!
//! ```
//! use resource_store::{Registry, demo, file::read_resource};
//!
//! let mut registry = Registry::new()?;
//! demo::register(&mut registry)?;
//! let text = br#"
//! ID {
//!   Type = gvk("demo.v2.Artist")
//!   Name = "korn"
//! }
//! Data {
//!   Name  = "Korn"
//!   Genre = "GENRE_METAL"
//! }
//! "#;
//! let resource = read_resource("korn.hcl", text, &registry)?;
//! assert_eq!(resource.name(), "korn");
//!
//! let error = read_resource("korn.hcl", b"Name = \"korn\"", &registry).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "korn.hcl:1,1-5: Unsupported argument; An argument named \"Name\" is not expected here."
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Source: `internal/resourcehcl`, `internal/protohcl`, Consul 1.21.

mod error;
mod go_duration;
mod hcl;
mod json;
mod span;

pub use error::FileError;
pub use span::{Position, Span};

use crate::{pb::Resource, registry::Registry};

/// Reads one resource. Its type must be registered, and only registered fields
/// may be there; hooks are not run.
///
/// `file` is the name that errors show. The data gets the type URL that
/// [`Schema::type_url`](crate::Schema::type_url) gives for JSON, and the bare
/// message name for HCL, as Consul does; the service takes both.
///
/// HCL values are literals, lists, objects, and the function
/// `gvk("group.version.Kind")`. A type is never converted into another.
///
/// Deviation: operators, conditions, `for` and strings with `${…}`, which
/// upstream evaluates over no variables, are refused.
///
/// # Errors
///
/// [`FileError`] at the first place that is not right. Nesting deeper than 64
/// levels of HCL, or 128 of JSON, is an error.
pub fn read_resource(file: &str, text: &[u8], registry: &Registry) -> Result<Resource, FileError> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let valid = text.get(..error.valid_up_to()).unwrap_or_default();
        let valid = String::from_utf8_lossy(valid);
        let at = Span::of(&valid, valid.len()..valid.len());
        FileError::new(file, Some(at), "the file is not UTF-8 text")
    })?;
    // Some editors put a byte order mark there.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with('{') {
        json::read(file, text, registry)
    } else {
        hcl::read(file, text, registry)
    }
}
