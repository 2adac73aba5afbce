//! TLS of a server, which may get other certificates while it runs.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::{ServerError, accept::CurrentTls, set_up};
use crate::server_tls::{self, ServerTls};

/// Replaces the certificates of a server while it runs. A clone is another
/// handle to the same server.
#[derive(Debug, Clone)]
pub struct TlsHandle {
    current: CurrentTls,
}

impl TlsHandle {
    pub(super) fn new(tls: &ServerTls) -> Result<Self, ServerError> {
        Ok(Self {
            current: Arc::new(ArcSwap::from_pointee(
                server_tls::configuration(tls).map_err(set_up)?,
            )),
        })
    }

    pub(super) fn current(&self) -> CurrentTls {
        Arc::clone(&self.current)
    }

    /// Serves connections from now on with these certificates. Those that there
    /// are go on.
    ///
    /// # Errors
    ///
    /// If a certificate or the key is malformed, or they do not belong
    /// together. What was there stays then.
    pub fn replace(&self, tls: &ServerTls) -> Result<(), ServerError> {
        self.current.store(Arc::new(server_tls::configuration(tls).map_err(set_up)?));
        Ok(())
    }
}
