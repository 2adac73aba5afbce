//! Leader election, locks and semaphores over Consul sessions; highly available state for Consul-Terraform-Sync.

#![forbid(unsafe_code)]

mod candidate;
mod consul;
mod consul_elector;
mod contest;
mod elector;
mod error;
mod leadership;
mod lease;
mod lock;
mod semaphore;
mod session;
#[cfg(feature = "tasks")]
pub mod tasks;
#[cfg(feature = "testing")]
pub mod testing;
mod timing;

pub use candidate::{Candidate, Leader};
pub use consul::Consul;
pub use consul_elector::{ConsulElector, ElectionOptions};
pub use contest::LOCK_FLAGS;
pub use elector::{Elector, ElectorExt};
pub use error::{BoxError, Error, Result};
pub use leadership::{FencingToken, Leadership};
pub use lease::{Lease, Loss};
pub use lock::{Lock, LockOptions};
pub use semaphore::{SEMAPHORE_FLAGS, Semaphore};
pub use session::{KeptSession, SessionOptions, renew_until};
pub use timing::Timing;
