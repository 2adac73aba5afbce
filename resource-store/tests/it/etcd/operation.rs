//! Killing members of etcd, and calling them.

use serde_json::Value;

use super::server::{Servers, http};

impl Servers {
    /// Kills a member, as a crash would.
    pub(crate) fn kill(&mut self, index: usize) {
        drop(self.members[index].running.take());
    }

    /// Calls etcd's JSON gateway.
    pub(crate) async fn call(&self, index: usize, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.endpoint(index));
        let answer = http().post(url).json(&body).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    }
}
