//! Pages for a browser beside the API: the seam that the status page comes in through.

use std::{fmt, io, sync::Arc};

use axum::{Router, routing::MethodRouter};
use futures::future::BoxFuture;
use secrecy::SecretString;

use crate::{Cluster, Engine};

/// Reads the token of the API, which may be another one each time.
pub(crate) type TokenSource =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<SecretString>> + Send + Sync>;

/// Context of pages: the API that they stand beside.
pub(crate) struct PageContext {
    pub(crate) engine: Engine,
    pub(crate) cluster: Arc<dyn Cluster>,
    /// `None` where the API needs no token.
    pub(crate) token: Option<TokenSource>,
    /// `true` if this instance serves https.
    pub(crate) https: bool,
    /// Port that it listens on.
    pub(crate) port: u16,
    /// The event stream, for who has a session instead of the token.
    pub(crate) events: MethodRouter,
}

/// Pages that an [`ApiServer`](crate::ApiServer) serves below `/ui/`.
///
/// `cts_tasks::status_page` makes some, with the feature `ui`. They decide by themselves who may
/// see them; requests that name another host, or come from a page of another origin, do not
/// reach them.
#[derive(Clone)]
pub struct Pages(Arc<dyn Fn(PageContext) -> Router + Send + Sync>);

impl Pages {
    #[cfg_attr(not(feature = "ui"), expect(dead_code, reason = "nothing else makes pages"))]
    pub(crate) fn new(make: impl Fn(PageContext) -> Router + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, context: PageContext) -> Router {
        (self.0)(context)
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// Returns `true` if the pages answer at this path, which have rules of their own.
pub(crate) fn is_page(path: &str) -> bool {
    path.strip_prefix("/ui").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::is_page;

    #[test]
    fn only_the_pages_own_paths_are_theirs() {
        for path in ["/ui", "/ui/", "/ui/tasks/a"] {
            assert!(is_page(path), "{path}");
        }
        for path in ["/uix", "/v1/ui", "/", "/v1/tasks", "//ui/", "/UI/"] {
            assert!(!is_page(path), "{path}");
        }
    }
}
