//! What a pass costs where there is nothing to do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use acl_controller::{
    LoginTokenSettings, LoginTokens, Reconciler, Result, SecretStore, ServiceTokenSettings,
    ServiceTokens, TaskSource, Writer,
    secret_store::{Replaced, SecretVersion, StoredSecret},
    task::{Task, TaskListing},
};
use async_trait::async_trait;
use bytes::Bytes;
use consul_watch::{
    Client, ClientConfig, Transport,
    testing::{DefaultPolicy, TestConsul},
    transport::{ExchangeLimits, TransportError},
};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::scene::ROOT;

const TASKS: usize = 10_000;
const SERVICES: usize = 1_000;
const CLUSTER: &str = "arn:aws:ecs:us-east-1:123456789012:cluster/c1";

/// Every call of a pass, in its order, from all three sides.
type Calls = Arc<Mutex<Vec<String>>>;

fn note(calls: &Calls, call: String) {
    calls.lock().unwrap().push(call);
}

#[derive(Debug)]
struct Tasks {
    calls: Calls,
}

#[async_trait]
impl TaskSource for Tasks {
    async fn tasks(&self) -> Result<TaskListing> {
        note(&self.calls, "tasks".to_owned());
        let tasks = (0..TASKS).map(|number| {
            let family = number % SERVICES;
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

#[derive(Debug)]
struct Secrets {
    calls: Calls,
    inner: acl_controller::MemorySecrets,
}

#[async_trait]
impl SecretStore for Secrets {
    async fn get(&self, name: &str) -> Result<Option<StoredSecret>> {
        note(&self.calls, format!("secret get {name}"));
        self.inner.get(name).await
    }

    async fn replace(
        &self,
        name: &str,
        expected: &SecretVersion,
        value: &SecretString,
    ) -> Result<Replaced> {
        note(&self.calls, format!("secret replace {name}"));
        self.inner.replace(name, expected, value).await
    }

    async fn versions(&self, prefix: &str) -> Result<Option<BTreeMap<String, SecretVersion>>> {
        note(&self.calls, format!("secret versions {prefix}"));
        self.inner.versions(prefix).await
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

/// Memory that this process has taken, in KiB; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

async fn measured(
    name: &str,
    reconciler: &impl Reconciler,
    calls: &Calls,
    check: bool,
) -> Vec<String> {
    calls.lock().unwrap().clear();
    let (writer, begin) = (Writer::new(), Instant::now());
    let report = reconciler.pass(&writer, check).await.unwrap();
    let took: Duration = begin.elapsed();
    assert!(report.is_complete() && writer.into_changes().is_empty());
    assert_eq!(report.tasks, TASKS);
    let made = calls.lock().unwrap().clone();
    let shown = if made.len() <= 8 { format!("{made:?}") } else { String::new() };
    eprintln!(
        "{name}: {} calls in {} ms, {TASKS} tasks, {SERVICES} services, {} MiB at most so far {shown}",
        made.len(),
        took.as_millis(),
        resident() / 1024
    );
    made
}

#[tokio::test]
async fn a_pass_with_nothing_to_do_only_lists() {
    let calls = Calls::default();
    let double = TestConsul::builder().acls(DefaultPolicy::Deny).management_token(ROOT).build();
    let transport = Counted { calls: Arc::clone(&calls), inner: double.transport() };
    let mut config = ClientConfig::default();
    config.token = Some(ROOT.into());
    let client = Arc::new(Client::with_transport(config, Arc::new(transport)).unwrap());
    let tasks: Arc<dyn TaskSource> = Arc::new(Tasks { calls: Arc::clone(&calls) });
    let secrets = Arc::new(Secrets {
        calls: Arc::clone(&calls),
        inner: acl_controller::MemorySecrets::new(),
    });
    for number in 0..SERVICES {
        secrets.inner.create(format!("pre-service-{number}"));
    }
    let make = || {
        let secrets: Arc<dyn SecretStore> = Arc::clone(&secrets) as Arc<dyn SecretStore>;
        let settings = ServiceTokenSettings::new(CLUSTER, "pre");
        ServiceTokens::new(Arc::clone(&client) as _, Arc::clone(&tasks), secrets, settings).unwrap()
    };
    let begin = Instant::now();
    let writer = Writer::new();
    let report = make().pass(&writer, false).await.unwrap();
    assert!(report.is_complete(), "{:?}", report.errors.first());
    assert_eq!(writer.into_changes().len(), 3 * SERVICES);
    eprintln!("the first pass made everything in {} ms", begin.elapsed().as_millis());

    // A controller that has just started knows nothing.
    let reconciler = make();
    let lists = ["GET /v1/acl/policies", "GET /v1/acl/tokens", "tasks"];
    assert_eq!(measured("service tokens, just started", &reconciler, &calls, false).await, lists);
    assert_eq!(measured("service tokens, later", &reconciler, &calls, false).await, lists);
    let first = measured("service tokens, first check", &reconciler, &calls, true).await;
    let writes = first.iter().filter(|call| call.contains("PUT") || call.contains("replace"));
    assert_eq!(writes.count(), 0);
    let check = measured("service tokens, later check", &reconciler, &calls, true).await;
    assert_eq!(check, [&lists[..], &["secret versions pre-"]].concat());

    let settings = LoginTokenSettings::new(CLUSTER, "10.0.0.9");
    let reconciler =
        LoginTokens::new(Arc::clone(&client) as _, Arc::clone(&tasks), settings).unwrap();
    reconciler.prepare(&Writer::new()).await.unwrap();
    let node = format!("GET /v1/catalog/node-services/{}", CLUSTER.replace('/', "%2F"));
    let made = measured("login tokens", &reconciler, &calls, false).await;
    assert_eq!(made[..1], ["GET /v1/acl/tokens"]);
    assert!(
        made.len() == 3 && made[1].starts_with("GET /v1/catalog/node-services/"),
        "{made:?} {node}"
    );
}
