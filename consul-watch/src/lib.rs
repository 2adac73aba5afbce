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
//! Basics that other crates need beside these are here too: [`Backoff`], [`Clock`], [`GoDuration`]
//! and [`error_chain`], which shows an error with its causes to a person.
//!
//! # Seams
//!
//! - [`Query`]: a read that can be watched. A type of your own is watched like those of
//!   [`query`], and `testing::conformance` checks that it keeps the contract.
//! - [`Transport`]: one HTTP exchange, over sockets, in memory, or through layers of tower
//!   ([`transport`]).
//! - [`KvStore`], [`SessionApi`], [`CatalogApi`], [`AgentApi`], [`AclApi`], [`TenancyApi`]: parts of
//!   [`Client`] as traits, for code that takes no more of Consul than it needs.
//! - [`TokenProvider`]: where the token comes from, and when it changes. [`Clock`]: what time it is.
//!
//! # Limits
//!
//! - A [`Client`] sends each request once. It waits 10 s for an answer, which
//!   [`ClientConfig::request_timeout`] changes; [`Error::is_retryable`] says whether another attempt
//!   can help. A [`Watch`] retries by itself, for as long as it takes.
//! - A [`Watcher`] uses at most 160 connections, of the 200 that Consul allows each address
//!   ([`WatcherBuilder::connections`](watch::WatcherBuilder::connections)). Any number of watches
//!   shares them; past that number a change may show some seconds later
//!   ([Many watches](watch#many-watches)).
//! - A slow subscriber sees the newest snapshot only, and not those in between: nothing queues up.
//! - Everything runs within a tokio runtime, which the program starts.
//!
//! # Testing without a server
//!
//! `testing::TestConsul` answers in memory, as in the example above: writes wake watches, TTLs and
//! waits follow tokio's clock, so `#[tokio::test(start_paused = true)]` waits for nothing. It
//! cuts connections, loses its leader and refuses tokens where a test says so, and `serve()` puts it
//! on a port for programs in any language. `testing::real` starts real servers.
//!
//! # Types of other crates
//!
//! Types that stand in signatures here are re-exported, so that a program needs no dependency of the
//! same version: [`async_trait`](macro@async_trait) for implementing the traits, [`Bytes`], [`CancellationToken`],
//! [`SecretString`] with [`ExposeSecret`], and the crates [`http`] (`StatusCode`, `Method`, …) and
//! [`serde_json`].
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

#[doc(no_inline)]
pub use ::{
    async_trait::async_trait,
    bytes::Bytes,
    http,
    secrecy::{ExposeSecret, SecretString},
    serde_json,
    tokio_util::sync::CancellationToken,
};

/// The examples of the README are tests too.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../README.md")]
struct Readme;
