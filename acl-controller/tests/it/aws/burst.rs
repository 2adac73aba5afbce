//! A burst of new services while Secrets Manager takes only so many writes a second.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use acl_controller::{
    Reconciler as _, ServiceTokenSettings, ServiceTokens, TaskSource, Writer, task::Task,
    testing::MemoryTasks,
};
use consul_watch::testing::{DefaultPolicy, TestConsul};
use tokio::time::Instant;

use super::{
    secrets_stub::Secrets,
    stub::{Stub, refused},
};
use crate::scene::ROOT;

/// A quota as AWS has them: so many calls a second, and as many at once after a rest.
///
/// Source: "AWS Secrets Manager quotas" in its user guide.
#[derive(Debug)]
struct Quota {
    rate: f64,
    left: f64,
    at: Instant,
}

impl Quota {
    fn new(rate: u32) -> Self {
        Self { rate: rate.into(), left: rate.into(), at: Instant::now() }
    }

    fn takes(&mut self) -> bool {
        let now = Instant::now();
        self.left =
            (self.left + now.duration_since(self.at).as_secs_f64() * self.rate).min(self.rate);
        self.at = now;
        let takes = self.left >= 1.0;
        if takes {
            self.left -= 1.0;
        }
        takes
    }
}

/// What became of a burst.
#[derive(Debug)]
pub(crate) struct Burst {
    /// From the tasks' start until each service had its token.
    pub(crate) took: Duration,
    pub(crate) passes: usize,
    /// Writes that Secrets Manager refused for want of quota.
    pub(crate) throttled: usize,
    pub(crate) errors: Vec<String>,
}

/// Starts a task of each of so many new services, and makes passes until all have their tokens.
pub(crate) async fn burst(services: usize, rate: u32) -> Burst {
    let double = TestConsul::builder().acls(DefaultPolicy::Deny).management_token(ROOT).build();
    let secrets = Secrets::default();
    let tasks = Arc::new(MemoryTasks::new());
    for number in 0..services {
        secrets.create(&format!("pre-service-{number}"), Some("{}"));
        let task = Task::new(
            format!("arn:aws:ecs:us-east-1:123456789012:task/c1/{number:032x}"),
            format!("arn:aws:ecs:us-east-1:123456789012:task-definition/service-{number}:3"),
        );
        tasks.set(task.with_tag("consul.hashicorp.com/mesh", "true"));
    }
    let (quota, throttled) = (Mutex::new(Quota::new(rate)), Arc::new(Mutex::new(0)));
    let refusals = Arc::clone(&throttled);
    let stub = Stub::start(move |action, input| {
        if action == "UpdateSecret" && !quota.lock().unwrap().takes() {
            *refusals.lock().unwrap() += 1;
            return refused(400, "ThrottlingException", "Rate exceeded");
        }
        secrets.answer(action, input)
    })
    .await;
    let store = Arc::new(stub.aws_by_default().await.secrets());
    let tasks: Arc<dyn TaskSource> = tasks;
    let settings = ServiceTokenSettings::new("c1", "pre");
    let consul = Arc::new(double.client());
    let reconciler = ServiceTokens::new(consul, tasks, store, settings).unwrap();
    let (begin, mut passes, mut errors) = (Instant::now(), 0, Vec::new());
    loop {
        passes += 1;
        let report = reconciler.pass(&Writer::new(), false).await.unwrap();
        let complete = report.is_complete();
        errors.extend(report.errors.iter().map(|error| consul_watch::error_chain(error)));
        if complete && report.postponed == 0 {
            break;
        }
    }
    let throttled = *throttled.lock().unwrap();
    Burst { took: begin.elapsed(), passes, throttled, errors }
}

impl Burst {
    /// The least time in which the quota lets so many writes through.
    pub(crate) fn least(services: usize, rate: u32) -> Duration {
        let beyond = u32::try_from(services).unwrap().saturating_sub(rate);
        Duration::from_secs(1) * beyond / rate
    }
}

/// Four writers whose three attempts each last for 1.5 s on average ask for 8 writes a second: without
/// patience, some fail here.
#[tokio::test]
async fn new_services_get_their_tokens_at_the_rate_that_aws_allows() {
    let burst = burst(32, 4).await;
    assert_eq!(burst.errors, Vec::<String>::new());
    assert_eq!(burst.passes, 1, "{burst:?}");
    assert!(burst.took >= Burst::least(32, 4) && burst.throttled > 0, "{burst:?}");
}
