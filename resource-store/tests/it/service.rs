//! The service, call by call, in process.

mod acl;
mod deleting;
mod failing;
mod input;
pub(crate) mod reading;
mod status;
mod tenancy;
mod versions;
mod watching;
mod writing;
