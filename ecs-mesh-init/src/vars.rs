use std::sync::Arc;

/// A way to look variables up, such as the process's environment:
///
/// ```
/// let vars: ecs_mesh_init::Vars = std::sync::Arc::new(|name| std::env::var(name).ok());
/// ```
pub type Vars = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;
