//! What a pass costs where there is nothing to do.

use std::{sync::Arc, time::Duration};

use acl_controller::{
    LoginTokenSettings, LoginTokens, MemorySecrets, Reconciler, Result, SecretStore,
    ServiceTokenSettings, ServiceTokens, TaskSource, Writer,
    task::{Task, TaskListing},
};
use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport,
    testing::{DefaultPolicy, TestConsul},
    transport::{ExchangeLimits, TransportError},
};
use tokio::time::Instant;

use crate::{
    noted_secrets::{Calls, NotedSecrets, note},
    scene::ROOT,
};

const TASKS: usize = 10_000;
pub(crate) const CLUSTER: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/c1";

/// A large cluster's Consul, with all calls of a pass in their order, from all three sides.
pub(crate) struct Large {
    pub(crate) calls: Calls,
    pub(crate) tasks: usize,
    client: Arc<Client>,
}

impl Large {
    /// A cluster with so many tasks, ten of each service.
    pub(crate) fn new(tasks: usize) -> Self {
        let calls = Calls::default();
        let double = TestConsul::builder().acls(DefaultPolicy::Deny).management_token(ROOT).build();
        let transport = Counted { calls: Arc::clone(&calls), inner: double.transport() };
        let mut config = ClientConfig::default();
        config.token = Some(ROOT.into());
        let client = Arc::new(Client::with_transport(config, Arc::new(transport)).unwrap());
        Self { calls, tasks, client }
    }

    pub(crate) fn services(&self) -> usize {
        self.tasks / 10
    }

    /// An empty secret for each service, which notes what is asked of it.
    pub(crate) fn secrets(&self) -> Arc<dyn SecretStore> {
        let inner = Arc::new(MemorySecrets::new());
        for number in 0..self.services() {
            inner.create(format!("pre-service-{number}"));
        }
        Arc::new(NotedSecrets { inner, calls: Arc::clone(&self.calls), lists: true })
    }

    pub(crate) fn task_source(&self) -> Arc<dyn TaskSource> {
        Arc::new(Tasks {
            calls: Arc::clone(&self.calls),
            count: self.tasks,
            services: self.services(),
        })
    }

    pub(crate) fn service_tokens(
        &self,
        tasks: &Arc<dyn TaskSource>,
        secrets: &Arc<dyn SecretStore>,
    ) -> ServiceTokens {
        let (consul, settings) =
            (Arc::clone(&self.client), ServiceTokenSettings::new(CLUSTER, "pre"));
        ServiceTokens::new(consul, Arc::clone(tasks), Arc::clone(secrets), settings).unwrap()
    }

    pub(crate) fn login_tokens(&self, tasks: &Arc<dyn TaskSource>) -> LoginTokens {
        let settings = LoginTokenSettings::new(CLUSTER, "10.0.0.9");
        LoginTokens::new(Arc::clone(&self.client) as _, Arc::clone(tasks), settings).unwrap()
    }

    /// Lets a controller make everything that a first pass has to make.
    pub(crate) async fn make_everything(&self, reconciler: &impl Reconciler) {
        let writer = Writer::new();
        let report = reconciler.pass(&writer, false).await.unwrap();
        assert!(report.is_complete(), "{:?}", report.errors.first());
        assert_eq!(writer.into_changes().len(), 3 * self.services());
        // The first slower check notes in each secret that its token is there.
        let writer = Writer::new();
        let report = reconciler.pass(&writer, true).await.unwrap();
        assert!(report.is_complete() && writer.into_changes().len() == self.services());
    }

    /// A pass that has nothing to do: its calls.
    pub(crate) async fn measured(
        &self,
        name: &str,
        reconciler: &impl Reconciler,
        check: bool,
    ) -> Vec<String> {
        self.calls.lock().unwrap().clear();
        let (writer, begin) = (Writer::new(), Instant::now());
        let report = reconciler.pass(&writer, check).await.unwrap();
        let took: Duration = begin.elapsed();
        assert!(report.is_complete() && writer.into_changes().is_empty());
        assert_eq!(report.tasks, self.tasks);
        let made = self.calls.lock().unwrap().clone();
        let shown = if made.len() <= 8 { format!("{made:?}") } else { String::new() };
        eprintln!(
            "{name}: {} calls in {} ms, {} tasks, {} services, {} MiB at most so far {shown}",
            made.len(),
            took.as_millis(),
            self.tasks,
            self.services(),
            resident() / 1024
        );
        made
    }
}

#[derive(Debug)]
struct Tasks {
    calls: Calls,
    count: usize,
    services: usize,
}

#[async_trait]
impl TaskSource for Tasks {
    async fn tasks(&self) -> Result<TaskListing> {
        note(&self.calls, "tasks".to_owned());
        let tasks = (0..self.count).map(|number| {
            let family = number % self.services;
            Task::new(
                format!("arn:aws:ecs:us-east-1:123456789012:task/c1/{number:032x}"),
                format!("arn:aws:ecs:us-east-1:123456789012:task-definition/service-{family}:3"),
            )
            .with_tag("consul.hashicorp.com/mesh", "true")
            .with_tag("team", format!("team-{}", number % 7))
        });
        Ok(TaskListing::new(tasks.collect()))
    }
}

/// A way to the double on which every request is noted.
#[derive(Debug)]
struct Counted {
    calls: Calls,
    inner: Arc<dyn Transport>,
}

#[async_trait]
impl Transport for Counted {
    async fn exchange(
        &self,
        request: http::Request<Bytes>,
        limits: ExchangeLimits,
    ) -> std::result::Result<http::Response<Bytes>, TransportError> {
        note(&self.calls, format!("{} {}", request.method(), request.uri().path()));
        self.inner.exchange(request, limits).await
    }
}

/// Memory that this process has taken at most, in KiB; 0 where the system does not tell.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[tokio::test]
async fn a_pass_with_nothing_to_do_only_lists() {
    let large = Large::new(TASKS);
    let (tasks, secrets) = (large.task_source(), large.secrets());
    large.make_everything(&large.service_tokens(&tasks, &secrets)).await;

    // A controller that has just started knows nothing.
    let reconciler = large.service_tokens(&tasks, &secrets);
    let lists = ["GET /v1/acl/policies", "GET /v1/acl/tokens", "tasks"];
    assert_eq!(large.measured("service tokens, just started", &reconciler, false).await, lists);
    assert_eq!(large.measured("service tokens, later", &reconciler, false).await, lists);
    let first = large.measured("service tokens, first check", &reconciler, true).await;
    let writes = first.iter().filter(|call| call.contains("PUT") || call.contains("replace"));
    assert_eq!(writes.count(), 0);
    let check = large.measured("service tokens, later check", &reconciler, true).await;
    assert_eq!(check, [&lists[..], &["secret versions pre-"]].concat());

    let reconciler = large.login_tokens(&tasks);
    reconciler.prepare(&Writer::new()).await.unwrap();
    let made = large.measured("login tokens", &reconciler, false).await;
    assert_eq!(made[..1], ["GET /v1/acl/tokens"]);
    assert!(made.len() == 3 && made[1].starts_with("GET /v1/catalog/node-services/"), "{made:?}");
}
