//! What the tests of the backend need of its servers.

use std::path::Path;

use resource_store::backend::etcd::{EtcdBackend, EtcdConfig};
use serde_json::json;

use super::server::{START_LIMIT, Servers};

impl Servers {
    /// Starts `count` members that wait for each other.
    pub(crate) async fn start(program: &Path, count: usize) -> Self {
        Self::start_with(program, count, "http", |_| Vec::new()).await
    }

    /// Throws away what a killed member stored.
    pub(crate) fn forget(&self, index: usize) {
        std::fs::remove_dir_all(self.folder.path().join(format!("m{index}"))).unwrap();
    }

    pub(crate) fn config(&self) -> EtcdConfig {
        let mut config = EtcdConfig::new(self.endpoints());
        // A member that starts anew may take long on a busy machine.
        config.timeout = START_LIMIT;
        config
    }

    /// Forgets the history up to now.
    pub(crate) async fn compact(&self) {
        let all = json!({ "key": "AA==", "range_end": "AA==", "limit": "1" });
        let range = self.call(0, "/v3/kv/range", all).await;
        let revision = range["header"]["revision"].clone();
        let request = json!({ "revision": revision, "physical": true });
        self.call(0, "/v3/kv/compaction", request).await;
    }

    /// How many keys there are.
    pub(crate) async fn count(&self) -> usize {
        let all = json!({ "key": "AA==", "range_end": "AA==", "count_only": true });
        let range = self.call(0, "/v3/kv/range", all).await;
        range["count"].as_str().map_or(0, |count| count.parse().unwrap())
    }

    pub(crate) async fn backend(&self) -> EtcdBackend {
        EtcdBackend::connect(&self.config()).await.unwrap()
    }
}
