//! Resources from files.

mod hcl;
mod json;
mod properties;
mod sink;

use resource_store::{
    Registry,
    file::{FileError, read_resource},
    pb,
};

use crate::support::demo_registry;

fn read(text: &str) -> Result<pb::Resource, FileError> {
    read_with(text, &demo_registry())
}

fn read_with(text: &str, registry: &Registry) -> Result<pb::Resource, FileError> {
    read_resource("f", text.as_bytes(), registry)
}

fn complaint(text: &str) -> String {
    read(text).unwrap_err().to_string()
}
