//! What a server puts up with: the time of a call, the streams of a connection,
//! the time that calls have to finish.

use std::sync::Arc;

use async_trait::async_trait;
use resource_store::acl::{AclError, AllowAll, Authorization, Resolved, SameForAll};
use secrecy::SecretString;
use tokio::{sync::Semaphore, time::timeout};

use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

/// Holds every call up until it is opened, and counts those that came.
#[derive(Debug, Clone)]
struct Gate {
    came: Arc<Semaphore>,
    open: Arc<Semaphore>,
}

impl Gate {
    fn shut() -> Self {
        Self { came: Arc::new(Semaphore::new(0)), open: Arc::new(Semaphore::new(0)) }
    }

    fn service(&self) -> ResourceService {
        builder().authorization(self.clone()).build()
    }

    async fn wait_for_a_call(&self) {
        timeout(PATIENCE, self.came.acquire()).await.unwrap().unwrap().forget();
    }
}

#[async_trait]
impl Authorization for Gate {
    async fn resolve(
        &self,
        token: Option<&SecretString>,
        tenancy: Option<&pb::Tenancy>,
    ) -> Result<Resolved, AclError> {
        self.came.add_permits(1);
        drop(self.open.acquire().await);
        SameForAll::new(AllowAll).resolve(token, tenancy).await
    }
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends() {
    let mut config = ServerConfig::default();
    config.request_timeout = Duration::from_millis(100);
    let server = start(Gate::shut().service(), config).await;
    let client = client(&server);
    let call = timeout(PATIENCE, client.read(id(&artist("korn")))).await.unwrap();
    assert_fails(call, Code::Cancelled, "Timeout expired");
}

#[tokio::test]
async fn a_connection_has_so_many_streams() {
    let mut config = ServerConfig::default();
    config.max_streams_per_connection = 1;
    let server = start(service(), config).await;
    let client = client(&server);
    let mut watch = client.watch_list(watch_artists()).await.unwrap();
    assert_eq!(next(&mut watch).await, WatchEvent::EndOfSnapshot);
    let call = client.read(id(&artist("korn")));
    tokio::pin!(call);
    assert!(timeout(Duration::from_millis(100), &mut call).await.is_err(), "the watch has the one");
    drop(watch);
    let answer = timeout(PATIENCE, call).await.unwrap();
    assert_fails(answer, Code::NotFound, "resource not found");
}

#[tokio::test]
async fn calls_under_way_finish_when_a_server_stops() {
    let gate = Gate::shut();
    let mut server = start(gate.service(), ServerConfig::default()).await;
    let client = client(&server);
    let call = tokio::spawn(async move { client.write(artist("korn")).await });
    gate.wait_for_a_call().await;
    server.stop.cancel();
    gate.open.close();
    assert_eq!(call.await.unwrap().unwrap().name(), "korn");
    timeout(PATIENCE, &mut server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn calls_that_do_not_finish_are_cut_off() {
    let gate = Gate::shut();
    let mut config = ServerConfig::default();
    config.drain_timeout = Duration::from_millis(100);
    let mut server = start(gate.service(), config).await;
    let client = client(&server);
    let call = tokio::spawn(async move { client.write(artist("korn")).await });
    gate.wait_for_a_call().await;
    server.stop.cancel();
    timeout(PATIENCE, &mut server.task).await.unwrap().unwrap();
    call.abort();
}

/// What is limited is what a server receives: a list of much that was stored bit
/// by bit comes back whole.
#[tokio::test]
async fn answers_may_be_larger_than_requests() {
    let mut config = ServerConfig::default();
    config.max_message_bytes = 16 << 10;
    let server = start(service(), config).await;
    let client = client(&server);
    for i in 0..20 {
        let mut large = artist(&format!("artist-{i}"));
        large.metadata.insert("large".to_owned(), "x".repeat(10 << 10));
        client.write(large).await.unwrap();
    }
    let list = ListRequest {
        r#type: Some(v2::Artist::resource_type()),
        tenancy: Some(default_tenancy()),
        name_prefix: String::new(),
    };
    assert_eq!(client.list(list).await.unwrap().len(), 20);
    let mut too_large = artist("too-large");
    too_large.metadata.insert("large".to_owned(), "x".repeat(17 << 10));
    assert_eq!(client.write(too_large).await.unwrap_err().code(), Code::OutOfRange);
}
