//! Consuls that can fail: the double, and a real one behind a proxy.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, QueryOptions, Transport, WriteOptions,
    testing::{
        TestConsul,
        parts::{Part, Suite},
        real,
    },
    transport::{ExchangeLimits, TransportError},
    types::{AclLink, AclPolicy, AclTokenRequest},
};
use serde_json::json;

use super::{
    Fault, Stage,
    proxy::{Mode, Proxy},
};

const SUITE: Suite = Suite("consul-watch with faults");

/// The double in memory. Only the reader runs into its faults.
#[derive(Debug)]
pub(super) struct Doubled {
    consul: TestConsul,
    broken: Arc<Broken>,
}

/// A way to the double that can be broken.
#[derive(Debug)]
struct Broken {
    to: Arc<dyn Transport>,
    fault: tokio::sync::watch::Sender<Option<Fault>>,
    requests: AtomicU64,
}

#[async_trait]
impl Transport for Broken {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> Result<http::Response<Bytes>, TransportError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let mut fault = self.fault.subscribe();
        let answer = |status, text: &'static str| {
            let mut answer = http::Response::new(Bytes::from_static(text.as_bytes()));
            *answer.status_mut() = http::StatusCode::from_u16(status).unwrap();
            Ok(answer)
        };
        let cut = || Err(TransportError::Failed { source: "the connection was cut".into() });
        let now = *fault.borrow_and_update();
        match now {
            None | Some(Fault::Restored) => {}
            Some(Fault::Killed) => return cut(),
            Some(Fault::Errors) => return answer(500, "No cluster leader"),
            Some(Fault::Revoked) => return answer(403, "ACL not found"),
            Some(Fault::HalfOpen) => return lost(limits.headers).await,
        }
        let asked = tokio::time::Instant::now();
        // A token's end does not end what it has begun.
        let hit = async {
            let ends = |fault: &Option<Fault>| {
                matches!(fault, Some(Fault::Killed | Fault::Errors | Fault::HalfOpen))
            };
            fault.wait_for(ends).await.map_or(Some(Fault::Killed), |fault| *fault)
        };
        let fault = tokio::select! {
            answer = self.to.exchange(request, limits) => return answer,
            fault = hit => fault,
        };
        if fault == Some(Fault::HalfOpen) {
            return lost(limits.headers.saturating_sub(asked.elapsed())).await;
        }
        cut()
    }
}

/// Nothing comes, and so the limit does.
async fn lost(after: Duration) -> Result<http::Response<Bytes>, TransportError> {
    tokio::time::sleep(after).await;
    Err(TransportError::Timeout { after })
}

impl Doubled {
    pub(super) fn new(seed: u64) -> Self {
        let consul = TestConsul::builder().seed(seed).build();
        let (fault, _none) = tokio::sync::watch::channel(None);
        let broken = Broken { to: consul.transport(), fault, requests: AtomicU64::new(0) };
        Self { consul, broken: Arc::new(broken) }
    }
}

#[async_trait]
impl Stage for Doubled {
    fn reader(&self) -> Client {
        let broken: Arc<dyn Transport> = Arc::<Broken>::clone(&self.broken);
        Client::with_transport(ClientConfig::default(), broken).unwrap()
    }

    fn writer(&self) -> Client {
        self.consul.client()
    }

    fn requests(&self) -> u64 {
        self.broken.requests.load(Ordering::SeqCst)
    }

    async fn begin(&mut self, fault: Fault) {
        match fault {
            Fault::Restored => self.consul.reset_index(),
            Fault::Killed => self.consul.restart(),
            Fault::Errors | Fault::HalfOpen | Fault::Revoked => {}
        }
        self.broken.fault.send_replace(Some(fault));
    }

    async fn end(&mut self, fault: Fault) {
        if fault == Fault::Restored {
            self.consul.reset_index();
        }
        self.broken.fault.send_replace(None);
    }
}

