//! A Consul HTTP client whose watches are correct, shared and cheap.
//!
//! - [`Client`] speaks to Consul's HTTP API with typed calls.
//! - [`Watcher`] follows a [`Query`] and gives a [`Snapshot`] for each real
//!   change, as a stream. Watches of the same query share one upstream read;
//!   the last one that is dropped ends it. Restarts of Consul, indexes that go
//!   backwards, lost connections and denied tokens are dealt with inside.
//! - [`testing`] (feature `testing`) has an in-process Consul
//!   with true blocking queries, and starts real ones.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use consul_watch::{Watcher, query::HealthService, testing::TestConsul, types::HealthStatus};
//!
//! // A program would have `Client::from_env()?` in its place.
//! let consul = TestConsul::new();
//! let watcher = Watcher::new(consul.client());
//!
//! let mut web = watcher.watch(HealthService::new("web").passing());
//! assert!(web.changed().await?.data.is_empty());
//!
//! consul.set_instance("web", "web-1", "10.0.0.7", 8080, HealthStatus::Passing);
//! let snapshot = web.changed().await?;
//! let found = &snapshot.data[0];
//! assert_eq!((found.address(), found.service.port), ("10.0.0.7", 8080));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Basics that the crates above share are here too: [`Backoff`], [`Clock`] and
//! [`GoDuration`].
//!
//! # Features
//!
//! - `tls`: https, with HTTP/2, certificates of one's own, and proxies that speak https. On by default.
//!   Without it the settings that ask for it are errors ([`Error::MissingFeature`]).
//! - `testing`: the [`testing`] module. Off by default.
//! - `metrics`: counters, gauges and histograms, see [`telemetry`]. Off by default.
//!
//! # Supported servers
//!
//! Consul 1.8 and later. The suite runs against 1.8.7, 1.19.2 and the double,
//! which behaves like either.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "testing"),
    allow(rustdoc::broken_intra_doc_links, reason = "a feature's module")
)]

mod backoff;
pub mod client;
mod clock;
mod config;
mod endpoint;
mod error;
mod go_duration;
mod meta;
mod options;
mod position;
pub mod query;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod token;
pub mod transport;
pub mod types;
pub mod watch;

pub use backoff::{Backoff, Jitter};
pub use client::{
    AclApi, AgentApi, CatalogApi, Client, ClientConfig, KvStore, SessionApi, TenancyApi,
    TokenProvider,
};
pub use clock::{Clock, SystemClock};
pub use error::{BoxError, Error, Result, error_chain};
pub use go_duration::{GoDuration, ParseGoDurationError};
pub use meta::{Answer, QueryMeta};
pub use options::{Cached, Consistency, QueryOptions, WriteOptions};
pub use query::Query;
pub use transport::Transport;
pub use watch::{Snapshot, Watch, WatchError, Watcher};

/// The examples of the README are tests too.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
