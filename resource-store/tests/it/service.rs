//! The service, call by call, in process.

mod acl;
mod deleting;
mod input;
pub(crate) mod reading;
mod status;
mod tenancy;
mod watching;
mod writing;
