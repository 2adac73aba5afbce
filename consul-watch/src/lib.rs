//! A Consul HTTP client whose watches are correct, shared and cheap.
#![forbid(unsafe_code)]

mod backoff;
pub mod client;
mod clock;
mod error;
mod go_duration;
mod meta;
mod options;
pub mod query;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;
pub mod types;
pub mod watch;

pub use backoff::{Backoff, Jitter};
pub use client::{AclApi, AgentApi, CatalogApi, Client, ClientConfig, KvStore, SessionApi};
pub use clock::{Clock, SystemClock};
pub use error::{BoxError, Error, Result};
pub use go_duration::{GoDuration, ParseGoDurationError};
pub use meta::{Answer, QueryMeta};
pub use options::{Cached, Consistency, QueryOptions, WriteOptions};
pub use query::Query;
pub use transport::Transport;
pub use watch::{Snapshot, Watch, WatchError, Watcher};
