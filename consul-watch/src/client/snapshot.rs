//! Backups of a datacenter: saves and restores through `/v1/snapshot`.

use bytes::Bytes;

use crate::{Client, QueryOptions, Result, WriteOptions, client::Request};

/// Snapshots of everything that the servers hold.
impl Client {
    /// Takes a snapshot, a gzipped tar archive. It is held in memory, and holds every secret
    /// that Consul holds.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn snapshot_save(&self, options: &QueryOptions) -> Result<Bytes> {
        let response =
            self.send(Request::get("snapshot.save", "/v1/snapshot").query(options)).await?;
        Ok(response.body().clone())
    }

    /// Replaces everything that the servers hold by a snapshot. Indexes jump backwards, and
    /// every watch starts again.
    ///
    /// # Errors
    ///
    /// No answer came, or Consul answered with an error ([`Client::send`]).
    pub async fn snapshot_restore(
        &self,
        snapshot: impl Into<Bytes>,
        options: &WriteOptions,
    ) -> Result<()> {
        let request = Request::put("snapshot.restore", "/v1/snapshot").bytes(snapshot.into());
        self.send(request.write(options)).await.map(drop)
    }
}
