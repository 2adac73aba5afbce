//! Leader election, locks and semaphores over Consul sessions; highly available
//! state for Consul-Terraform-Sync.
//!
//! - [`Elector`] decides which of several processes leads; [`ConsulElector`] does so with a session
//!   and a lock in Consul. [`ElectorExt::run`] runs your work while you lead.
//! - [`Leadership`] ends by this machine's own clock before Consul can give the lock to another,
//!   whatever the network does. It carries a [`FencingToken`] and a cancellation token, and writes
//!   to Consul's KV store in such a way that Consul refuses the writes of a deposed leader.
//! - [`Lock`], [`Semaphore`] and [`KeptSession`] share this base. Locks and semaphores work
//!   together with those of Consul's own client.
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
//! # Seam
//!
//! [`Elector`] is the seam: campaign, and who leads. [`ConsulElector`] implements it with Consul,
//! `testing::InProcessElector` in this process; a type of your own has to pass the suite
//! `testing::election`. Consul itself is reached through [`Consul`], which any
//! `consul_watch::Client` becomes, the one of the double too.
//!
//! # Limits
//!
//! - Another leads at once after a leader that resigns, and within 2 × TTL + lock-delay + one try
//!   after one that dies: Consul ends a session at twice its TTL.
//! - A server refuses TTLs below its `session_ttl_min`, 10 s by default ([`SessionOptions`],
//!   [`Timing`]).
//! - A batch of [`Leadership::commit`] is one transaction of Consul, at most 64 operations of which
//!   the check of the lock is one.
//! - A deposed leader writes nothing to Consul. What it changes elsewhere cannot be fenced, as the
//!   next section says.
//!
//! # What fencing protects, and what it cannot
//!
//! A process can be stopped at any point, by its machine's suspend for example, and go on after
//! another has begun to lead. [`Leadership::commit`] is safe from that: Consul checks the lock and
//! writes in one step. Changes elsewhere are not: a Terraform run that is under way does not ask
//! Consul. So call [`Leadership::check`] before each such step, and end a long one when
//! [`Leadership::ended`] is cancelled; [`Leadership::margin`] is the time for it. If the changed
//! system accepts a token, pass it [`Leadership::token`].
//!
//! # Testing without a server
//!
//! With the feature `testing`, `testing::Ballot` elects among candidates of one process: one that
//! dies (`InProcessElector::die`) says nothing, as after a crash, and on a paused clock the
//! test waits for nothing. `consul_watch::testing::TestConsul` stands in for Consul where sessions,
//! locks and what is written matter.
//!
//! # Types of other crates
//!
//! [`CancellationToken`] and [`async_trait`](macro@async_trait), which signatures here need, are re-exported.
//!
//! # Features
//!
//! - `tasks`: the module `tasks`, state and cluster of Consul-Terraform-Sync.
//! - `testing`: the module `testing`, an elector in this process and the suite that every elector
//!   has to pass.

#![forbid(unsafe_code)]

mod candidate;
mod cleanup;
mod consul;
mod consul_elector;
mod elector;
mod error;
mod leadership;
mod lease;
mod lock;
mod lock_key;
mod refused_op;
mod semaphore;
mod session;
#[cfg(feature = "tasks")]
pub mod tasks;
mod term;
#[cfg(feature = "testing")]
pub mod testing;
mod timing;

pub use candidate::{Candidate, Leader};
pub use consul::Consul;
pub use consul_elector::{ConsulElector, ElectionOptions};
pub use elector::{Elector, ElectorExt};
pub use error::{BoxError, Error, Result};
pub use leadership::{FencingToken, Leadership};
pub use lease::{Lease, Loss};
pub use lock::{Lock, LockOptions};
pub use lock_key::LOCK_FLAGS;
pub use refused_op::RefusedOp;
pub use semaphore::{SEMAPHORE_FLAGS, Semaphore};
pub use session::{KeptSession, SessionOptions, renew_until};
pub use timing::Timing;

#[doc(no_inline)]
pub use consul_watch::{CancellationToken, async_trait};

/// The examples of the README are tests too.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
