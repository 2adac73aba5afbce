//! Every query of the crate, and one of a user, keeps the contract.

use std::time::Duration;

use consul_watch::{
    Answer, Client, Query, Result,
    query::{
        AgentService, CatalogNodes, CatalogService, CatalogServices, HealthService, HealthState,
        KvGet, KvKeys, KvList, Mode, Position, QueryKey,
    },
    testing::{
        TestConsul,
        conformance::{self, Fixture},
    },
    types::HealthStatus,
};

fn set_instance(consul: &TestConsul, step: usize) {
    consul.set_instance("web", &format!("web-{step}"), "10.0.0.1", 80, HealthStatus::Passing);
}

#[tokio::test(start_paused = true)]
async fn health_service() {
    conformance::all(|| Fixture::new(HealthService::new("web").passing(), set_instance)).await;
}

#[tokio::test(start_paused = true)]
async fn health_state() {
    conformance::all(|| Fixture::new(HealthState::any(), set_instance)).await;
}

#[tokio::test(start_paused = true)]
async fn catalog_service() {
    conformance::all(|| Fixture::new(CatalogService::new("web"), set_instance)).await;
}

#[tokio::test(start_paused = true)]
async fn catalog_services() {
    conformance::all(|| {
        Fixture::new(CatalogServices::new(), |consul, step| {
            consul.set_instance(&format!("web-{step}"), "a", "10.0.0.1", 80, HealthStatus::Passing);
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn catalog_nodes() {
    conformance::all(|| Fixture::new(CatalogNodes::new(), set_instance)).await;
}

#[tokio::test(start_paused = true)]
async fn kv_get() {
    conformance::all(|| {
        Fixture::new(KvGet::new("a/b"), |consul, step| {
            if step % 3 == 1 {
                consul.kv_delete("a/b");
            } else {
                consul.kv_put("a/b", step.to_string());
            }
        })
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn kv_list_and_keys() {
    let put = |consul: &TestConsul, step: usize| consul.kv_put(&format!("a/{step}"), "x");
    conformance::all(|| Fixture::new(KvList::new("a/"), put)).await;
    conformance::all(|| Fixture::new(KvKeys::new("a/"), put)).await;
}

/// A user's own query: the number of keys under a prefix.
#[derive(Debug)]
struct KeyCount(&'static str);

impl Query for KeyCount {
    type Value = usize;

    fn key(&self) -> QueryKey {
        QueryKey::new("key-count", &(self.0,))
    }

    async fn fetch(
        &self,
        client: &Client,
        position: &Position,
        wait: Duration,
    ) -> Result<Answer<usize>> {
        let options = consul_watch::QueryOptions::default().at(position, wait);
        Ok(client.kv_keys(self.0, None, &options).await?.map(|keys| keys.len()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_users_own_query() {
    conformance::all(|| {
        Fixture::new(KeyCount("a/"), |consul, step| {
            consul.kv_put(&format!("a/{step}"), "x");
        })
    })
    .await;
}

#[test]
fn an_agents_service_blocks_by_hash() {
    assert_eq!(AgentService::new("web").mode(), Mode::Hash);
}
