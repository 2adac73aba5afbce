//! Dynamic values of `terraform_provider` blocks and of tasks' `env`: templates for the process's
//! environment, a key of Consul, or a secret of Vault.
//!
//! [`resolve`] replaces them by what a [`ValueSource`] knows; [`LiveValues`] is
//! the source that asks the real places. Nothing here needs the feature `cli`.
//!
//! | template | value |
//! |---|---|
//! | `{{ env "NAME" }}` | a variable of the process; a missing one is empty |
//! | `{{ key "path" }}` | a key of Consul's KV store |
//! | `{{ with secret "path" }}{{ .Data.data.foo }}{{ end }}` | a field of a secret |
//!
//! Text may stand before, between and after them.
//!
//! Source: Consul-Terraform-Sync 0.9, dynamic configuration of providers.

mod keeper;
mod live;
mod reference;
mod resolve;
mod template;
#[cfg(feature = "vault")]
mod vault;

pub use keeper::Keeper;
pub use live::LiveValues;
pub use reference::{Reference, ValueSource, Values};
#[cfg(feature = "cli")]
pub(crate) use resolve::env_problems;
pub(crate) use resolve::problems;
pub use resolve::{changed, resolve, resolve_env};
