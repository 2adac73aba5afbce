//! The lookup of environment variables that the whole crate is given, so that no code here and no
//! test reads or changes the process's environment.

use std::sync::Arc;

/// Lookup of a variable by name, such as in the process's environment:
///
/// ```
/// let vars: ecs_mesh_init::Vars = std::sync::Arc::new(|name| std::env::var(name).ok());
/// ```
pub type Vars = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;