/// A real server behind a proxy, with ACLs.
pub(super) struct RealConsul {
    consul: real::Consul,
    proxy: Proxy,
    slack: Duration,
    backup: Option<Bytes>,
    accessor: String,
    broken: AtomicBool,
}

const ROOT: &str = "5f1c8e4a-77aa-4d3b-9c21-0000000000f1";
/// The reader's.
const TOKEN: &str = "5f1c8e4a-77aa-4d3b-9c21-0000000000f2";

impl RealConsul {
    /// The versions that there are.
    pub(super) fn parts(case: &str) -> Vec<Part> {
        SUITE.parts("consul", case)
    }

    pub(super) async fn start(part: &Part, slack: Duration) -> Self {
        let name = if part.major_minor() < (1, 11) { "master" } else { "initial_management" };
        let settings = json!({
            "acl": { "enabled": true, "default_policy": "deny", "tokens": { name: ROOT } },
            "connect": { "enabled": true },
        });
        let consul = real::Consul::start_with(&part.path, settings).await.expect("a real Consul");
        let proxy = Proxy::start(consul.address()).await;
        let rules = r#"key_prefix "" { policy = "read" } service_prefix "" { policy = "read" }
            node_prefix "" { policy = "read" }"#;
        let policy = AclPolicy::new("reader", rules);
        // A server that has just begun to lead has not yet left the ACLs of old times behind.
        while let Err(error) =
            consul.client().acl_policy_create(&policy, &WriteOptions::default()).await
        {
            assert!(error.to_string().contains("legacy mode"), "{error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut stage = Self {
            consul,
            proxy,
            slack,
            backup: None,
            accessor: String::new(),
            broken: AtomicBool::new(false),
        };
        stage.grant().await;
        stage
    }

    /// The most connections of the reader that there were at once.
    pub(super) fn most_connections(&self) -> usize {
        self.proxy.most()
    }

    /// Makes the reader's token, also when it was deleted.
    async fn grant(&mut self) {
        let mut request = AclTokenRequest::new("reads");
        request.secret_id = Some(TOKEN.into());
        request.policies.push(AclLink::name("reader"));
        let client = self.consul.client();
        let token = client.acl_token_create(&request, &WriteOptions::default()).await.unwrap();
        self.accessor = token.accessor_id;
    }
}

#[async_trait]
impl Stage for RealConsul {
    fn reader(&self) -> Client {
        let mut config = ClientConfig::default();
        config.address = self.proxy.address();
        config.token = Some(TOKEN.into());
        config.request_timeout = self.slack;
        Client::new(config).unwrap()
    }

    fn writer(&self) -> Client {
        self.consul.client()
    }

    fn requests(&self) -> u64 {
        self.proxy.requests()
    }

    async fn begin(&mut self, fault: Fault) {
        assert!(!self.broken.swap(true, Ordering::SeqCst), "one fault at a time");
        let (client, read, write) =
            (self.consul.client(), QueryOptions::default(), WriteOptions::default());
        match fault {
            Fault::Killed => self.consul.kill(),
            Fault::Restored => self.backup = Some(client.snapshot_save(&read).await.unwrap()),
            Fault::Errors => self.proxy.set(Mode::Errors),
            Fault::HalfOpen => self.proxy.set(Mode::Swallow),
            Fault::Revoked => client.acl_token_delete(&self.accessor, &write).await.unwrap(),
        }
    }

    async fn end(&mut self, fault: Fault) {
        self.broken.store(false, Ordering::SeqCst);
        match fault {
            Fault::Killed => self.consul.restart().await.unwrap(),
            Fault::Restored => {
                let backup = self.backup.take().unwrap();
                let client = self.consul.client();
                client.snapshot_restore(backup, &WriteOptions::default()).await.unwrap();
            }
            Fault::Errors | Fault::HalfOpen => self.proxy.set(Mode::Pass),
            Fault::Revoked => self.grant().await,
        }
    }
}
