//! Leader election, locks and semaphores over Consul sessions; highly available
//! state for Consul-Terraform-Sync.
//!
//! - [`Elector`] decides which of several processes leads; [`ConsulElector`] does
//!   so with a session and a lock in Consul. [`ElectorExt::run`] does your work
//!   while you lead.
//! - [`Leadership`] ends by this machine's own clock before Consul can give the
//!   lock to another, whatever the network does. It carries a [`FencingToken`]
//!   and a cancellation, and writes to Consul's KV store so that Consul refuses
//!   what a deposed leader sends.
//! - [`Lock`], [`Semaphore`] and [`KeptSession`] stand on the same base. Locks and
//!   semaphores work together with those of Consul's own client.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = consul_watch::testing::TestConsul::new().client();
//! use cts_ha::{Candidate, Consul, ConsulElector, ElectionOptions, ElectorExt as _};
//!
//! // A program would have `consul_watch::Client::from_env()?` for `client`.
//! let consul = Consul::new(client);
//! let elector = ConsulElector::new(
//!     &consul, "app/leader", Candidate::new("node-1"), ElectionOptions::default())?;
//! let term = elector
//!     .run(|leadership| async move {
//!         // Ask before each step, or select on `leadership.ended()`.
//!         leadership.check().map(|()| leadership.token())
//!     })
//!     .await??;
//! assert!(term.get() > 0);
//! # Ok::<(), cts_ha::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What fencing protects, and what it cannot
//!
//! A process can be stopped at any point, by its machine's suspend, say, and go
//! on after another has begun to lead. [`Leadership::commit`] is safe from that:
//! Consul checks the lock and writes in one step. What a step changes elsewhere
//! is not: a Terraform run that is under way does not ask Consul. So ask
//! [`Leadership::check`] before each such step, and end a long one when
//! [`Leadership::ended`] is cancelled; [`Leadership::margin`] is the time for it.
//! Where what you change takes a token, give it [`Leadership::token`].
//!
//! # Features
//!
//! - `tasks`: the module `tasks`, state and cluster of Consul-Terraform-Sync.
//! - `testing`: the module `testing`, an elector in this process and the suite
//!   that every elector has to pass.

#![forbid(unsafe_code)]

mod candidate;
mod cleanup;
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
pub use leadership::{FencingToken, Leadership, RefusedOp};
pub use lease::{Lease, Loss};
pub use lock::{Lock, LockOptions};
pub use semaphore::{SEMAPHORE_FLAGS, Semaphore};
pub use session::{KeptSession, SessionOptions, renew_until};
pub use timing::Timing;

/// The examples of the README are tests too.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
