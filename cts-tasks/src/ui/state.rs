//! What the pages are made of.

use std::sync::Arc;

use super::{driver_check::Checked, sessions::Sessions};
use crate::{
    Cluster, Engine,
    api::{PageContext, TokenSource},
};

/// Path of the login.
pub(super) const LOGIN: &str = "/ui/login";

/// State of the pages; clones share it.
#[derive(Clone)]
pub(super) struct UiState {
    pub(super) engine: Engine,
    pub(super) cluster: Arc<dyn Cluster>,
    /// `None` where the API needs no token.
    pub(super) token: Option<TokenSource>,
    /// `true` if this instance serves https.
    pub(super) https: bool,
    /// Port that it listens on.
    pub(super) port: u16,
    pub(super) sessions: Arc<Sessions>,
    pub(super) checked: Arc<Checked>,
}

impl UiState {
    /// Nobody has a session at first.
    pub(super) fn new(context: PageContext) -> Self {
        let PageContext { engine, cluster, token, https, port, events: _ } = context;
        Self {
            engine,
            cluster,
            token,
            https,
            port,
            sessions: Arc::default(),
            checked: Arc::default(),
        }
    }
}
