//! Calls to the host of archives and logs, which must not see the token.

use bytes::Bytes;
use http::Method;
use secrecy::{ExposeSecret as _, SecretString};

use super::{Call, Client};
use crate::Result;

impl Client {
    /// Reads a part of a log from `offset` on, at most `limit` bytes, without the token; empty if
    /// there is nothing more yet.
    pub(crate) async fn log_piece(
        &self,
        address: &SecretString,
        offset: u64,
        limit: u64,
    ) -> Result<Bytes> {
        let call = Call::archive("read log", Method::GET, address.expose_secret())
            .query("limit", limit.to_string())
            .query("offset", offset.to_string());
        Ok(self.send(call).await?.into_body())
    }
}
