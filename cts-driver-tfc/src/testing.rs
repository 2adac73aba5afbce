//! An in-process Terraform Cloud, for tests.
//!
//! [`TestTfc`] keeps workspaces, variables, uploads and runs, and moves runs
//! through their states. With a tool it really runs `OpenTofu` or Terraform on
//! what was uploaded; without one it makes runs up. It answers in memory, as a
//! [`Platform`](crate::Platform), so that a test can pause the clock, and can
//! be [served](TestTfc::serve) on a socket.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! use cts_driver_tfc::{testing::TestTfc, types::{NewRun, NewWorkspace}};
//!
//! let tfc = TestTfc::new();
//! let client = tfc.client();
//! let mut new = NewWorkspace::new("web");
//! new.auto_apply = true;
//! let workspace = client.create_workspace("my-org", &new).await?;
//!
//! // Nothing was uploaded, so nothing can run.
//! let refused = client.create_run(&NewRun::new(workspace.id)).await.unwrap_err();
//! assert!(refused.is_refused());
//! # Ok::<(), cts_driver_tfc::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod archive;
mod check_routes;
mod clock;
mod documents;
mod double;
mod faults;
mod life;
mod organization_routes;
mod query;
mod redact;
mod route;
mod run_documents;
mod run_events;
mod run_routes;
mod serve;
mod state;
mod state_versions;
mod tls;
mod tool;
mod workspace_list;
mod workspace_routes;

pub use double::{TestTfc, TestTfcBuilder};
pub use faults::Fault;
pub use serve::ServedTfc;
pub use state::{Hold, PolicyResult, Recorded, RunResult, RunView};
